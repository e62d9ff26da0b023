"""Shapes: reshape and its kin, which are views where they can be and copies where they must."""

from __future__ import annotations

import math
from typing import Any

from rushlight._engine.core import convert
from rushlight._engine.core.tensor import Tensor
from rushlight._ops.forms import forms
from rushlight._surface.registry import SPACES, composite
from rushlight._types.layout import contiguous_strides, infer_size, view_strides, wrap_dim
from rushlight._types.symbols import as_index

__all__: list[str] = []

T = SPACES["torch"]


@composite("reshape", method=True, cached=("input", "shape"), alike=True)
@forms("(input: Tensor, *shape: int) -> Tensor", "(input: Tensor, shape: Sequence[int]) -> Tensor")
def reshape(input: Tensor, *shape: Any, **kwargs: Any) -> Tensor:
    """The same elements under another shape: a view if strides allow it, else a copy."""
    if "shape" in kwargs:
        shape = (kwargs.pop("shape"),)
    target = as_shape_with_hole(shape)
    spec = input._spec
    exact = infer_size(target, spec.numel)
    if view_strides(spec.shape, spec.strides, exact) is None:
        return convert.call("reshape_copy", input, exact)
    return convert.call("view", input, target)


def as_shape_with_hole(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape that may hold one -1."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    return tuple(int(s.item()) if isinstance(s, Tensor) else as_index(s) for s in sizes)


@composite("view_as", spaces=(), method=True, cached=True)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """`view(other.shape)`."""
    return self.view(other.shape)


@composite("reshape_as", spaces=(), method=True, cached=True)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """`reshape(other.shape)`."""
    return reshape(self, other.shape)


@composite("flatten", method=True, cached=("input", "start_dim", "end_dim"), alike=True)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dims start_dim..end_dim merged into one; a view where possible, `input` itself where nothing changes."""
    shape = input._spec.shape
    first, last = wrap_dim(start_dim, len(shape)), wrap_dim(end_dim, len(shape))
    if first > last:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if not shape:
        return reshape(input, 1)
    if first == last:
        return input
    merged = -1 if input._spec.numel else math.prod(shape[first : last + 1])
    return reshape(input, (*shape[:first], merged, *shape[last + 1 :]))


@composite("ravel", method=True, cached=True)
def ravel(input: Tensor) -> Tensor:
    """One dim; a view of contiguous memory, else a copy."""
    return reshape(input.contiguous(), -1)


@composite("expand_as", spaces=(), method=True, cached=True)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """`expand(other.shape)`."""
    return self.expand(other.shape)


@composite("resize_as_")
def resize_as_(input: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`input`, with the shape of another tensor; new elements are undefined."""
    return input.resize_as_(the_template, memory_format=memory_format)


@composite("empty_permuted")
@forms("(size: Sequence[int], physical_layout: Sequence[int], *, **options: Like) -> Tensor")
def empty_permuted(size: Any, physical_layout: Any, **options: Any) -> Tensor:
    """Fresh memory whose dims lie in the order `physical_layout`, from outermost to innermost."""
    size, order = tuple(size), tuple(physical_layout)
    if len(size) == len(order) and len(set(order)) < len(order):
        raise RuntimeError("Duplicate dim not allowed")
    if len(size) != len(order) or sorted(order) != list(range(len(size))):
        raise RuntimeError(
            f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = {len(size)} "
            f"is not equal to len(physical_layout) = {len(order)}"
        )
    steps = contiguous_strides([size[d] for d in order])
    strides = [0] * len(size)
    for step, d in zip(steps, order, strict=True):
        strides[d] = step
    return T["empty_strided"](size, strides, **options)
