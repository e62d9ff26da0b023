"""Calculus on sampled functions: slopes by differences, integrals by trapezoids."""

from __future__ import annotations

from typing import Any

from rushlight._engine.core.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._surface.registry import SPACES, composite, function_of
from rushlight._types.layout import wrap_dim
from rushlight._types.promotion import default_dtype

__all__: list[str] = []

T = SPACES["torch"]


_AREAS = (
    "(y: Tensor, x: Tensor, *, dim: int = -1) -> Tensor",
    "(y: Tensor, *, dx: Number = 1, dim: int = -1) -> Tensor",
)


@composite("trapezoid", aliases=("trapz",), refuses="b", cached=True)
@forms(*_AREAS)
def trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral of y along dim by trapezoids, at places x or a distance dx apart."""
    return _areas(y, x, dx, dim).sum(dim)


@composite("cumulative_trapezoid", refuses="b", cached=True)
@forms(*_AREAS)
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The running integral of y along dim by trapezoids."""
    return _areas(y, x, dx, dim).cumsum(dim)


def _areas(y: Tensor, x: Any, dx: Any, dim: int) -> Any:
    at = wrap_dim(dim, y._spec.ndim)
    if not y._spec.ndim:
        raise IndexError("Dimension specified as 0 but tensor has no dimensions")
    size = y._spec.shape[at]
    if size == 0:
        return y
    later, earlier = y.narrow(at, 1, size - 1), y.narrow(at, 0, size - 1)
    if x is None:
        if isinstance(dx, (bool, complex)):
            raise RuntimeError("trapezoid: Currently, we only support dx as a real number.")
        return (later + earlier) * (0.5 * (1.0 if dx is None else dx))
    if x._spec.ndim == 1:
        gaps = function_of("diff")(x, 1, 0)
        if x._spec.shape[0] != size:
            raise RuntimeError("trapezoid: There must be one `x` value for each sample point")
        gaps = gaps.reshape([-1 if d == at else 1 for d in range(y._spec.ndim)])
    else:
        x = x.reshape((1,) * (y._spec.ndim - x._spec.ndim) + tuple(x._spec.shape))
        gaps = function_of("diff")(x, 1, at)
    return (later + earlier) * gaps / 2.0


@composite("gradient", refuses="bu", cached=True)
def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """Slopes along dims by central differences, one-sided at the ends (of order 1 or 2)."""
    ndim = input._spec.ndim
    dims = range(ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    dims = [wrap_dim(d, ndim) for d in dims]
    if len(set(dims)) != len(dims):
        raise RuntimeError(
            f"dim {next(d for d in dims if dims.count(d) > 1)} appears multiple times in the list of dims"
        )
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    if isinstance(spacing, Tensor) and spacing._spec.ndim:
        raise TypeError(
            "gradient(): argument 'spacing' must be a number, a tensor without dims or a tuple of Tensors, not a tensor with dims"
        )
    if isinstance(spacing, Tensor) or spacing is None or isinstance(spacing, (int, float, complex)):
        gaps: list[Any] = [1.0 if spacing is None else spacing] * len(dims)
    else:
        gaps = list(spacing)
    if len(gaps) != len(dims):
        raise RuntimeError(
            f"torch.gradient expected spacing to be unspecified, a scalar, or a list of length {len(dims)}, got {len(gaps)}"
        )
    for d in dims:
        if input._spec.shape[d] <= edge_order:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    x = input if input.is_floating_point() or input.is_complex() else input.to(default_dtype())
    return tuple(_slope_along(x, d, gap, edge_order) for d, gap in zip(dims, gaps, strict=True))


def _slope_along(x: Any, d: int, gap: Any, edge_order: int) -> Any:
    size = x._spec.shape[d]

    def part(start: int, length: int) -> Any:
        return x.narrow(d, start, length)

    if isinstance(gap, Tensor) and gap._spec.ndim:
        shape = [-1 if i == d else 1 for i in range(x._spec.ndim)]
        steps = function_of("diff")(gap, 1, 0).reshape(shape)
        a, b = steps.narrow(d, 0, size - 2), steps.narrow(d, 1, size - 2)
        middle = (
            part(0, size - 2) * (-b / (a * (a + b)))
            + part(1, size - 2) * ((b - a) / (a * b))
            + part(2, size - 2) * (a / (b * (a + b)))
        )
        ends = [steps.narrow(d, i, 1) for i in (0, min(1, size - 2), size - 2, max(size - 3, 0))]
    else:
        middle = (part(2, size - 2) - part(0, size - 2)) / (2 * gap)
        ends = [gap, gap, gap, gap]
    if edge_order == 1:
        first = (part(1, 1) - part(0, 1)) / ends[0]
        last = (part(size - 1, 1) - part(size - 2, 1)) / ends[2]
    else:
        first = _second_order(part(0, 1), part(1, 1), part(2, 1), ends[0], ends[1])
        last = -_second_order(part(size - 1, 1), part(size - 2, 1), part(size - 3, 1), ends[2], ends[3])
    return T["cat"]([first, middle, last], d)


def _second_order(y0: Any, y1: Any, y2: Any, a: Any, b: Any) -> Any:
    return y0 * (-(2 * a + b) / (a * (a + b))) + y1 * ((a + b) / (a * b)) + y2 * (-a / (b * (a + b)))
