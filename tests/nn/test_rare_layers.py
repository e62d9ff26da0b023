"""Layers and functions that few models use, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn import functional as F

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle


def ours(x: Any) -> Any:
    return rl.from_numpy(x.detach().numpy().copy()) if isinstance(x, torch.Tensor) else x


def same(expected: Any, found: Any, tolerance: float = 1e-5) -> None:
    assert tuple(expected.shape) == tuple(found.shape)
    assert str(expected.dtype) == str(found.dtype)
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-4, atol=tolerance)


def test_fractional_pooling_draws_pytorch_s_windows() -> None:
    for shape, kernel, size, dims in (((2, 3, 9, 7), (2, 3), (4, 3), 2), ((2, 6, 7, 5), 2, (3, 4, 2), 3)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(1), requires_grad=True)
        y = ours(x).requires_grad_()
        torch.manual_seed(5)
        rl.manual_seed(5)
        expected = getattr(torch.nn.functional, f"fractional_max_pool{dims}d")(x, kernel, size, return_indices=True)
        found = getattr(F, f"fractional_max_pool{dims}d")(y, kernel, size, return_indices=True)
        same(expected[0], found[0], 0)
        same(expected[1], found[1], 0)
        expected[0].sum().backward()
        found[0].sum().backward()
        same(x.grad, y.grad, 0)
    with pytest.raises(ValueError, match="only one of"):
        nn.FractionalMaxPool2d(2, output_size=3, output_ratio=0.5)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", [None, {"batch_chunk_size": 2}, {"allow_retain_graph": True}])
def test_linear_cross_entropy(reduction: str, options: dict[str, Any] | None) -> None:
    torch.manual_seed(0)
    x, w, b = (torch.randn(s, requires_grad=True) for s in ((5, 3), (7, 3), (7,)))
    target, weight = torch.tensor([0, 6, -100, 2, 3]), torch.rand(7)
    y, v, c = (ours(t).requires_grad_() for t in (x, w, b))
    expected = torch.nn.functional.linear_cross_entropy(
        x, w, target, linear_bias=b, weight=weight, reduction=reduction,
        options=None if options is None else torch.nn.LinearCrossEntropyOptions(**options),
    )  # fmt: skip
    found = F.linear_cross_entropy(
        y, v, ours(target), linear_bias=c, weight=ours(weight), reduction=reduction,
        options=None if options is None else nn.LinearCrossEntropyOptions(**options),
    )  # fmt: skip
    same(expected, found)
    slope = torch.randn_like(expected)
    expected.backward(slope)
    found.backward(ours(slope))
    for theirs, mine in ((x, y), (w, v), (b, c)):
        same(theirs.grad, mine.grad)


def test_chunks_are_used_up_by_backward() -> None:
    x, w = rl.ones(4, 3).requires_grad_(), rl.ones(5, 3)
    target = rl.tensor([0, 1, 2, 3])
    loss = F.linear_cross_entropy(x, w, target, options=nn.LinearCrossEntropyOptions())
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="allow_retain_graph"):
        loss.backward()
    with pytest.raises(ValueError, match="chunking_method"):
        nn.LinearCrossEntropyOptions(chunking_method="halves")


def test_adaptive_softmax() -> None:
    torch.manual_seed(0)
    expected = torch.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0, head_bias=True)
    found = nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10], div_value=2.0, head_bias=True)
    assert str(found) == str(expected)
    found.load_state_dict({name: ours(value) for name, value in expected.state_dict().items()})
    x, target = torch.randn(5, 8, requires_grad=True), torch.tensor([1, 6, 15, 19, 2])
    y = ours(x).requires_grad_()
    theirs, mine = expected(x, target), found(y, ours(target))
    same(theirs.output, mine.output)
    same(theirs.loss, mine.loss)
    theirs.loss.backward()
    mine.loss.backward()
    same(x.grad, y.grad)
    same(expected.log_prob(x), found.log_prob(y))
    same(expected.predict(x), found.predict(y))
    with pytest.raises(RuntimeError, match="Target values"):
        found(y, rl.tensor([0, 1, 2, 3, 20]))


def test_old_and_single_process_modules() -> None:
    x = torch.randn(2, 6, 3, 2, generator=torch.Generator().manual_seed(0))
    for size in (2, 3, 5):
        same(torch.nn.CrossMapLRN2d(size, alpha=0.7)(x), nn.CrossMapLRN2d(size, alpha=0.7)(ours(x)))
    same(torch.nn.SyncBatchNorm(6)(x), nn.SyncBatchNorm(6)(ours(x)))
    net = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)))
    assert isinstance(net[1], nn.SyncBatchNorm)
    with pytest.warns(FutureWarning, match="NLLLoss2d"):
        nn.NLLLoss2d()
    assert nn.factory_kwargs({"dtype": rl.float64, "factory_kwargs": {"device": "cpu"}}) == {
        "dtype": rl.float64,
        "device": "cpu",
    }
    with pytest.raises(TypeError, match="specified twice"):
        nn.factory_kwargs({"dtype": rl.float64, "factory_kwargs": {"dtype": rl.float32}})


def test_grouped_products() -> None:
    ends = torch.tensor([2, 4, 6], dtype=torch.int32)
    torch.manual_seed(0)
    for left, right, offs in (
        ((6, 8), (3, 8, 16), ends),
        ((3, 4, 8), (3, 8, 4), None),
        ((8, 8), (8, 4), ends),
        ((3, 4, 8), (8, 8), ends),
    ):
        a, b = torch.randn(left), torch.randn(right)
        if offs is None or len(left) != 3:
            expected = torch.nn.functional.grouped_mm(a, b, offs=offs)
            found = F.grouped_mm(ours(a), ours(b), offs=ours(offs))
            same(expected, found)
            assert expected.stride() == found.stride()
    with pytest.raises(RuntimeError, match="multiple of 16 bytes"):
        F.grouped_mm(rl.ones(2, 2, 3), rl.ones(2, 3, 3))
    with pytest.raises(NotImplementedError, match="scaled_grouped_mm"):
        F.scaled_grouped_mm(*[rl.ones(2, 2)] * 2, None, F.ScalingType.TensorWise, None, F.ScalingType.TensorWise)
