"""Operators that move elements about: reshape, transpose, join, cut, pad, repeat; and tensors from nothing."""

from __future__ import annotations

import math
from typing import Any

import rushlight as torch
from rushlight.onnx.importing.operators.sizes import bounds
from rushlight.onnx.importing.table import Numbers, Value, operator
from rushlight.onnx.importing.values import Host, Narrow, constant, dtype_of, numpy, tensor

__all__ = ["as_list", "padded"]


def as_list(numbers: Any) -> list[Any]:
    """A number or a list of them as a list."""
    return list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]


def axes_of(axes: Any, rank: int) -> list[int]:
    """Axes as sorted positions; out of range or twice is an error."""
    found = [axis + rank if axis < 0 else axis for axis in as_list(axes)]
    if any(not 0 <= axis < rank for axis in found) or len(set(found)) != len(found):
        raise ValueError(f"axes {axes} do not fit {rank} dims")
    return sorted(found)


@operator("Reshape", moves=True)
def reshape_by_attribute(x: Any, *, shape: list[int], consumed_inputs: Any = None) -> Any:
    return reshape(x, shape)


@operator("Reshape", since=5, moves=True)
def reshape(x: Value, shape: Numbers, *, allowzero: int = 0) -> Value:
    """Zeros in the shape keep the input's size, unless `allowzero`."""
    sizes = as_list(shape)
    if not allowzero:
        sizes = [x.shape[i] if size == 0 else size for i, size in enumerate(sizes)]
    return x.reshape(sizes) if isinstance(x, numpy.ndarray) else tensor(x).reshape(sizes)


@operator("Flatten", moves=True)
def flatten(x: Any, *, axis: int = 1) -> Any:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Transpose", moves=True)
def transpose(x: Value, *, perm: list[int] | None = None) -> Value:
    x = tensor(x)
    order = perm if perm is not None else list(range(x.ndim))[::-1]
    return x.transpose(order) if isinstance(x, numpy.ndarray) else x.permute(order)


@operator("Squeeze", moves=True)
def squeeze_by_attribute(x: Any, *, axes: list[int] | None = None) -> Any:
    return squeeze(x, axes)


@operator("Squeeze", since=13, moves=True)
def squeeze(x: Value, axes: Numbers = None) -> Value:
    x = tensor(x)
    gone = [i for i, size in enumerate(x.shape) if size == 1] if axes is None else axes_of(axes, x.ndim)
    if any(x.shape[i] != 1 for i in gone):
        raise ValueError(f"axes {axes} of shape {tuple(x.shape)} are not all of size 1")
    return x.reshape([size for i, size in enumerate(x.shape) if i not in gone])


@operator("Unsqueeze", moves=True)
def unsqueeze_by_attribute(x: Any, *, axes: list[int]) -> Any:
    return unsqueeze(x, axes)


@operator("Unsqueeze", since=13, moves=True)
def unsqueeze(x: Value, axes: Numbers) -> Value:
    x = tensor(x)
    sizes = list(x.shape)
    for axis in axes_of(axes, x.ndim + len(as_list(axes))):
        sizes.insert(axis, 1)
    return x.reshape(sizes)


@operator("Concat", moves=True)
def concat(*xs: Value, axis: int = 1) -> Value:
    if isinstance(xs[0], numpy.ndarray):
        return numpy.concatenate(xs, axis)
    return torch.cat([tensor(x) for x in xs], axis)


# ***** cutting *****


@operator("Slice", moves=True)
def slice_by_attributes(x: Any, *, starts: list[int], ends: list[int], axes: list[int] | None = None) -> Any:
    return slice_(x, starts, ends, axes)


@operator("Slice", since=10, moves=True)
def slice_(x: Value, starts: Numbers, ends: Numbers, axes: Numbers = None, steps: Numbers = None) -> Value:
    x = tensor(x)
    starts, ends = as_list(starts), as_list(ends)
    axes = range(len(starts)) if axes is None else as_list(axes)
    steps = [1] * len(starts) if steps is None else as_list(steps)
    index, flipped = [slice(None)] * x.ndim, []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise ValueError("a step of a slice is 0")
        part = bounds(start, end, step, x.shape[axis])
        if step < 0:
            flipped.append((axis, part))
        else:
            index[axis] = part
    if isinstance(x, numpy.ndarray):
        for axis, part in flipped:
            index[axis] = part
        return x[tuple(index)]
    x = x[tuple(index)]
    for axis, part in flipped:
        chosen = range(x.shape[axis])[part]
        x = torch.index_select(x, axis, torch.tensor(list(chosen), dtype=torch.int64))
    return x


def _sizes_of_parts(x: Any, axis: int, split: Any, parts: int) -> list[int]:
    if split is not None:
        return as_list(split)
    size = -(-x.shape[axis] // parts)
    return [max(0, min(size, x.shape[axis] - i * size)) for i in range(parts)]


@operator("Split", moves=True)
def split_by_attribute(
    x: Any, sizes: Numbers = None, *, axis: int = 0, split: list[int] | None = None, outputs: list[bool]
) -> Any:
    return tuple(torch.split(x, _sizes_of_parts(x, axis, split if sizes is None else sizes, len(outputs)), axis))


@operator("Split", since=13, moves=True)
def split(x: Any, sizes: Numbers = None, *, axis: int = 0, num_outputs: int | None = None, outputs: list[bool]) -> Any:
    parts = num_outputs or len(outputs)
    return tuple(torch.split(x, _sizes_of_parts(x, axis, sizes, parts), axis))


@operator("CenterCropPad", since=18)
def center_crop_pad(x: Any, shape: Numbers, *, axes: list[int] | None = None) -> Any:
    """Cut from both ends, or pad both ends with zeros, until the axes have their sizes."""
    axes = list(range(x.ndim)) if axes is None else axes
    for axis, size in zip(axes, as_list(shape), strict=True):
        here = x.shape[axis]
        if size < here:
            x = x.narrow(axis, (here - size) // 2, size)
        elif size > here:
            before = (size - here) // 2
            x = padded(x, {axis % x.ndim: (before, size - here - before)}, "constant", 0)
    return x


# ***** padding and repeating *****

_WIDEST = 1 << 24  # of pads that copy elements


def padded(x: Any, widths: dict[int, tuple[int, int]], mode: str, value: Any) -> Any:
    """Pad axes by (before, after); negative widths cut."""
    for axis, (before, after) in widths.items():
        if before < 0 or after < 0:
            cut = max(0, -before)
            x = x.narrow(axis, cut, x.shape[axis] - cut - max(0, -after))
    widths = {axis: (max(0, a), max(0, b)) for axis, (a, b) in widths.items() if a > 0 or b > 0}
    if not widths:
        return x
    if mode == "constant":
        flat = [width for axis in reversed(range(min(widths), x.ndim)) for width in widths.get(axis, (0, 0))]
        return torch.nn.functional.pad(x, flat, value=value)
    if any(before + after > _WIDEST for before, after in widths.values()):
        raise ValueError(f"pads {list(widths.values())} in mode {mode!r}")
    for axis, (before, after) in widths.items():
        indices = [_source(i, x.shape[axis], mode) for i in range(-before, x.shape[axis] + after)]
        x = torch.index_select(x, axis, torch.tensor(indices))
    return x


def _source(index: int, size: int, mode: str) -> int:
    if mode == "edge":
        return min(max(index, 0), size - 1)
    if mode == "wrap":
        return index % size
    if mode != "reflect":
        raise ValueError(f"mode of Pad is constant, reflect, edge or wrap, not {mode!r}")
    period = max(1, 2 * (size - 1))
    index %= period
    return index if index < size else period - index


@operator("Pad")
def pad_by_attributes(
    x: Any,
    *,
    pads: list[int] | None = None,
    paddings: list[int] | None = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Any:
    return pad(x, pads if pads is not None else paddings, value, mode=mode)


@operator("Pad", since=11)
def pad(x: Any, pads: Numbers, value: Numbers = None, axes: Numbers = None, *, mode: str = "constant") -> Any:
    axes = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in as_list(axes)]
    if len(pads) != 2 * len(axes):
        raise ValueError(f"{len(pads)} pads for {len(axes)} axes")
    widths = {axis: (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)}
    value = value[0] if isinstance(value, list) else value
    return padded(x, widths, mode, 0 if value is None else value)


@operator("Expand", since=8, moves=True)
def expand(x: Value, shape: Numbers) -> Value:
    x = tensor(x)
    sizes = numpy.broadcast_shapes(tuple(x.shape), tuple(as_list(shape)))
    return numpy.broadcast_to(x, sizes) if isinstance(x, numpy.ndarray) else x.expand(sizes)


@operator("Tile")
def tile_old(x: Any, tiles: Numbers, axis: Numbers) -> Any:
    repeats = [1] * x.ndim
    repeats[as_list(axis)[0]] = as_list(tiles)[0]
    return torch.tile(x, repeats)


@operator("Tile", since=6, moves=True)
def tile(x: Any, repeats: Numbers) -> Any:
    return torch.tile(x, as_list(repeats))


@operator("ReverseSequence", since=10)
def reverse_sequence(x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    """Turn round the first `lengths[b]` steps of each item of a batch."""
    time, batch = x.shape[time_axis], x.shape[batch_axis]
    steps = torch.arange(time).reshape(time, 1)
    lengths = lengths.reshape(1, batch)
    chosen = torch.where(steps < lengths, lengths - 1 - steps, steps)
    if time_axis > batch_axis:
        chosen = chosen.T
    sizes = [1] * x.ndim
    sizes[time_axis], sizes[batch_axis] = time, batch
    return torch.gather(x, time_axis, chosen.reshape(sizes).expand(x.shape))


@operator("DepthToSpace")
def depth_to_space(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b, depth = blocksize, c // blocksize**2
    if mode == "DCR":
        return x.reshape(n, b, b, depth, h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, depth, h * b, w * b)
    return x.reshape(n, depth, b, b, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, depth, h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(x: Any, *, blocksize: int, mode: str = "DCR") -> Any:
    n, c, h, w = x.shape
    b = blocksize
    parts = x.reshape(n, c, h // b, b, w // b, b)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return parts.permute(order).reshape(n, c * b * b, h // b, w // b)


@operator("Trilu", since=14)
def trilu(x: Any, k: Numbers = 0, *, upper: int = 1) -> Any:
    k = as_list(k)[0]
    k = min(max(k, -(2**31)), 2**31)
    return torch.triu(x, k) if upper else torch.tril(x, k)


# ***** tensors from nothing *****


@operator("Constant")
def constant_operator(
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Any:
    if value_float is not None or value_floats is not None:
        return constant(torch.tensor(value_float if value_floats is None else value_floats, dtype=torch.float32))
    if value_int is not None or value_ints is not None:
        return constant(torch.tensor(value_int if value_ints is None else value_ints, dtype=torch.int64))
    if value_string is not None or value_strings is not None:
        return numpy.array(value_string if value_strings is None else value_strings, dtype=object)
    if value is None and sparse_value is None:
        raise ValueError("Constant has no value")
    return sparse_value if value is None else value


@operator("ConstantOfShape", since=9)
def constant_of_shape(shape: Numbers, *, value: Any = None) -> Any:
    sizes = as_list(shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"a size of {sizes} is negative")
    if value is None:
        return torch.zeros(sizes)
    if isinstance(value, Narrow):
        return Narrow(value.data.reshape(()).expand(sizes), value.number)
    plain = tensor(value)
    if len(sizes) == 1 and sizes[0] <= 16 and plain.dtype == torch.int64 and isinstance(value, Host):
        return Host(value.items * sizes[0])
    return torch.full(sizes, plain.reshape(()).item(), dtype=plain.dtype)


@operator("EyeLike", since=9)
def eye_like(x: Any, *, dtype: int | None = None, k: int = 0) -> Any:
    rows, columns = x.shape
    kind = x.dtype if dtype is None else dtype_of(dtype)
    return (torch.arange(columns)[None, :] - torch.arange(rows)[:, None] == k).to(kind)


@operator("Range", since=11)
def range_(start: Any, limit: Any, delta: Any) -> Any:
    """start, start + delta, ... below the limit, in the operands' type."""
    first, last, step = start.item(), limit.item(), delta.item()
    count = max(math.ceil((last - first) / step), 0)
    if not start.is_floating_point():
        return torch.arange(first, first + count * step, step, dtype=start.dtype) if count else start.new_empty(0)
    return torch.arange(count).to(start.dtype) * delta + start


@operator("OneHot", since=9)
def one_hot(indices: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    """Of `values` the second where the index says so, elsewhere the first."""
    count = int(depth.reshape(-1)[0].item())
    axis = axis + indices.ndim + 1 if axis < 0 else axis
    wanted = indices.to(torch.int64)
    wanted = torch.where(wanted < 0, wanted + count, wanted).unsqueeze(axis)
    steps = torch.arange(count).reshape(count, *[1] * (indices.ndim - axis))
    return torch.where(wanted == steps, values[1], values[0])
