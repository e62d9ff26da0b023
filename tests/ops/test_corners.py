"""Gradients where a function has a corner, a tie or no finite value: PyTorch's choice, written down."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import rushlight as rl

_NAN, _INF = float("nan"), float("inf")
_ZEROS = [0.0, 0.0, 0.0]


def _smooth_l1(x: rl.Tensor) -> rl.Tensor:
    return rl.nn.functional.smooth_l1_loss(x, rl.zeros_like(x), reduction="sum")


def _huber(x: rl.Tensor) -> rl.Tensor:
    return rl.nn.functional.huber_loss(x, rl.zeros_like(x), reduction="sum")


def _segments(reduce: str) -> Callable[[rl.Tensor], rl.Tensor]:
    lengths = rl.tensor([1, 2, 1, 0])
    return lambda x: rl._segment_reduce(x, reduce, lengths=lengths, initial=-9.0 if reduce == "max" else 9.0).sum()


@pytest.mark.parametrize(
    ("function", "at", "slope"),
    [
        (rl.nanmedian, [1.0, 1.0, _NAN, -1.0], [0.5, 0.5, 0.0, 0.0]),
        (rl.nanmedian, [_NAN, _NAN], [0.5, 0.5]),
        (rl.max, [1.0, _NAN, 2.0, _NAN], [0.0, 0.5, 0.0, 0.5]),
        (rl.min, [_INF, _INF, 3.0, 3.0], [0.0, 0.0, 0.5, 0.5]),
        (_segments("max"), [_NAN, 1.0, 1.0, 2.0], [1.0, 0.5, 0.5, 1.0]),
        (_segments("min"), [3.0, 1.0, _NAN, _NAN], [1.0, 0.0, 1.0, 1.0]),
        (_smooth_l1, [0.5, _INF, -_INF, _NAN], [0.5, 1.0, -1.0, _NAN]),
        (_huber, [0.5, _INF, -_INF, _NAN], [0.5, 1.0, -1.0, _NAN]),
        (lambda x: rl.cosine_similarity(x, rl.zeros(3), dim=0), _ZEROS, _ZEROS),
        (lambda x: rl.cosine_similarity(x, x, dim=0), _ZEROS, _ZEROS),
        (lambda x: rl.nn.functional.lp_pool1d(x[None], 2.0, 3).sum(), _ZEROS, _ZEROS),
        (lambda x: rl.nn.functional.lp_pool1d(x[None], 2.0, 2).sum(), [3.0, 4.0], [0.6, 0.8]),
    ],
)
def test_slopes_at_corners(function: Callable[..., rl.Tensor], at: list[float], slope: list[float]) -> None:
    x = rl.tensor(at, requires_grad=True)
    function(x).backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-6)


def test_nanmedian_of_everything() -> None:
    assert rl.nanmedian(rl.tensor([[3.0, _NAN], [1.0, 2.0]])).item() == 2.0
    assert rl.nanmedian(rl.tensor([4, 1, 3, 2])).item() == 2
    assert rl.nanmedian(rl.tensor([_NAN])).isnan() and rl.nanmedian(rl.tensor([])).isnan()


def test_broadcast_to_takes_sizes_or_a_shape():
    x = rl.arange(2.0)
    for made in (x.broadcast_to(3, 2), x.broadcast_to((3, 2)), rl.broadcast_to(x, size=(3, 2))):
        assert made.tolist() == [[0.0, 1.0]] * 3 and made.stride() == (0, 1)
