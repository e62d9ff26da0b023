"""Resizing of signals, images and volumes: every result element is a weighted sum of a few elements along each spatial
dim.

Element i of the result is at input coordinate (i + 1/2) step - 1/2, or i step with aligned corners; `step` is the
input's size by the output's (or one by the scale that the user gave).  The steps are arguments of the kernels, so one
kernel serves every scale.  With antialiasing the filter is as wide as a step, as in Pillow.  uint8 images are resized
in integers, as in Pillow too: weights of 16 bits, width before height, rounded in between.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._ops.bodies import CPP_NAME
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import FLOAT32, FLOAT64, INT64, UINT8
from rushlight._types.symbols import as_double

__all__ = ["mixed"]


class Filter(NamedTuple):
    """A kernel of convolution: its width in elements and its values."""

    width: int
    value: Callable[[Any], Any]


def _triangle(x: Any) -> Any:
    size = prim.abs(x)
    return build.select(size < 1.0, 1.0 - size, 0.0)


def _cubic(a: float) -> Callable[[Any], Any]:
    """R. G. Keys' cubic convolution (IEEE Trans.  ASSP 29, 1981), with its free parameter."""

    def value(x: Any) -> Any:
        size = prim.abs(x)
        near = ((a + 2.0) * size - (a + 3.0)) * size * size + 1.0
        far = ((size - 5.0) * size + 8.0) * size * a - 4.0 * a
        return build.select(size < 1.0, near, build.select(size < 2.0, far, 0.0))

    return value


def _sinc(x: Any) -> Any:
    zero = build.eq(x, 0.0)
    angle = build.select(zero, 1.0, x * math.pi)
    return build.select(zero, 1.0, prim.sin(angle) / angle)


def _lanczos(x: Any) -> Any:
    """C. Lanczos' window over three lobes."""
    return build.select(prim.abs(x) < 3.0, _sinc(x) * _sinc(x * (1.0 / 3.0)), 0.0)


def _filter(mode: str, antialias: bool) -> Filter:
    if mode == "bicubic":
        return Filter(4, _cubic(-0.5 if antialias else -0.75))
    return Filter(6, _lanczos) if mode == "lanczos" else Filter(2, _triangle)


# ***** coordinates and weights *****


def _iota(count: int, dtype: Any) -> Any:
    return build.convert(prim.iota(shape=(count,), dim=0, dtype=INT64), dtype)


def _inside(coordinate: Any, size: int) -> Any:
    """Integer coordinates clamped to the nearest element."""
    index = build.convert(coordinate, INT64)
    index = build.select(index < 0, 0, index)
    return build.select(index > size - 1, size - 1, index)


def _read(x: Any, dim: int, index: Any) -> Any:
    """Elements of x along `dim`; the dims of `index` replace it."""
    others = [d for d in range(len(x.shape)) if d != dim]
    elements = prim.index(build.transpose(x, (dim, *others)), index)
    k = len(index.shape)
    behind = list(range(k, k + len(others)))
    return build.transpose(elements, (*behind[:dim], *range(k), *behind[dim:]))


def _along(weights: Any, x: Any, dim: int) -> Any:
    """Weights for the elements of dim (and the next ones, if they have more dims)."""
    ndim, k = len(x.shape), len(weights.shape)
    return build.broadcast_to(
        build.reshape(weights, (1,) * dim + tuple(weights.shape) + (1,) * (ndim - dim - k)), x.shape
    )


def _nearest(size: int, out: int, step: Any, mode: str, dtype: Any) -> Any:
    """The only element of each result."""
    at = _iota(out, FLOAT64 if dtype is FLOAT64 else FLOAT32)
    return _inside(prim.floor((at + 0.5 if mode == "nearest-exact" else at) * step), size)


def _repeated(x: Any, dim: int, times: int) -> Any:
    """Each element along `dim` several times."""
    shape = (*x.shape[: dim + 1], times, *x.shape[dim + 1 :])
    spread = prim.broadcast(x, shape=shape, dims=tuple(d for d in range(len(shape)) if d != dim + 1))
    return build.reshape(spread, (*x.shape[:dim], times * x.shape[dim], *x.shape[dim + 1 :]))


def _few(size: int, out: int, step: Any, mode: str, align: bool, dtype: Any) -> list[tuple[Any, Any]]:
    """Without antialiasing: (index, weight) of two or four elements, the border repeated outside."""
    at = _iota(out, FLOAT64 if dtype is FLOAT64 else FLOAT32)
    coordinate = at * step if align else (at + 0.5) * step - 0.5
    if mode == "linear":
        coordinate = build.select(coordinate < 0.0, 0.0, coordinate)
    first = prim.floor(coordinate)
    low, share = _inside(first, size), coordinate - first
    if mode == "linear":
        ahead = build.select(low < size - 1, low + 1, low)
        return [(low, 1.0 - share), (ahead, share)]
    value = _cubic(-0.75)
    return [(_inside(first + float(k), size), value(share - float(k))) for k in (-1, 0, 1, 2)]


def _stacked(rows: Sequence[Any]) -> Any:
    return prim.cat(*(build.expand_dims(row, (0,)) for row in rows), dim=0)


def _window(
    size: int, out: int, step: Any, taps: int, kind: Filter, align: bool, antialias: bool, dtype: Any
) -> tuple[Any, Any]:
    """(indices, weights) of the elements of each result; both [out, taps]."""
    half = 0.5 - (0.5 if align and not antialias else 0.0)
    centre = (_iota(out, dtype) + half) * step
    wide = (
        build.select(build.full((out,), 1.0, dtype) * step > 1.0, build.full((out,), 1.0, dtype) * step, 1.0)
        if antialias
        else None
    )
    reach = kind.width * 0.5 if wide is None else wide * (kind.width * 0.5)
    shift = 1.0 - half
    first = prim.floor(centre - reach + shift)
    grid = (out, taps)
    column = build.broadcast_to(build.reshape(_iota(taps, dtype), (1, taps)), grid)

    def rows(x: Any) -> Any:
        return build.broadcast_to(build.reshape(x, (out, 1)), grid)

    begin = build.select(first < 0.0, 0.0, first)
    if wide is not None:
        end = prim.floor(centre + reach + shift)
        end = build.select(end > as_double(size), as_double(size), end)
        value = kind.value((column + rows(begin) - rows(centre) + 0.5) / rows(wide))
        weights = build.select(rows(begin) + column < rows(end), value, 0.0)
        weights = weights / rows(prim.sum(weights, dims=(1,)))
        return _inside(rows(begin) + column, size), weights
    # the border counts as often as taps fall outside
    begin = build.convert(_inside(first, size), dtype)
    weights = build.zeros_like(column)
    for k in range(taps):
        value = kind.value(first + float(k) - centre + half)
        stands = build.convert(_inside(first + float(k), size), dtype)
        weights = weights + build.select(build.eq(rows(stands), rows(begin) + column), rows(value), 0.0)
    return _inside(rows(begin) + column, size), weights


def mixed(x: Any, tables: dict[int, tuple[Any, Any]]) -> Any:
    """x with some spatial dims replaced by weighted sums along them, the last dim first; the tables are [taps, result]."""
    shape, dims = x.shape, sorted(tables, reverse=True)
    while dims:
        last = dims[0] == len(shape) - 1
        taken = dims[: 2 if last and dims[1:2] == [dims[0] - 1] else 1]
        dims = dims[len(taken) :]
        apart = len(shape) - 4  # more dims, or fewer, than the primitive takes
        flat = {-1: (*shape[:2], 1, shape[-1]), 0: shape}.get(apart) or (
            (shape[0], shape[1] * shape[2], *shape[3:]) if taken[0] > 2 else (*shape[:3], shape[3] * shape[4])
        )
        last_dims = (2,) if apart == 1 and taken == [2] else tuple(d - apart for d in taken)
        words = [table for d in taken for table in tables[d]]
        shape = tuple(tables[d][0].shape[1] if d in taken else s for d, s in enumerate(shape))
        x = build.reshape(prim.resample(build.reshape(x, flat), *words, dims=last_dims), shape)
    return x


PRECISIONS = 22  # most bits of a weight's fraction


def _whole(x: Any, dim: int, index: Any, weights: Any) -> Any:
    """uint8: weights of 16 bits, with as many fraction bits as the greatest weight leaves."""
    top = prim.amax(weights, dims=(0, 1))
    bits = build.full((), 0, INT64)
    for k in range(PRECISIONS):
        bits = bits + build.convert(prim.floor(top * float(2 << k) + 0.5) < float(1 << 15), INT64)
    bits = build.broadcast_to(bits, weights.shape)
    unit = prim.exp2(build.convert(bits, FLOAT64))
    rounded = build.convert(
        prim.trunc(weights * unit + build.select(weights < 0.0, build.full_like(weights, -0.5), 0.5)), INT64
    )
    part = _read(build.convert(x, INT64), dim, index)
    total = prim.sum(part * _along(rounded, part, dim), dims=(dim + 1,))
    bits = build.broadcast_to(build.reshape(prim.amax(bits, dims=(0, 1)), (1,) * len(total.shape)), total.shape)
    half = prim.shift_left(build.full_like(bits, 1), bits - 1)
    value = prim.shift_right(total + half, bits)
    value = build.select(value < 0, 0, build.select(value > 255, 255, value))
    return build.convert(value, UINT8)


# ***** the operator *****


def _node(**given: Any) -> str:
    names = {
        "linear": ("Linear1D", "Bilinear2D", "Trilinear3D"),
        "bicubic": ("", "Bicubic2D", ""),
        "lanczos": ("", "Lanczos2D", ""),
    }
    spatial = len(given["input"].shape) - 2
    mode = given["mode"]
    if mode in names:
        return f"Upsample{names[mode][spatial - 1]}{'Aa' if given['antialias'] is True else ''}Backward0"
    return f"Upsample{'NearestExact' if mode == 'nearest-exact' else 'Nearest'}{spatial}DBackward0"


@operator("upsample(Tensor input, int[] size, int[] taps, Scalar first, Scalar second, Scalar third, str mode, bool align_corners, bool antialias) "
          "-> Tensor", promote="opmath", promote_over=("input",), spaces=(), method=False, like="image", node=_node,
          tags=("sized",))  # fmt: skip
def upsample(
    x: Any,
    size: Sequence[int],
    taps: Sequence[int],
    first: Any,
    second: Any,
    third: Any,
    mode: str,
    align_corners: bool,
    antialias: bool,
) -> Any:
    """`input` (N, C, *) with its spatial dims resized: out[i] = sum over k of w[i, k] input[j(i, k)] along each of
    them.

    `first`, `second`, `third` are the steps from element to element; `taps` is for each dim the most elements of a
    result if the filter's width depends on the step, else 0.  For the nearest element it is the number of repetitions
    of each, or 0 if they differ.
    """
    if not x.dtype.is_floating_point and (x.dtype is not UINT8 or (mode == "linear" and 0 in taps)):
        raise NotImplementedError(f"\"upsample_{mode}{len(size)}d\" not implemented for '{CPP_NAME[x.dtype.name]}'")
    tables: dict[int, tuple[Any, Any]] = {}
    for k in reversed(range(len(size))):
        dim, out, step = k + 2, size[k], (first, second, third)[k]
        if mode.startswith("nearest") and taps[k]:
            x = _repeated(x, dim, taps[k])
            continue
        if mode.startswith("nearest"):
            index = _nearest(x.shape[dim], out, step, mode, x.dtype)
            if x.dtype is UINT8:
                x = _read(x, dim, index)
            else:
                tables[dim] = build.expand_dims(index, (0,)), build.full((1, out), 1, x.dtype)
            continue
        if taps[k] == 0:
            rows = _few(x.shape[dim], out, step, mode, align_corners, x.dtype)
            tables[dim] = (
                _stacked([index for index, _ in rows]),
                _stacked([build.convert(weight, x.dtype) for _, weight in rows]),
            )
            continue
        whole = x.dtype is UINT8
        if whole and out == x.shape[dim]:
            continue
        dtype = FLOAT64 if whole else x.dtype
        index, weights = _window(
            x.shape[dim], out, step, taps[k], _filter(mode, antialias), align_corners, antialias, dtype
        )
        if whole:
            x = _whole(x, dim, index, weights)
        else:
            tables[dim] = build.transpose(index, (1, 0)), build.transpose(weights, (1, 0))
    return mixed(x, tables)
