"""Sliding windows and their transpose: the operations of convolution and pooling."""

from __future__ import annotations

from itertools import product
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, floats, integers
from rushlight._types.dtype import INT8, INT32
from rushlight._types.layout import numel

__all__: list[str] = []

Ints = tuple[int, ...]


def window_shape(shape: Ints, dims: Ints, size: Ints, stride: Ints, dilation: Ints) -> Ints:
    """Shape of `window`: the number of windows in place of each of dims, then the sizes of one window."""
    if not len(dims) == len(size) == len(stride) == len(dilation) or len(set(dims)) != len(dims):
        raise ValueError(
            f"prim.window takes as many sizes, strides and dilations as dims, got {dims}, {size}, {stride}, {dilation}"
        )
    counts = list(shape)
    for d, k, step, gap in zip(dims, size, stride, dilation, strict=True):
        reach = gap * (k - 1) + 1
        if not 0 <= d < len(shape) or min(k, step, gap) < 1 or reach > shape[d]:
            raise ValueError(
                f"prim.window: no window of size {k}, stride {step}, dilation {gap} in dim {d} of {list(shape)}"
            )
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
        raise ValueError(
            f"prim.unwindow: windows of {list(shape)} have shape {list(window_shape(shape, **p))}, got {list(g.shape)}"
        )
    return shape, g.dtype


def _unwindow(g: Any, shape: Ints, dims: Ints, size: Ints, stride: Ints, dilation: Ints) -> Any:
    result = np.zeros(shape, dtype=np.promote_types(g.dtype, "float64") if g.dtype.kind == "f" else g.dtype)
    for position in product(*map(range, size)):
        where = [slice(None)] * len(shape)
        for d, k, step, gap in zip(dims, position, stride, dilation, strict=True):
            where[d] = slice(k * gap, k * gap + (g.shape[d] - 1) * step + 1, step)
        result[tuple(where)] += g[(..., *position)]
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


def _one_on(dims: Ints) -> Ints:
    return tuple(d + 1 for d in dims)


Primitive(
    "window", "Windows of `size` along dims: their number replaces each dim, their elements trail.", family="shape",
    spec=_window_spec, reference=_window, lower=("index", "window"), layout=_window_layout, samples=_window_samples,
    vjp=lambda ct, out, x, **p: (build.in_single(lambda g: build.unwindow(g, shape=x.shape, **p), ct),),
    jvp=lambda tangents, out, x, **p: prim.window(tangents[0], **p),
    batch=lambda batched, x, dims, **p: prim.window(x, dims=_one_on(dims), **p),
)  # fmt: skip
Primitive(
    "unwindow", "Transpose of `window`: every element is the sum of its copies in the windows.", family="shape",
    spec=_unwindow_spec, reference=_unwindow, lower=("index", "unwindow"), samples=_unwindow_samples,
    vjp=lambda ct, out, g, shape, **p: (prim.window(ct, **p),),
    jvp=lambda tangents, out, g, **p: prim.unwindow(tangents[0], **p),
    batch=lambda batched, g, shape, dims, **p: prim.unwindow(g, shape=(g.shape[0], *shape), dims=_one_on(dims), **p),
)  # fmt: skip


# ***** values scattered to one position of each window *****


def _reach(counts: Ints, size: Ints, stride: Ints, dilation: Ints) -> Ints:
    """The extent of so many windows."""
    return tuple(
        (o - 1) * step + gap * (k - 1) + 1 for o, k, step, gap in zip(counts, size, stride, dilation, strict=True)
    )


def _unpool_spec(ct: Any, position: Any, shape: Ints, size: Ints, **p: Any) -> Aval:
    require("unpool", ct, "f", half=True)
    n = len(size)
    fits = len(ct.shape) == n + 2 and ct.shape == position.shape and position.dtype in (INT8, INT32)
    if not fits or len(shape) != n or any(len(v) != n for v in p.values()):
        raise ValueError(
            f"prim.unpool takes values and positions [N, C, *windows], got {ct!r} and {position!r} for {shape}, {size}, {p}"
        )
    return (*ct.shape[:2], *shape), ct.dtype


def _unpool_reference(ct: Any, position: Any, shape: Ints, size: Ints, stride: Ints, dilation: Ints, lo: Ints) -> Any:
    reach = _reach(ct.shape[2:], size, stride, dilation)
    whole = np.zeros((*ct.shape[:2], *(max(r, a + s) for r, a, s in zip(reach, lo, shape, strict=True))), np.float64)
    for number, where in enumerate(product(*map(range, size))):
        steps = zip(where, ct.shape[2:], stride, dilation, strict=True)
        whole[(..., *(slice(k * gap, k * gap + (o - 1) * step + 1, step) for k, o, step, gap in steps))] += np.where(
            position == number, ct, 0
        )
    return whole[(..., *(slice(a, a + s) for a, s in zip(lo, shape, strict=True)))].astype(ct.dtype)


def _sent_here(position: Any, size: Ints) -> Any:
    """[N, C, *windows, *size]: whether a window's position is this one."""
    windows = (*position.shape, *size)
    number = build.reshape(prim.iota(shape=(numel(size),), dim=0, dtype=position.dtype), size)
    return prim.eq(
        build.broadcast_to(number, windows),
        prim.broadcast(position, shape=windows, dims=tuple(range(len(position.shape)))),
    )


def _beyond(counts: Ints, shape: Ints, size: Ints, stride: Ints, dilation: Ints, lo: Ints) -> Ints:
    """The part of each dim that the windows do not reach."""
    return tuple(s + a - r for s, a, r in zip(shape, lo, _reach(counts, size, stride, dilation), strict=True))


def _unpool_decompose(ct: Any, position: Any, shape: Ints, size: Ints, stride: Ints, dilation: Ints, lo: Ints) -> Any:
    here, dims = _sent_here(position, size), tuple(range(2, len(shape) + 2))
    sent = build.select(here, prim.broadcast(build.convert(ct, ct.dtype.wide), shape=here.shape, dims=(0, 1, *dims)), 0)
    whole = (*ct.shape[:2], *_reach(ct.shape[2:], size, stride, dilation))
    whole = build.unwindow(sent, shape=whole, dims=dims, size=size, stride=stride, dilation=dilation)
    after = _beyond(ct.shape[2:], shape, size, stride, dilation, lo)
    return build.convert(build.pad(whole, (0, 0, *(-a for a in lo)), (0, 0, *after), (0,) * len(ct.shape)), ct.dtype)


def _unpool_vjp(
    g: Any, out: Any, ct: Any, position: Any, shape: Ints, size: Ints, stride: Ints, dilation: Ints, lo: Ints
) -> tuple[Any, None]:
    """Every window reads the element at its index."""
    n = len(shape)
    after = _beyond(ct.shape[2:], shape, size, stride, dilation, lo)
    whole = build.pad(build.convert(g, g.dtype.wide), (0, 0, *lo), (0, 0, *(-a for a in after)), (0,) * (n + 2))
    windows = prim.window(whole, dims=tuple(range(2, n + 2)), size=size, stride=stride, dilation=dilation)
    taken = prim.sum(build.select(_sent_here(position, size), windows, 0), dims=tuple(range(n + 2, 2 * n + 2)))
    return build.convert(taken, g.dtype), None


def _unpool_samples() -> Samples:
    for counts, p in (
        ((3, 4), {"shape": (5, 7), "size": (3, 3), "stride": (2, 2), "dilation": (1, 1), "lo": (1, 1)}),
        ((4,), {"shape": (9,), "size": (2,), "stride": (2,), "dilation": (1,), "lo": (0,)}),
        ((2, 3), {"shape": (7, 6), "size": (2, 3), "stride": (1, 2), "dilation": (3, 1), "lo": (0, 1)}),
        (
            (2, 2, 2),
            {"shape": (4, 3, 4), "size": (2, 2, 3), "stride": (2, 1, 1), "dilation": (1, 1, 1), "lo": (0, 0, 0)},
        ),
    ):
        for dtype in ("float64", "float32"):
            positions = integers((2, 3, *counts), 1, 0, numel(p["size"]), "int8" if dtype == "float32" else "int32")
            yield [floats((2, 3, *counts), dtype=dtype), positions], dict(p)


def _unpool_batch(batched: Any, ct: Any, position: Any, **p: Any) -> Any:
    """The batch becomes images."""
    size = next(v.shape[0] for v, b in zip((ct, position), batched, strict=True) if b)
    ct, position = (
        v if b else build.broadcast_to(build.expand_dims(v, (0,)), (size, *v.shape))
        for v, b in zip((ct, position), batched, strict=True)
    )
    merged = (size * ct.shape[1], *ct.shape[2:])
    out = prim.unpool(build.reshape(ct, merged), build.reshape(position, merged), **p)
    return (
        build.reshape(out, (size, out.shape[0] // size, *out.shape[1:]))
        if size
        else build.full((0, ct.shape[1], *out.shape[1:]), 0, ct.dtype)
    )


Primitive(
    "unpool", "Values [N, C, *windows] scattered to each window's `position`, counted over its elements, and added there.",
    family="heavy", spec=_unpool_spec, reference=_unpool_reference, lower=("extern", "unpool"), decompose=_unpool_decompose,
    samples=_unpool_samples,
    vjp=_unpool_vjp, jvp=lambda tangents, out, ct, position, **p: prim.unpool(tangents[0], position, **p), batch=_unpool_batch,
)  # fmt: skip
