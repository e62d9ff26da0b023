"""Copies, fills and casts, and the basic-index view: operators that the engine itself uses."""

from __future__ import annotations

from typing import Any

from rushlight._base.errors import warn_once
from rushlight._ops.bodies import is_weak, like_input
from rushlight._ops.table import operator, view
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, DType
from rushlight._types.layout import channels_last_strides, contiguous_strides

__all__ = ["IMAGINARY", "basic_index", "clone_to", "copy", "fill", "to_dtype", "zero"]

IMAGINARY = "Casting complex values to real discards the imaginary part"
FORMATS = {
    "contiguous_format": contiguous_strides,
    "channels_last": channels_last_strides,
    "channels_last_3d": channels_last_strides,
}


@operator("clone_core(Tensor input) -> Tensor", spaces=(), method=False, like=like_input, node="CloneBackward0")
def clone(x: Any) -> Any:
    """out[i] = x[i]: a copy with the memory order of its source."""
    return x


@operator("clone_contiguous(Tensor input) -> Tensor", spaces=(), method=False, node="CloneBackward0")
def clone_contiguous(x: Any) -> Any:
    """A row-major copy."""
    return x


@operator("reshape_copy(Tensor input, int[] size) -> Tensor", spaces=(), method=False, node="UnsafeViewBackward0")
def reshape_copy(x: Any, size: Any) -> Any:
    """out.flat[i] = x.flat[i]: a row-major copy under another shape."""
    return prim.reshape(x, shape=tuple(size))


def _last(shape: Any, specs: Any) -> Any:
    return channels_last_strides(shape)


@operator("clone_channels_last(Tensor input) -> Tensor", spaces=(), method=False, like=_last, node="CloneBackward0")
def clone_to(x: Any) -> Any:
    """out[i] = x[i]: a copy with channels innermost in memory."""
    return x


@operator(
    "to_dtype(Tensor input, dtype dtype) -> Tensor", spaces=(), method=False, like=like_input, node="ToCopyBackward0"
)
def to_dtype(x: Any, dtype: DType) -> Any:
    """out[i] = dtype(x[i]): a copy with another dtype, in the memory order of its source."""
    if x.dtype.is_complex and not (dtype.is_complex or dtype is BOOL):
        warn_once(IMAGINARY)
    return build.convert(x, dtype)


@operator(
    "copy(Tensor input, Tensor src, bool non_blocking=False) -> Tensor",
    spaces=(),
    method=False,
    inplace=True,
    numbers=("src",),
    node="CopyBackwards",
    tags=("fits",),
)
def copy(x: Any, source: Any, non_blocking: bool) -> Any:
    """out[i] = source[i] in the shape and dtype of `input`; `copy_` writes it there."""
    return build.broadcast_to(build.convert(source, x.dtype), x.shape)


@copy.gradient
def _(ct: Any, out: Any, x: Any, source: Any, non_blocking: bool) -> Any:
    return build.zeros_like(x), build.convert(build.sum_to(ct, source.shape), source.dtype)


@operator(
    "fill(Tensor input, Tensor value) -> Tensor",
    like="operands",
    inplace=True,
    method=False,
    numbers=("value",),
    tags=("fits",),
)
def fill(x: Any, value: Any) -> Any:
    """Every element set to `value` (a number or a 0-dim tensor)."""
    if value.shape != ():
        raise RuntimeError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {len(value.shape)} dimensions."
        )
    if is_weak(value) and value.dtype.is_complex and not (x.dtype.is_complex or x.dtype is BOOL):
        raise RuntimeError(f"value cannot be converted to type {x.dtype.name} without overflow")
    return build.broadcast_to(build.convert(value, x.dtype), x.shape)


@fill.gradient
def _(ct: Any, out: Any, x: Any, value: Any) -> Any:
    return build.zeros_like(x), build.total(ct, tuple(range(len(ct.shape))))


@operator(
    "zero(Tensor input) -> Tensor", spaces=(), like="operands", inplace=True, method=False, inplace_spaces=("torch",)
)
def zero(x: Any) -> Any:
    """out[i] = 0, shaped like the input."""
    return build.zeros_like(x)


@zero.gradient
def _(ct: Any, out: Any, x: Any) -> Any:
    return build.zeros_like(x)


def _index_node(input: Any, index: Any) -> str:
    """PyTorch applies one view operator per item; the last one names the node."""
    names = {"i": "SelectBackward0", "s": "SliceBackward0", "n": "UnsqueezeBackward0"}
    for item in reversed(index):
        if item[0] in names and item != ("s", None, None, 1):
            return names[item[0]]
    return "AliasBackward0"


def _index_strides(spec: Any, index: Any) -> list[int]:
    """PyTorch's strides: item after item, so that a new dim spans the dims after it."""
    strides, dim = [], 0
    for item in index:
        if item[0] == "n":
            strides.append(spec.shape[dim] * spec.strides[dim] if dim < len(spec.shape) else 1)
            continue
        if item[0] == "s":
            strides.append(spec.strides[dim] * item[3])
        dim += 1
    return strides


@view(
    "basic_index(Tensor input, any index) -> Tensor", spaces=(), method=False, node=_index_node, strides=_index_strides
)
def basic_index(x: Any, index: Any) -> Any:
    """`x[index]` for ints, slices and None.

    `index` has one item per dim of the input, and ("n",) for new ones: ("i", k) takes one index and drops the dim,
    ("s", start, stop, step) a range; a slice without bounds is ("s", None, None, 1).
    """
    starts, stops, steps, shape = [], [], [], []
    dim = 0
    for item in index:
        if item[0] == "n":
            shape.append(1)
            continue
        size = x.shape[dim]
        if item[0] == "i":
            starts.append(item[1])
            stops.append(item[1] + 1)
            steps.append(1)
        else:
            start, stop, step = (0, size, 1) if item[1] is None else item[1:]
            stop = max(start, stop)
            starts.append(start)
            stops.append(stop)
            steps.append(step)
            shape.append(-(-(stop - start) // step))
        dim += 1
    if any(starts) or stops != list(x.shape) or any(s != 1 for s in steps):
        x = prim.slice(x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps))
    return build.reshape(x, shape)
