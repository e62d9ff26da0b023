"""The convolution that kernels compute: padding, dilation, flipping and the bias of a convolution are numbers and an
operand here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.record import Aval, Primitive, not_differentiable, prim
from rushlight._prims.samples import Samples, any_dtype
from rushlight._types.dtype import BY_NAME, DType

__all__: list[str] = []

Ints = tuple[int, ...]


def _spec(
    x: Any,
    w: Any,
    *bias: Any,
    stride: Ints,
    spread: Ints,
    dilation: Ints,
    lo: Ints,
    size: Ints,
    flip: bool,
    dtype: DType,
) -> Aval:
    require("conv_windows", x, "f", half=True)
    n = len(size)
    if x.dtype is not w.dtype or dtype not in (x.dtype, x.dtype.wide):
        raise TypeError(
            f"prim.conv_windows takes operands of one dtype and gives that or the wider one, got {x.dtype}, {w.dtype}, {dtype}"
        )
    if len(x.shape) != n + 3 or len(w.shape) != n + 3 or x.shape[1:3] != (w.shape[0], w.shape[2]):
        raise ValueError(
            f"prim.conv_windows takes [N, G, C, *S] and [G, O, C, *K], got {list(x.shape)} and {list(w.shape)}"
        )
    if not len(stride) == len(spread) == len(dilation) == len(lo) == n or min(*stride, *spread, *dilation) < 1:
        raise ValueError(
            f"prim.conv_windows takes {n} strides, spreads, dilations and paddings, got {stride}, {spread}, {dilation}, {lo}"
        )
    if bias and (len(bias) > 1 or bias[0].shape != w.shape[:2] or bias[0].dtype is not dtype):
        raise ValueError("prim.conv_windows takes one bias [G, O] of the result's dtype")
    return (x.shape[0], *w.shape[:2], *size), dtype


def _reference(
    x: Any,
    w: Any,
    *bias: Any,
    stride: Ints,
    spread: Ints,
    dilation: Ints,
    lo: Ints,
    size: Ints,
    flip: bool,
    dtype: DType,
) -> Any:
    n = len(size)
    x, w = (a if a.dtype.name == "float64" else a.astype("float64") for a in (x, w))
    w = np.flip(w, tuple(range(3, n + 3))) if flip else w
    index = [
        (np.arange(count)[:, None] * step + np.arange(k)[None] * gap - before)
        for count, step, k, gap, before in zip(size, stride, w.shape[3:], dilation, lo, strict=True)
    ]
    windows, axis = x, 3
    for at, apart, extent in zip(index, spread, x.shape[3:], strict=True):
        inside = (at % apart == 0) & (at >= 0) & (at < extent * apart)
        taken = np.take(windows, np.where(inside, at // apart, 0).ravel(), axis=axis)
        taken = taken.reshape(*windows.shape[:axis], *at.shape, *windows.shape[axis + 1 :])
        windows = np.where(inside.reshape(*at.shape, *(1,) * (windows.ndim - axis - 1)), taken, 0.0)
        axis += 2
    letters = "abdefhijklmnpqr"
    positions, taps = letters[:n], letters[n : 2 * n]
    both = "".join(p + t for p, t in zip(positions, taps, strict=True))
    result = np.einsum(f"xgc{both},goc{taps}->xgo{positions}", windows, w)
    if bias:
        result = result + bias[0].astype("float64").reshape(*bias[0].shape, *(1,) * n)
    return result.astype(dtype.name)


def _decompose(
    x: Any,
    w: Any,
    *bias: Any,
    stride: Ints,
    spread: Ints,
    dilation: Ints,
    lo: Ints,
    size: Ints,
    flip: bool,
    dtype: DType,
) -> Any:
    """Padding, `conv` and an addition."""
    n, groups, outs = len(size), w.shape[0], w.shape[1]
    x, w = build.convert(x, dtype.wide), build.convert(w, dtype.wide)
    sizes = zip(size, stride, w.shape[3:], dilation, lo, x.shape[3:], spread, strict=True)
    hi = [(c - 1) * s + (k - 1) * d + 1 - before - ((e - 1) * apart + 1) for c, s, k, d, before, e, apart in sizes]
    x = build.reshape(x, (x.shape[0], groups * x.shape[2], *x.shape[3:]))
    x = build.pad(x, (0, 0, *lo), (0, 0, *hi), (0, 0, *(apart - 1 for apart in spread)))
    w = build.reshape(w, (groups * outs, *w.shape[2:]))
    w = prim.flip(w, dims=tuple(range(2, n + 2))) if flip else w
    y = prim.conv(x, w, stride=stride, padding=(0,) * n, dilation=dilation, groups=groups)
    y = build.reshape(y, (y.shape[0], groups, outs, *size))
    if bias:
        row = build.reshape(build.convert(bias[0], dtype.wide), (1, groups, outs, *(1,) * n))
        y = y + build.broadcast_to(row, y.shape)
    return build.convert(y, dtype)


def _batch(batched: Sequence[bool], x: Any, w: Any, *bias: Any, **p: Any) -> Any:
    """Each item of the batch has groups of its own."""
    size = next(v.shape[0] for v, b in zip((x, w, *bias), batched, strict=True) if b)
    x, w, *more = (
        v if b else build.broadcast_to(v, (size, *v.shape)) for v, b in zip((x, w, *bias), batched, strict=True)
    )
    x = build.transpose(x, (1, 0, *range(2, len(x.shape))))
    flat = [build.reshape(v, (v.shape[0] * v.shape[1], *v.shape[2:])) for v in (w, *more)]
    y = prim.conv_windows(build.reshape(x, (x.shape[0], size * x.shape[2], *x.shape[3:])), *flat, **p)
    y = build.reshape(y, (y.shape[0], size, y.shape[1] // size if size else w.shape[1], *y.shape[2:]))
    return build.transpose(y, (1, 0, *range(2, len(y.shape))))


def _samples() -> Samples:
    def case(x: Ints, w: Ints, size: Ints, dtype: str = "float64", bias: bool = False, **given: Any) -> Any:
        n = len(size)
        params = {
            "stride": (1,) * n,
            "spread": (1,) * n,
            "dilation": (1,) * n,
            "lo": (0,) * n,
            "size": size,
            "flip": False,
            **given,
        }
        arrays = [any_dtype(x, dtype, 1), any_dtype(w, dtype, 2), *([any_dtype(w[:2], dtype, 3)] if bias else [])]
        return arrays, {**params, "dtype": BY_NAME[dtype]}

    yield case((2, 1, 3, 9), (1, 4, 3, 3), (7,))
    yield case((2, 2, 3, 7, 6), (2, 5, 3, 3, 2), (4, 6), bias=True, stride=(2, 1), lo=(1, 2), dilation=(1, 2))
    yield case((2, 1, 3, 4, 5), (1, 4, 3, 4, 3), (8, 11), "float32", spread=(2, 3), lo=(2, 1), flip=True)
    yield case((1, 2, 2, 3, 4, 5), (2, 2, 2, 2, 1, 3), (2, 4, 5), "float32", bias=True, lo=(-1, 0, 2))


_WHY = "it is made from `conv` when derivatives have been taken"
Primitive(
    "conv_windows",
    "Sums over c and k of x[n, g, c, (p stride + k dilation - lo) / spread] w[g, o, c, k], of the elements inside x at whole indices, and of a bias"
    " [g, o]; `size`: the number of positions p; `flip`: k counts from the end.",
    family="heavy", spec=_spec, reference=_reference, lower=("extern", "conv_windows"), decompose=_decompose, samples=_samples,
    vjp=not_differentiable(_WHY), jvp=not_differentiable(_WHY), batch=_batch,
)  # fmt: skip
