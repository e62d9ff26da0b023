"""Tensors as users write them: making, indexing, arithmetic, conversions; the types that a checker must find."""

from __future__ import annotations

from typing import assert_type

import rushlight as torch
from rushlight import Tensor


def making() -> None:
    assert_type(torch.zeros(2, 3), Tensor)
    assert_type(torch.zeros((2, 3), dtype=torch.float64, requires_grad=True), Tensor)
    assert_type(torch.arange(5), Tensor)
    assert_type(torch.arange(0, 1, 0.5, dtype=torch.float32, device="cpu"), Tensor)
    assert_type(torch.tensor([[1, 2], [3, 4]]), Tensor)
    assert_type(torch.full((2,), 3.0), Tensor)
    assert_type(torch.ones_like(torch.zeros(2)), Tensor)
    assert_type(torch.randint(10, (2,), generator=torch.Generator()), Tensor)
    assert_type(torch.empty(2).new_zeros(3, 4), Tensor)
    assert_type(torch.eye(2, dtype=torch.complex64), Tensor)


def facts(x: Tensor) -> None:
    assert_type(x.shape, torch.Size)
    assert_type(x.size(), torch.Size)
    assert_type(x.size(0), int)
    assert_type(x.dtype, torch.dtype)
    assert_type(x.device, torch.device)
    assert_type(x.ndim, int)
    assert_type(x.stride(), tuple[int, ...])
    assert_type(x.requires_grad, bool)
    assert_type(x.grad, Tensor | None)
    assert_type(x.is_contiguous(), bool)
    assert_type(len(x), int)
    assert_type(x.sum().item(), int | float | bool)
    rows, columns = x.shape
    assert_type(rows * columns, int)


def indexing(x: Tensor, mask: Tensor) -> None:
    assert_type(x[0], Tensor)
    assert_type(x[0, 1:], Tensor)
    assert_type(x[..., None, ::2], Tensor)
    assert_type(x[mask], Tensor)
    assert_type(x[[0, 1]], Tensor)
    x[0] = 1.0
    x[mask] = x[mask] * 2
    x[:, 0] += 1
    for row in x:
        assert_type(row, Tensor)


def arithmetic(x: Tensor, y: Tensor) -> None:
    assert_type(x + 1, Tensor)
    assert_type(2 / x, Tensor)
    assert_type(x @ y, Tensor)
    assert_type(-(x**2), Tensor)
    assert_type(x == y, Tensor)
    assert_type((x > 0) & ~(y < 1.5), Tensor)
    assert_type(torch.add(x, 1, alpha=2), Tensor)
    assert_type(x.add_(y).mul_(2), Tensor)
    assert_type(torch.where(x > 0, x, 0.0), Tensor)
    assert_type(x.clamp(min=0), Tensor)
    assert_type(torch.maximum(x, y), Tensor)
    x += y
    x /= 2


def conversions(x: Tensor) -> None:
    assert_type(x.to(torch.float64), Tensor)
    assert_type(x.to("cpu", torch.float64), Tensor)
    assert_type(x.to(x), Tensor)
    assert_type(x.float().long().bool(), Tensor)
    assert_type(x.view(-1), Tensor)
    assert_type(x.view((1, -1)), Tensor)
    assert_type(x.reshape(-1).permute(0), Tensor)
    assert_type(x.detach().requires_grad_(), Tensor)
    assert_type(x.type(), str)
    assert_type(bool(x.any()), bool)


class Marked(Tensor):
    """What changes a tensor in place returns it in its own class."""


def subclasses(x: Marked) -> None:
    assert_type(x.add_(1), Marked)
    assert_type(x.requires_grad_(), Marked)


def hooks(x: Tensor) -> None:
    handle = x.register_hook(lambda grad: grad * 2)
    (x * x).sum().backward()
    handle.remove()
    torch.autograd.backward([x.sum()])
    with torch.enable_grad(), torch.inference_mode(False):
        (grad,) = torch.autograd.grad((x * x).sum(), [x])
        assert_type(grad + 1, Tensor)


if __name__ == "__main__":
    making()
    matrix = torch.arange(4.0).reshape(2, 2)
    facts(matrix)
    indexing(matrix.clone(), matrix > 1)
    arithmetic(matrix.clone(), matrix)
    conversions(matrix)
    subclasses(matrix.clone().as_subclass(Marked))  # type: ignore[arg-type]
    hooks(matrix.clone().requires_grad_())
