"""Sliding windows and their transpose: what convolution and pooling are made of."""

from __future__ import annotations

from itertools import product
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, floats

__all__: list[str] = []

Ints = tuple[int, ...]


def window_shape(shape: Ints, dims: Ints, size: Ints, stride: Ints, dilation: Ints) -> Ints:
    """Shape of `window`: the number of windows in place of each of dims, then the sizes of one window."""
    if not len(dims) == len(size) == len(stride) == len(dilation) or len(set(dims)) != len(dims):
        raise ValueError(f"prim.window takes as many sizes, strides and dilations as dims, got {dims}, {size}, {stride}, {dilation}")
    counts = list(shape)
    for d, k, step, gap in zip(dims, size, stride, dilation, strict=True):
        reach = gap * (k - 1) + 1
        if not 0 <= d < len(shape) or min(k, step, gap) < 1 or reach > shape[d]:
            raise ValueError(f"prim.window: no window of size {k}, stride {step}, dilation {gap} in dim {d} of {list(shape)}")
        counts[d] = (shape[d] - reach) // step + 1
    return (*counts, *size)


def _window_spec(x: Any, **p: Any) -> Aval:
    return window_shape(x.shape, **p), x.dtype


def _window_layout(
    shape: Ints, strides: Ints, offset: int, dims: Ints, size: Ints, stride: Ints, dilation: Ints
) -> tuple[Ints, Ints, int]:
    steps = list(strides)
    for d, step in zip(dims, stride, strict=True):
        steps[d] *= step
    inner = tuple(strides[d] * gap for d, gap in zip(dims, dilation, strict=True))
    return window_shape(shape, dims, size, stride, dilation), (*steps, *inner), offset


def _window(x: Any, dims: Ints, size: Ints, stride: Ints, dilation: Ints) -> Any:
    x = np.ascontiguousarray(x)
    strides = tuple(s // x.itemsize for s in x.strides)
    shape, steps, _ = _window_layout(x.shape, strides, 0, dims, size, stride, dilation)
    return np.lib.stride_tricks.as_strided(x, shape, [s * x.itemsize for s in steps]).copy()


def _unwindow_spec(g: Any, shape: Ints, **p: Any) -> Aval:
    require("unwindow", g, "uifc")
    if g.shape != window_shape(shape, **p):
        raise ValueError(f"prim.unwindow: windows of {list(shape)} have shape {list(window_shape(shape, **p))}, got {list(g.shape)}")
    return shape, g.dtype


def _unwindow(g: Any, shape: Ints, dims: Ints, size: Ints, stride: Ints, dilation: Ints) -> Any:
    result = np.zeros(shape, dtype=np.promote_types(g.dtype, "float64") if g.dtype.kind == "f" else g.dtype)
    for place in product(*map(range, size)):
        where = [slice(None)] * len(shape)
        for d, k, step, gap in zip(dims, place, stride, dilation, strict=True):
            where[d] = slice(k * gap, k * gap + (g.shape[d] - 1) * step + 1, step)
        result[tuple(where)] += g[(..., *place)]
    return result.astype(g.dtype)


CASES: tuple[dict[str, Any], ...] = (
    {"dims": (1,), "size": (3,), "stride": (2,), "dilation": (1,)},
    {"dims": (1, 2), "size": (2, 3), "stride": (1, 2), "dilation": (2, 1)},
    {"dims": (2, 0), "size": (4, 1), "stride": (3, 1), "dilation": (1, 1)},
)


def _window_samples() -> Samples:
    for case in CASES:
        yield [floats((2, 7, 8))], dict(case)
    yield [floats((2, 7, 8), dtype="float32")], dict(CASES[1])


def _unwindow_samples() -> Samples:
    for case in CASES:
        yield [floats(window_shape((2, 7, 8), **case))], {"shape": (2, 7, 8), **case}
    yield [floats(window_shape((2, 7, 8), **CASES[1]), dtype="float32")], {"shape": (2, 7, 8), **CASES[1]}


def _after(dims: Ints) -> Ints:
    return tuple(d + 1 for d in dims)


Primitive(
    "window", "Windows of `size` along dims: their number takes the place of each dim, their elements trail.", family="shape",
    spec=_window_spec, reference=_window, lower=("index", "window"), layout=_window_layout, samples=_window_samples,
    vjp=lambda ct, out, x, **p: (build.in_single(lambda g: build.unwindow(g, shape=x.shape, **p), ct),),
    jvp=lambda tangents, out, x, **p: prim.window(tangents[0], **p),
    batch=lambda batched, x, dims, **p: prim.window(x, dims=_after(dims), **p),
)  # fmt: skip
Primitive(
    "unwindow", "Transpose of `window`: every element is the sum of its copies in the windows.", family="shape",
    spec=_unwindow_spec, reference=_unwindow, lower=("index", "unwindow"), samples=_unwindow_samples,
    vjp=lambda ct, out, g, shape, **p: (prim.window(ct, **p),),
    jvp=lambda tangents, out, g, **p: prim.unwindow(tangents[0], **p),
    batch=lambda batched, g, shape, dims, **p: prim.unwindow(g, shape=(g.shape[0], *shape), dims=_after(dims), **p),
)  # fmt: skip
