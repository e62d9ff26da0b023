"""Pooling.

Small windows are unrolled: one strided read for each position of the window, combined element by element in one fused
kernel.  Larger ones go through the primitive `window` and a reduction.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._ops.bodies import HALF, as_float, isnan, lowest, narrow, not_implemented, refuse, wide
from rushlight._ops.nn.resize import mixed
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import INT8, INT32, INT64
from rushlight._types.layout import image_strides, numel, restride, suggests_channels_last
from rushlight._types.symbols import as_double

__all__: list[str] = []

Ints = tuple[int, ...]
NN = ("nn.functional",)
UNROLLED = 16


# ***** geometry *****


def _ints(value: Any, n: int, name: str) -> Ints:
    items = (value,) * n if isinstance(value, int) else tuple(value)
    items = items * n if len(items) == 1 else items
    if len(items) != n:
        raise RuntimeError(f"{name} must either be a single int, or a tuple of {n} ints")
    return items


def _batched(x: Any, n: int, name: str) -> Any:
    """`x` as [N, C, *space]."""
    if len(x.shape) not in (n + 1, n + 2):
        raise RuntimeError(
            f"{name}: Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions "
            f"for input, but got: {list(x.shape)}"
        )
    if any(size == 0 for size in x.shape[-(n + 1) :]):
        raise RuntimeError(
            f"{name}: Expected input's non-batch dimensions to have positive length, but input has a shape of {list(x.shape)}"
        )
    return x if len(x.shape) == n + 2 else build.expand_dims(x, (0,))


def _unbatched(y: Any, x: Any) -> Any:
    return y if len(x.shape) == len(y.shape) else build.squeeze(y, (0,))


def as_row(shape: Ints, specs: Any) -> Ints | None:
    """Strides of a result that PyTorch pools as rows of images [N, C, 1, L]: channels last if those suggest it, else
    None (row-major)."""
    x = specs[0]
    if len(x.shape) != 3 or len(shape) != 3:
        return None
    (batch, channels, size), (outer, inner, step) = x.shape, x.strides
    if not suggests_channels_last((batch, channels, 1, size), (outer, inner, size * step, step)):
        return None
    return shape[1] * shape[2], 1, shape[1]


class _Pooling(NamedTuple):
    """The arguments of a pooling over its last dims: each an int or one for each dim (`stride` None: that of the kernel)."""

    kernel_size: Any
    stride: Any
    padding: Any
    dilation: Any
    ceil_mode: bool


def _by_x(x: Any, space: Sequence[int]) -> str:
    """Sizes of an image, its channels first: (3x8x8)."""
    return "(" + "x".join(map(str, (x.shape[-len(space) - 1], *([1] if len(space) == 1 else []), *space))) + ")"


class _Windows:
    """The geometry of a pooling's windows: sizes of the result, and the reach beyond the input on either side."""

    def __init__(self, x: Any, n: int, pooling: _Pooling, name: str) -> None:
        kernel = _ints(pooling.kernel_size, n, f"{name}: kernel_size")
        stride = pooling.stride
        stride = kernel if not stride and stride != 0 else _ints(stride, n, f"{name}: stride")
        padding = _ints(pooling.padding, n, f"{name}: padding")
        dilation = _ints(pooling.dilation, n, f"{name}: dilation")
        self.kernel, self.stride, self.padding, self.dilation = kernel, stride, padding, dilation
        self.space: Ints = tuple(x.shape[-n:])
        for k, s, p, d in zip(kernel, stride, padding, dilation, strict=True):
            if k <= 0:
                raise RuntimeError(f"kernel size should be greater than zero, but got kernel size {list(kernel)}")
            if s <= 0:
                raise RuntimeError("stride should not be zero")
            if d <= 0:
                raise RuntimeError(f"dilation should be greater than zero, but got dilation {list(dilation)}")
            if p < 0:
                raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
            if p > ((k - 1) * d + 1) // 2:
                raise RuntimeError(
                    f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={d}"
                )
        self.out: Ints = tuple(
            self._count(*g, pooling.ceil_mode) for g in zip(self.space, kernel, stride, padding, dilation, strict=True)
        )
        if any(o < 1 for o in self.out):
            raise RuntimeError(
                f"Given input size: {_by_x(x, self.space)}. Calculated output size: {_by_x(x, self.out)}. Output size is too small"
            )
        reach = [(o - 1) * s + d * (k - 1) + 1 for o, s, d, k in zip(self.out, stride, dilation, kernel, strict=True)]
        self.after: Ints = tuple(r - p - size for r, p, size in zip(reach, padding, self.space, strict=True))

    @staticmethod
    def _count(size: int, k: int, s: int, p: int, d: int, ceil_mode: bool) -> int:
        room = size + 2 * p - d * (k - 1) - 1
        count = -(-room // s) + 1 if ceil_mode else room // s + 1
        # The last window must start inside the input or its left padding.
        return count - 1 if ceil_mode and (count - 1) * s >= size + p else count

    def padded(self, x: Any, value: Any) -> Any:
        """The input padded (or cut) to the extent of the windows."""
        return build.pad(x, (0, 0, *self.padding), (0, 0, *self.after), (0,) * len(x.shape), value=value)

    def positions(self) -> Any:
        """All positions of one window."""
        return itertools.product(*map(range, self.kernel))

    def at(self, padded: Any, position: Sequence[int]) -> Any:
        """The elements at this position of every window."""
        starts = tuple(d * k for d, k in zip(self.dilation, position, strict=True))
        stops = tuple(a + (o - 1) * s + 1 for a, o, s in zip(starts, self.out, self.stride, strict=True))
        return prim.slice(padded, starts=(0, 0, *starts), stops=(*padded.shape[:2], *stops), steps=(1, 1, *self.stride))

    def windows(self, padded: Any) -> Any:
        """[N, C, *out, *kernel]."""
        n = len(self.kernel)
        return prim.window(
            padded, dims=tuple(range(2, n + 2)), size=self.kernel, stride=self.stride, dilation=self.dilation
        )

    @property
    def apart(self) -> bool:
        """Whether every element is in at most one window, without padding: then the gradient needs no sums."""
        return all(
            k == s and p == 0 and d == 1 and a <= 0
            for k, s, p, d, a in zip(self.kernel, self.stride, self.padding, self.dilation, self.after, strict=True)
        )

    def pour_back(self, windows: Any, space_shape: Ints) -> Any:
        """[N, C, *out, *kernel] summed back to the elements that they were read from."""
        n = len(self.kernel)
        shape = (*space_shape[:2], *(s + p + a for s, p, a in zip(self.space, self.padding, self.after, strict=True)))
        whole = build.unwindow(
            windows,
            shape=shape,
            dims=tuple(range(2, n + 2)),
            size=self.kernel,
            stride=self.stride,
            dilation=self.dilation,
        )
        return build.pad(
            whole, (0, 0, *(-p for p in self.padding)), (0, 0, *(-a for a in self.after)), (0,) * len(shape)
        )


# ***** the greatest of each window *****


def _first_inside(w: _Windows, shape: Ints, dtype: Any) -> Any:
    """The first position of each window that is no padding, where the greatest is if all elements are the lowest."""
    first = build.full(shape, 0, dtype)
    for i, (s, p, d) in enumerate(zip(w.stride, w.padding, w.dilation, strict=True)):
        row = prim.iota(shape=shape, dim=2 + i, dtype=INT64) if p else None
        for outside in range(0, p, d):  # this many windows begin with a position outside
            count = build.full_like(row, -(-(p - outside) // s))
            first = build.select(row < count, first + numel(w.kernel[i + 1 :]), first)
    return first


def _greatest(w: _Windows, images: Any) -> tuple[Any, Any]:
    """(values, position within the window); a NaN wins.  Positions are small numbers: saving them is cheaper than
    searching again."""
    floats, number_type = images.dtype.is_floating_point, INT8 if numel(w.kernel) <= 128 else INT32
    padded = w.padded(images, lowest(images.dtype))
    if numel(w.kernel) > UNROLLED:
        windows = w.windows(padded)
        n = len(w.kernel)
        flat = build.reshape(windows, (*windows.shape[: n + 2], numel(w.kernel)))
        best, position = prim.amax(flat, dims=(n + 2,)), build.convert(prim.argmax(flat, dim=n + 2), number_type)
        if any(w.padding):
            nothing = build.eq(best, build.full_like(best, lowest(images.dtype)))
            position = build.select(nothing, _first_inside(w, best.shape, number_type), position)
        return best, position
    best = position = None
    for number, where in enumerate(w.positions()):
        value = w.at(padded, where)
        if best is None:
            best, position = value, _first_inside(w, value.shape, number_type)
            continue
        better = value > best
        better = better | isnan(value) if floats else better
        best, position = build.select(better, value, best), build.select(better, number, position)
    return best, position


def _flat_index(w: _Windows, position: Any) -> Any:
    """Positions within windows as indices into the flattened space of the input."""
    index = None
    rest = build.convert(position, INT64)
    sizes = list(w.kernel)
    for i in range(len(sizes)):
        inner = numel(sizes[i + 1 :])
        step = prim.div_trunc(rest, build.full_like(rest, inner)) if inner > 1 else rest
        rest = prim.rem_trunc(rest, build.full_like(rest, inner)) if inner > 1 else rest
        at = prim.iota(shape=position.shape, dim=2 + i, dtype=INT64) * w.stride[i] + step * w.dilation[i] - w.padding[i]
        index = at if index is None else index * w.space[i] + at
    return index


def _max_windows(x: Any, n: int, pooling: _Pooling, name: str) -> tuple[Any, _Windows]:
    images = _batched(x, n, name)
    return images, _Windows(images, n, pooling, name)


def _declare_max(n: int) -> None:
    arguments = f"(Tensor input, int[{n}] kernel_size, int[{n}]? stride=None, int[{n}] padding=0, int[{n}] dilation=1, bool ceil_mode=False)"

    def prepare(x: Any, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[Any, _Windows]:
        refuse(x, f"max_pool{n}d", "bc")
        return _max_windows(x, n, _Pooling(size, stride, padding, dilation, ceil_mode), f"max_pool{n}d()")

    def with_indices(x: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
        images, w = prepare(x, kernel_size, stride, padding, dilation, ceil_mode)
        values, position = _greatest(w, wide(images))
        values = narrow(values, x.dtype)
        return _unbatched(values, x), _unbatched(_flat_index(w, position), x), position

    def plain(x: Any, *rest: Any) -> Any:
        if n == 1:
            refuse(x, "max_pool1d_impl", "ui")  # with indices it is one of images, which may be integers
        images, w = prepare(x, *rest)
        values, position = _greatest(w, wide(images))
        return _unbatched(narrow(values, x.dtype), x), position

    def back(ct: Any, position: Any, x: Any, *rest: Any) -> Any:
        images, w = prepare(x, *rest)
        grad = ct if len(ct.shape) == len(images.shape) else build.expand_dims(ct, (0,))
        gradient = prim.unpool(
            grad, position, shape=w.space, size=w.kernel, stride=w.stride, dilation=w.dilation, lo=w.padding
        )
        return build.reshape(gradient, x.shape)

    doc = f"The greatest element of each window over the last {n} dims."
    node = f"MaxPool{n}DWithIndicesBackward0"
    like = "image" if n > 1 else "contiguous"
    both = operator(
        f"max_pool{n}d_with_indices{arguments} -> (Tensor, Tensor)",
        name=f"max_pool{n}d_with_indices",
        spaces=("torch", *NN),
        method=False,
        node=node,
        like=like if n > 1 else as_row,
        doc=doc + " Also its index in the flattened space of the input.",
    )(with_indices)
    both.gradient(lambda cts, outs, x, *rest: back(cts[0], outs[2], x, *rest))
    one = operator(
        f"max_pool{n}d{arguments} -> Tensor",
        name=f"max_pool{n}d_values",
        spaces=(),
        method=False,
        node=node,
        like=like,
        doc=doc,
    )(plain)
    one.gradient(lambda ct, outs, x, *rest: back(ct, outs[1], x, *rest))


# ***** the mean of each window *****


def _divisor(w: _Windows, shape: Ints, dtype: Any, count_include_pad: bool, divisor_override: int | None) -> Any:
    """The number of elements that each window counts: a number, or values if windows differ."""
    if divisor_override is not None:
        return float(divisor_override)
    if all(p == 0 and a <= 0 for p, a in zip(w.padding, w.after, strict=True)):
        return as_double(numel(w.kernel))
    total = None
    for i, (k, s, p, size) in enumerate(zip(w.kernel, w.stride, w.padding, w.space, strict=True)):
        start = prim.iota(shape=shape, dim=2 + i, dtype=INT64) * s - p
        stop = prim.minimum(start + k, build.full(shape, size + p, INT64))
        if not count_include_pad:
            start, stop = (
                prim.maximum(start, build.full(shape, 0, INT64)),
                prim.minimum(stop, build.full(shape, size, INT64)),
            )
        count = stop - start
        total = count if total is None else total * count
    return build.convert(total, dtype)


def _avg_windows(x: Any, n: int, pooling: _Pooling) -> tuple[Any, _Windows]:
    return _max_windows(x, n, pooling, f"avg_pool{n}d()")


def _avg(x: Any, n: int, pooling: _Pooling, include: bool, override: int | None) -> Any:
    images, w = _avg_windows(x, n, pooling)
    if override == 0:
        raise RuntimeError("divisor must be not zero")
    padded = w.padded(wide(images), 0)
    if numel(w.kernel) <= UNROLLED:
        parts = [w.at(padded, where) for where in w.positions()]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
    else:
        windows = w.windows(padded)
        total = prim.sum(windows, dims=tuple(range(n + 2, 2 * n + 2)))
    divisor = _divisor(w, total.shape, total.dtype, include, override)
    if total.dtype.is_integer:
        number = build.full_like(total, int(divisor)) if isinstance(divisor, float) else divisor
        return _unbatched(prim.div_trunc(total, number), x)
    return _unbatched(narrow(total / divisor, x.dtype), x)


def _avg_back(ct: Any, x: Any, n: int, pooling: _Pooling, include: bool, override: int | None) -> Any:
    images, w = _avg_windows(x, n, pooling)
    grad = wide(ct if len(ct.shape) == len(images.shape) else build.expand_dims(ct, (0,)))
    share = grad / _divisor(w, grad.shape, grad.dtype, include, override)
    windows = prim.broadcast(share, shape=(*share.shape, *w.kernel), dims=tuple(range(n + 2)))
    return build.reshape(narrow(w.pour_back(windows, images.shape), x.dtype), x.shape)


def _declare_avg(n: int) -> None:
    more = ", int? divisor_override=None" if n > 1 else ""
    spaces = NN if n > 1 else ("torch", *NN)

    def body(
        x: Any,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: Any = None,
    ) -> Any:
        refuse(x, f"avg_pool{n}d", "bc")
        if n == 2 and len(x.shape) < 3:  # PyTorch notices it only when it looks for the channels
            raise IndexError(
                f"Dimension out of range (avg_pool2d() expects a 3D or 4D tensor, but got: {list(x.shape)})"
            )
        pooling = _Pooling(kernel_size, stride, padding, 1, ceil_mode)
        return _avg(x, n, pooling, count_include_pad, divisor_override)

    def rule(ct: Any, out: Any, x: Any, *arguments: Any) -> Any:
        kernel_size, stride, padding, ceil_mode, include, *override = arguments
        pooling = _Pooling(kernel_size, stride, padding, 1, ceil_mode)
        return _avg_back(ct, x, n, pooling, include, override[0] if override else None)

    operator(
        f"avg_pool{n}d(Tensor input, int[{n}] kernel_size, int[{n}]? stride=None, int[{n}] padding=0, bool ceil_mode=False, "
        f"bool count_include_pad=True{more}) -> Tensor",
        spaces=spaces,
        method=False,
        out="exact" if n > 1 else False,
        node=f"AvgPool{n}DBackward0" if n > 1 else "SqueezeBackward1",
        like=(as_row, "image", "contiguous")[n - 1],
        doc=f"The mean of each window over the last {n} dims.",
    )(body).gradient(rule)


for _n in (1, 2, 3):
    _declare_max(_n)
    _declare_avg(_n)


# ***** windows made to fit a number of results *****


def _longest(size: int, out: int) -> int:
    """The length of the longest of the windows from i size // out to ceil((i + 1) size / out).

    The remainders of i size by out are the multiples of their greatest common divisor; the longest window has the
    greatest remainder.
    """
    rest = size % out
    if not rest:
        return size // out
    return size // out + (1 if out % rest == 0 else 2)


def _target(x: Any, n: int, output_size: Any, name: str) -> tuple[Any, Ints]:
    items = tuple(output_size)
    if len(items) != n:
        raise RuntimeError(f"{name}: output_size must be {n}")
    if len(x.shape) < n + 1 and n > 1:
        raise ValueError(f"Input dimension should be at least {n + 1}")
    space = x.shape[-n:]
    sizes = tuple(space[i] if v is None else v for i, v in enumerate(items))
    if any(v < 0 for v in sizes):
        raise RuntimeError(f"elements of output_size must be greater than or equal to 0 but received {list(sizes)}")
    if len(x.shape) not in (n + 1, n + 2):
        raise RuntimeError(f"{name}: Expected {n + 1}D or {n + 2}D tensor, but got {list(x.shape)}")
    # PyTorch counts dims after the first, batch or not; means of one or two dims check only the dims that they divide
    if 0 in (space if name.startswith("adaptive_avg") and n < 3 else x.shape[1:]):
        raise RuntimeError(
            f"{name}: Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(x.shape)}"
        )
    return (x if len(x.shape) == n + 2 else build.expand_dims(x, (0,))), sizes


def _window_table(size: int, out: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Windows of two lengths along a dim: (indices [K, out], weights [K, out], number of elements of each [out]).

    K is the greater length; a window that is shorter by one counts its last element twice, half each time.
    """
    taps = _longest(size, out)
    window, tap = (prim.iota(shape=(taps, out), dim=d, dtype=INT64) for d in (1, 0))
    parts = build.full_like(window, out)
    start = prim.div_trunc(window * size, parts)
    stop = prim.div_trunc(window * size + (size + out - 1), parts)
    weights = build.select((stop - start < taps) & (tap >= taps - 2), build.full(tap.shape, 0.5, dtype), 1.0)
    row = {"starts": (0, 0), "stops": (1, out), "steps": (1, 1)}
    count = build.convert(build.reshape(prim.slice(stop, **row) - prim.slice(start, **row), (out,)), dtype)
    return prim.minimum(start + tap, stop - 1), weights, count


def _means(x: Any, sizes: Ints) -> Any:
    """Means of windows that divide the dims after the first two into so many parts: sums if they are of equal length,
    else weighted sums."""
    for dim, out in enumerate(sizes, 2):  # the first dims first: fewer elements are left of rows
        size = x.shape[dim]
        if not out:
            x = prim.slice(
                x,
                starts=(0,) * len(x.shape),
                stops=tuple(0 if d == dim else s for d, s in enumerate(x.shape)),
                steps=(1,) * len(x.shape),
            )
        elif size % out:
            index, weights, count = _window_table(size, out, x.dtype)
            x = mixed(x, {dim: (index, weights)})
            x = x / prim.broadcast(count, shape=x.shape, dims=(dim,))
        elif out != size:
            split = build.reshape(x, (*x.shape[:dim], out, size // out, *x.shape[dim + 1 :]))
            x = prim.sum(split, dims=(dim + 1,)) / as_double(size // out)
    return x


def _declare_adaptive_avg(n: int) -> None:
    name = f"adaptive_avg_pool{n}d"

    def body(x: Any, output_size: Any) -> Any:
        refuse(x, name, "buic")
        images, sizes = _target(x, n, output_size, f"{name}()")
        y = wide(images)
        if all(v == 1 for v in sizes):
            whole = prim.sum(y, dims=tuple(range(2, n + 2))) / as_double(numel(y.shape[2:]))
            y = build.reshape(whole, (*y.shape[:2], *sizes))
        else:
            y = _means(y, sizes)
        return _unbatched(narrow(y, x.dtype), x)

    operator(
        f"{name}(Tensor input, int{'?' if n > 1 else ''}[{n}] output_size) -> Tensor",
        spaces=NN if n > 1 else ("torch", *NN),
        method=False,
        node=lambda input, output_size: (
            "MeanBackward1"
            if output_size == (1,) * n
            else {1: "SqueezeBackward1", 2: "AdaptiveAvgPool2DBackward0", 3: "AdaptiveAvgPool3DBackward0"}[n]
        ),
        like=(as_row, "image", "contiguous")[n - 1],
        doc=f"Means of windows that divide the last {n} dims into `output_size` parts.",
    )(body)


def _declare_adaptive_max(n: int) -> None:
    name = f"adaptive_max_pool{n}d"

    def gathered(images: Any, sizes: Ints) -> tuple[Any, Any]:
        """([*out, *widest window, N, C] values, index in the flattened space); short windows repeat their last
        position."""
        space = images.shape[2:]
        widest = [_longest(size, out) if out else 1 for size, out in zip(space, sizes, strict=True)]
        shape = (*sizes, *widest)
        positions = []
        for i, (size, out) in enumerate(zip(space, sizes, strict=True)):
            at = prim.iota(shape=shape, dim=i, dtype=INT64)
            parts = build.full(shape, out, INT64)
            start = prim.div_trunc(at * size, parts)
            stop = prim.div_trunc((at + 1) * size + (out - 1), parts)
            positions.append(prim.minimum(start + prim.iota(shape=shape, dim=n + i, dtype=INT64), stop - 1))
        moved = build.transpose(images, (*range(2, n + 2), 0, 1))
        flat = positions[0]
        for size, position in zip(space[1:], positions[1:], strict=True):
            flat = flat * size + position
        return prim.index(moved, *positions), flat

    def body(x: Any, output_size: Any) -> Any:
        refuse(x, name, "buic")
        images, sizes = _target(x, n, output_size, f"{name}()")
        if numel(sizes) == 0 or numel(images.shape) == 0:
            shape = (*images.shape[:2], *sizes)
            return _unbatched(build.full(shape, 0, x.dtype), x), _unbatched(build.full(shape, 0, INT64), x)
        values, flat = gathered(wide(images), sizes)
        batch, channels = images.shape[:2]
        rows = build.reshape(values, (*sizes, numel(values.shape[n : 2 * n]), batch, channels))
        number = prim.argmax(rows, dim=n)
        best = prim.amax(rows, dims=(n,))
        order = (n, n + 1, *range(n))
        index = prim.gather(
            build.reshape(flat, (numel(sizes), numel(flat.shape[n:]))),
            build.reshape(number, (numel(sizes), batch * channels)),
            dim=1,
        )
        index = build.reshape(index, (*sizes, batch, channels))
        return _unbatched(narrow(build.transpose(best, order), x.dtype), x), _unbatched(
            build.transpose(index, order), x
        )

    declared = operator(
        f"{name}_with_indices(Tensor input, int{'?' if n > 1 else ''}[{n}] output_size) -> (Tensor, Tensor)",
        spaces=NN,
        method=False,
        node=f"AdaptiveMaxPool{n}DBackward0",
        like=(as_row, "image", "contiguous")[n - 1],
        doc=f"The greatest elements, and their indices, of windows that divide the last {n} dims.",
    )(body)

    declared.gradient(lambda cts, outs, x, output_size: _back_to_indices(cts[0], outs[1], x, n))


for _n in (1, 2, 3):
    _declare_adaptive_avg(_n)
    _declare_adaptive_max(_n)


# ***** norms of windows *****


def _norm_layout(shape: Ints, specs: Any, arguments: Any) -> Any:
    """The layout of the mean of the powers, which elementwise work preserves."""
    n = len(arguments[2])
    strides = (
        image_strides(shape, specs[0].shape, specs[0].strides) if n == 2 else as_row(shape, specs) if n == 1 else None
    )
    return strides and restride(shape, strides)


@operator("lp_pool_core(Tensor input, float norm_type, int[] kernel_size, int[] stride, bool ceil_mode) -> Tensor", spaces=(), method=False,
          like=_norm_layout, node="PowBackward0", tags=("laid_by_arguments",))  # fmt: skip
def lp_pool_core(x: Any, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Any:
    """The p-norm of each window."""
    n = len(kernel_size)
    if n == 3 and x.dtype in HALF:
        raise not_implemented("avg_pool3d_out_frame", x.dtype)
    x = as_float(x) if x.dtype.kind in "bui" else x
    size = wide(x)
    images, w = _avg_windows(x, n, _Pooling(kernel_size, stride, 0, 1, ceil_mode))
    raised = prim.pow(wide(images), build.full_like(size if len(size.shape) == n + 2 else wide(images), norm_type))
    windows = w.windows(w.padded(raised, 0))
    total = prim.sum(windows, dims=tuple(range(n + 2, 2 * n + 2)))
    if any(p or a > 0 for p, a in zip(w.padding, w.after, strict=True)):
        # The mean counts only elements inside, and is then scaled to the whole window.
        total = total * (as_double(numel(w.kernel)) / _divisor(w, total.shape, total.dtype, True, None))
    nothing = build.eq(total, 0.0)  # the root is steep there: the gradient of such windows is 0
    root = prim.pow(build.select(nothing, 1.0, total), build.full_like(total, 1.0 / norm_type))
    empty = 0.0 ** (1.0 / norm_type) if norm_type > 0 else math.inf
    return _unbatched(narrow(build.select(nothing, empty, root), x.dtype), x)


# ***** windows laid at random *****


def _random_starts(samples: Any, axis: int, size: int, kernel: int, out: int, dtype: Any) -> Any:
    """The starts of the windows along one axis, [N, C, out]: Graham's pseudorandom steps (2014), the last window at the
    end.

    Half types are rounded after every step, because a start depends on the last bit.
    """
    n, c = samples.shape[:2]
    shape = (n, c, out)
    rounded = lambda v: wide(build.convert(v, dtype))
    picked = prim.slice(samples, starts=(0, 0, axis), stops=(n, c, axis + 1), steps=(1, 1, 1))
    u = wide(prim.broadcast(build.reshape(picked, (n, c)), shape=shape, dims=(0, 1)))
    number = prim.iota(shape=shape, dim=2, dtype=INT64)
    if out == 1:
        return build.full(shape, size - kernel, INT64)
    alpha = rounded(build.full(shape, (size - kernel) / (out - 1), u.dtype))
    start = build.convert(rounded(rounded(build.convert(number, u.dtype) + u) * alpha), INT64)
    first = build.convert(rounded(u * alpha), INT64)
    return build.select(build.eq(number, out - 1), size - kernel, start - first)


def _declare_fractional(n: int) -> None:
    name, words = f"fractional_max_pool{n}d", ("time", "height", "width")[-n:]

    def windows(x: Any, samples: Any, kernel: Ints, sizes: Ints) -> Any:
        """Indices into the flattened space, [N, C, *out, elements of a window]."""
        space, lead = x.shape[2:], x.shape[:2]
        shape = (*lead, *sizes, *kernel)
        index = None
        for i in range(n):
            # Two axes take their samples in the order x, y; three in the order z, y, x.
            axis = n - 1 - i if n == 2 else i
            start = _random_starts(samples, axis, space[i], kernel[i], sizes[i], x.dtype)
            at = prim.broadcast(start, shape=shape, dims=(0, 1, 2 + i)) + prim.iota(
                shape=shape, dim=2 + n + i, dtype=INT64
            )
            index = at if index is None else index * space[i] + at
        return build.reshape(index, (*lead, *sizes, numel(kernel)))

    def body(x: Any, kernel_size: Any, output_size: Any, samples: Any) -> Any:
        refuse(x, name, "buic")
        images = _batched(x, n, f"{name}()")
        kernel, sizes = _ints(kernel_size, n, f"{name}: kernel_size"), _ints(output_size, n, f"{name}: output_size")
        for word, size, k, out in zip(words, images.shape[2:], kernel, sizes, strict=True):
            if out + k - 1 > size - (n == 3):  # PyTorch leaves room for one step in three dims
                raise RuntimeError(
                    f"{name}(): pool {word} {k} too large relative to input {word} {size} for {out} windows"
                )
        if samples.dtype is not x.dtype:
            raise RuntimeError("Expect _random_samples to have the same dtype as input")
        if len(samples.shape) != 3 or samples.shape[0] < images.shape[0] or samples.shape[1:] != (images.shape[1], n):
            raise RuntimeError(
                f"{name}(): expected _random_samples of shape {[*images.shape[:2], n]}, got {list(samples.shape)}"
            )
        # More samples than images are allowed: the rest is not used.
        used = prim.slice(samples, starts=(0, 0, 0), stops=(images.shape[0], *samples.shape[1:]), steps=(1, 1, 1))
        index = windows(images, used, kernel, sizes)
        flat = build.reshape(wide(images), (*images.shape[:2], numel(images.shape[2:])))
        values = build.reshape(
            prim.gather(flat, build.reshape(index, (*index.shape[:2], numel(index.shape[2:]))), dim=2), index.shape
        )
        last = n + 2
        missing = isnan(values)
        # The last NaN of a window is its maximum, else the first of the greatest.
        late = numel(kernel) - 1 - prim.argmax(prim.flip(build.convert(missing, INT32), dims=(last,)), dim=last)
        position = build.select(prim.amax(missing, dims=(last,)), late, prim.argmax(values, dim=last))
        best = prim.gather(index, build.expand_dims(position, (last,)), dim=last)
        return _unbatched(narrow(prim.amax(values, dims=(last,)), x.dtype), x), _unbatched(
            build.squeeze(best, (last,)), x
        )

    declared = operator(
        f"{name}_core(Tensor input, int[{n}] kernel_size, int[{n}] output_size, Tensor _random_samples) -> (Tensor, Tensor)",
        spaces=(),
        method=False,
        node=f"FractionalMaxPool{n}DBackward0",
        doc=f"The greatest elements, and their indices, of windows laid at random over the last {n} dims.",
    )(body)

    def rule(cts: Any, outs: Any, x: Any, kernel_size: Any, output_size: Any, samples: Any) -> Any:
        return _back_to_indices(cts[0], outs[1], x, n), None

    declared.gradient(rule)


def _back_to_indices(ct: Any, index: Any, x: Any, n: int) -> Any:
    """Add the cotangents of maxima to the elements that they came from."""
    lead, space, count = numel(x.shape[:-n]), numel(x.shape[-n:]), numel(index.shape[-n:])
    grad, at = (build.reshape(v, (lead, count)) for v in (wide(ct), index))
    zeros = build.full((lead, space), 0, grad.dtype)
    return build.reshape(narrow(prim.scatter(zeros, at, grad, dim=1, reduce="add"), x.dtype), x.shape)


for _n in (2, 3):
    _declare_fractional(_n)
