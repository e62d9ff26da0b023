"""The older tensor types of GPUs: `torch.cuda.FloatTensor`."""

import numpy as np
import pytest

import rushlight as torch


def page_types_are_constructors() -> None:
    for made in (torch.cuda.FloatTensor([1, 2]), torch.cuda.FloatTensor(np.array([1.0, 2.0]))):
        assert made.device == torch.device("cuda:0") and made.dtype is torch.float32 and made.tolist() == [1.0, 2.0]
    assert torch.cuda.LongTensor(2, 3).shape == (2, 3) and torch.cuda.ByteTensor(torch.Size([4])).is_cuda
    with torch.cuda.device(1):
        assert torch.cuda.HalfTensor([1]).device == torch.device("cuda:1")
    with pytest.raises(
        RuntimeError, match="legacy constructor expects device type: cuda but device type: cpu was passed"
    ):
        torch.cuda.FloatTensor(2, device="cpu")
    assert torch.cuda.FloatTensor(2, device="cuda:1").device == torch.device("cuda:1")


def page_types_are_of_a_device() -> None:
    host, device = torch.ones(2), torch.ones(2, device="cuda:1")
    assert isinstance(device, torch.cuda.FloatTensor) and not isinstance(device, torch.FloatTensor)
    assert isinstance(host, torch.FloatTensor) and not isinstance(host, torch.cuda.FloatTensor)
    assert not isinstance(device, torch.cuda.DoubleTensor) and torch.cuda.FloatTensor.is_cuda
    assert host.type() == "torch.FloatTensor" and device.type() == torch.typename(device) == "torch.cuda.FloatTensor"
    assert host.to("meta").type() == "torch.meta.FloatTensor" and not isinstance(host.to("meta"), torch.FloatTensor)


def page_casts_to_types_move() -> None:
    host, device = torch.arange(3), torch.arange(3, device="cuda:1")
    for moved in (host.type("torch.cuda.DoubleTensor"), host.type(torch.cuda.DoubleTensor)):
        assert moved.device == torch.device("cuda:0") and moved.dtype is torch.float64 and moved.tolist() == [0, 1, 2]
    assert device.type(torch.cuda.FloatTensor).device == torch.device("cuda:1")  # one of this kind stays where it is
    assert device.type("torch.FloatTensor").device.type == "cpu" and device.type(torch.float32).is_cuda
    assert host.type_as(device).device == torch.device("cuda:1") and device.type_as(host).device.type == "cpu"
    x = torch.ones(2, requires_grad=True)
    (x.type_as(torch.ones(1, device="cuda")) * 3).sum().backward()
    assert x.grad.device.type == "cpu" and x.grad.tolist() == [3.0, 3.0]
    with pytest.raises(ValueError, match="invalid type: 'torch.cuda.NoTensor'"):
        host.type("torch.cuda.NoTensor")


def page_a_default_type_has_a_device() -> None:
    torch.set_default_tensor_type("torch.cuda.DoubleTensor")
    try:
        assert torch.ones(1).device == torch.device("cuda:0") and torch.ones(1).dtype is torch.float64
    finally:
        torch.set_default_tensor_type(torch.FloatTensor)
    assert torch.ones(1).device.type == "cpu" and torch.ones(1).dtype is torch.float32
