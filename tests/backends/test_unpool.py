"""The routine behind gradients of the greatest of each window, against its definition, for every layout and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu import library
from rushlight._backends.cpu.image import unpool

F = torch.nn.functional
# shape, kernel, stride, padding, dilation, ceil_mode
CASES: list[tuple[Any, ...]] = [
    ((2, 3, 9, 12), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((1, 40, 8, 7), (3, 2), (1, 2), (1, 0), (1, 1), False),
    ((2, 5, 11, 10), (2, 3), (1, 1), (0, 1), (3, 2), False),
    ((1, 33, 10, 11), (3, 3), (2, 2), (0, 1), (1, 1), True),
    ((1, 2, 70, 90), (5, 5), (1, 1), (2, 2), (1, 1), False),
    ((1, 1, 300, 3), (130, 1), (2, 1), (3, 0), (1, 1), False),
    ((3, 6, 40), (3,), (2,), (1,), (1,), False),
]


def wanted_gradient(x: Any, ct: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """Each cotangent goes to the first greatest element of its window, by loops over all of them."""
    found, n = np.zeros(x.shape), len(kernel)
    for at in np.ndindex(*ct.shape):
        best: Any = None
        for k in np.ndindex(*kernel):
            u = tuple(o * s + j * d - p for o, s, j, d, p in zip(at[2:], stride, k, dilation, padding, strict=True))
            if all(0 <= v < size for v, size in zip(u, x.shape[2:], strict=True)) and (
                best is None or x[at[:2] + u] > x[at[:2] + best]
            ):
                best = u
        found[at[:2] + best] += ct[at]
    assert n + 2 == x.ndim
    return found


def last(x: Any) -> Any:
    """The same numbers with the channels last in memory."""
    order = (0, *range(2, x.dim()), 1)
    return x.permute(order).contiguous().permute(0, x.dim() - 1, *range(1, x.dim() - 1))


@pytest.mark.parametrize("layout", [torch.Tensor.contiguous, last], ids=["channels first", "channels last"])
@pytest.mark.parametrize(
    "dtype",
    [torch.float32, *(pytest.param(d, marks=pytest.mark.slow) for d in (torch.float64, torch.bfloat16, torch.float16))],
    ids=str,
)
@pytest.mark.parametrize("rows", [1 << 15, 256], ids=["whole", "bands"])
def test_gradients_of_max_pooling(monkeypatch: pytest.MonkeyPatch, dtype: Any, layout: Any, rows: int) -> None:
    monkeypatch.setattr(unpool, "_ROWS", rows)
    monkeypatch.setattr(unpool, "_PIECE", rows // 64)
    rng = np.random.default_rng(5)
    for shape, *p, ceil in CASES:
        shape = (*shape[:-1], shape[-1] + (rows == 256))  # so that plans are made anew
        x = rng.integers(-40, 40, shape) / 8.0  # numbers that every dtype holds, many of them equal
        given = layout(torch.tensor(x).to(dtype)).detach().requires_grad_()
        y = (F.max_pool1d if x.ndim == 3 else F.max_pool2d)(given, *map(tuple, p), ceil_mode=ceil)
        ct = rng.integers(-8, 9, y.shape) / 4.0
        (grad,) = torch.autograd.grad(y, [given], layout(torch.tensor(ct).to(dtype)))
        assert grad.dtype is dtype
        np.testing.assert_array_equal(grad.double().numpy(), wanted_gradient(x, ct, *p), err_msg=f"{shape} {p} {ceil}")


def test_sums_are_rounded_once() -> None:
    """Nine windows send to one element: their sum is made in float32."""
    x = torch.zeros(1, 1, 5, 5, dtype=torch.bfloat16)
    x[0, 0, 2, 2] = 1
    x.requires_grad_()
    ct = torch.full((1, 1, 3, 3), 1 + 2**-7, dtype=torch.bfloat16)
    (grad,) = torch.autograd.grad(F.max_pool2d(x, 3, 1), [x], ct)
    assert grad[0, 0, 2, 2].item() == torch.tensor(9 * (1 + 2**-7)).bfloat16().item()


def test_windows_that_overlap_go_to_the_routine(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    whether = library.windows_overlap
    monkeypatch.setattr(library, "windows_overlap", lambda node: seen.append(whether(node)) or seen[-1])
    for kernel, stride, size in ((3, 2, 31), (2, 2, 34)):
        x = torch.randn(1, 2, size, size + 1, requires_grad=True)
        F.max_pool2d(x, kernel, stride).sum().backward()
    assert True in seen and False in seen


def test_bits_do_not_depend_on_threads() -> None:
    x = torch.randn(3, 5, 61, 53).requires_grad_()
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            x.grad = None
            y = F.max_pool2d(x, 5, 1, 2)
            y.backward(torch.cos(y.detach()))
            found.append(x.grad.clone())
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], f) for f in found)
