"""`nn.parallel` on a machine with one device."""

from __future__ import annotations

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.nn.parallel import DistributedDataParallel, data_parallel, gather, parallel_apply, replicate, scatter


def test_a_data_parallel_module_is_its_module() -> None:
    inner = nn.Linear(3, 2)
    model = nn.DataParallel(inner, device_ids=[0, 1])
    x = torch.ones(4, 3)
    assert torch.equal(model(x), inner(x)) and torch.equal(model(input=x), inner(x))
    assert list(model.state_dict()) == ["module.weight", "module.bias"] and model.device_ids == []
    assert repr(model) == "DataParallel(\n  (module): Linear(in_features=3, out_features=2, bias=True)\n)"
    model.eval()
    assert not inner.training


def test_what_needs_devices_refuses() -> None:
    layer, x = nn.Linear(3, 2), torch.ones(4, 3)
    with pytest.raises(RuntimeError, match="device type could not be determined"):
        data_parallel(layer, x)
    with pytest.raises(ValueError, match="non cpu device"):
        scatter((x, 3), ["cpu", "cpu"])
    assert scatter([{"a": 1}, 2], ["cpu", "cpu"]) == [[{"a": 1}, 2]] * 2
    with pytest.raises(AssertionError, match="Gather function"):
        gather([x, x], "cpu")
    with pytest.raises(ValueError, match="non cpu device"):
        replicate(layer, ["cpu"])
    assert replicate(layer, []) == []
    with pytest.raises(AssertionError, match="number of modules 2"):
        parallel_apply([layer, layer], [x])
    with pytest.raises(RuntimeError, match="accelerator"):
        parallel_apply([layer], [x])
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        DistributedDataParallel(layer)


def test_the_steps_of_data_parallel_are_methods() -> None:
    model = nn.DataParallel(nn.Linear(3, 2))
    assert model.scatter((1, 2), {"k": 3}, ["cuda:0", "cuda:1"]) == (((1, 2), (1, 2)), ({"k": 3}, {"k": 3}))
    assert model.replicate(model.module, []) == []
    with pytest.raises(AssertionError, match="The number of modules 1"):
        model.parallel_apply([model.module], [], None)
    with pytest.raises(AssertionError, match="not implemented for CPU tensors"):
        model.gather([torch.ones(1)], "cpu")
