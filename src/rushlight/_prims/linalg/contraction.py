"""Sums of products: matrix product and convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import lift, require
from rushlight._prims.numbers import holder
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, any_dtype, floats
from rushlight._types.dtype import BY_NAME, FLOAT32, FLOAT64, INT32, DType
from rushlight._types.layout import numel

__all__: list[str] = []

Ints = tuple[int, ...]


def _doubled(x: Any) -> Any:
    return x.astype(
        {"float16": "float64", "float32": "float64", "complex64": "complex128"}.get(x.dtype.name, x.dtype.name)
    )


# ***** dot *****


def _dot_spec(a: Any, b: Any, dtype: DType) -> Aval:
    require("dot", a, "uifc", half=True)
    eights = a.dtype.name in EIGHT_BITS and b.dtype.name in EIGHT_BITS and dtype is a.dtype.wide
    if (a.dtype.name, b.dtype.name) not in INTO_INT32 and a.dtype is not b.dtype and not eights:
        raise TypeError(
            f"prim.dot takes operands of one dtype, of floats of eight bits, or int8 or uint8 and int8, got {a.dtype.name} and {b.dtype.name}"
        )
    if dtype not in (a.dtype, a.dtype.wide) and (dtype is not INT32 or (a.dtype.name, b.dtype.name) not in INTO_INT32):
        raise TypeError(f"prim.dot has no sums in {dtype.name} of {a.dtype.name} and {b.dtype.name}")
    if len(a.shape) != len(b.shape) or len(a.shape) < 2 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise ValueError(f"prim.dot takes [*B, M, K] and [*B, K, N], got {list(a.shape)} and {list(b.shape)}")
    return (*a.shape[:-1], b.shape[-1]), dtype


EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2")
INTO_INT32 = (("int8", "int8"), ("uint8", "int8"))


def _dot_reference(a: Any, b: Any, dtype: DType) -> Any:
    a, b = (x.astype(holder(dtype)) if dtype.is_integer else _doubled(x) for x in (a, b))
    return (a @ b).astype(holder(dtype))


def _adjoint(x: Any) -> Any:
    """Exchange the last two dims; conjugate complex values."""
    n = len(x.shape)
    return build.conj(build.transpose(x, (*range(n - 2), n - 1, n - 2)))


def _dot_vjp(ct: Any, out: Any, a: Any, b: Any, dtype: DType) -> tuple[Any, Any]:
    to_a, to_b = build.dot(ct, _adjoint(build.convert(b, dtype))), build.dot(_adjoint(build.convert(a, dtype)), ct)
    return build.convert(to_a, a.dtype), build.convert(to_b, b.dtype)


def _dot_jvp(tangents: Any, out: Any, a: Any, b: Any, dtype: DType) -> Any:
    ta, tb = tangents
    left = None if ta is None else prim.dot(ta, b, dtype=dtype)
    return build.add_any(left, None if tb is None else prim.dot(a, tb, dtype=dtype))


def _dot_batch(batched: Sequence[bool], a: Any, b: Any, dtype: DType) -> Any:
    if not batched[1] and len(b.shape) == 2:  # one matrix for all: the batch becomes rows
        size, rows, inner = a.shape
        return build.reshape(prim.dot(build.reshape(a, (size * rows, inner)), b, dtype=dtype), (size, rows, b.shape[1]))
    return prim.dot(*lift(batched, (a, b)), dtype=dtype)


def _dot_samples() -> Samples:
    for dtype in ("float64", "float32", "complex128", "int64"):
        yield [any_dtype((3, 4), dtype, 1), any_dtype((4, 5), dtype, 2)], {"dtype": BY_NAME[dtype]}
        yield [any_dtype((2, 3, 4), dtype, 1), any_dtype((2, 4, 1), dtype, 2)], {"dtype": BY_NAME[dtype]}
    yield [floats((3, 0)), floats((0, 2))], {"dtype": FLOAT64}
    yield [floats((0, 3)), floats((3, 2))], {"dtype": FLOAT64}
    yield [any_dtype((3, 4), "float16", 1), any_dtype((4, 5), "float16", 2)], {"dtype": FLOAT32}
    yield [any_dtype((2, 3, 9), "float16", 1), any_dtype((2, 9, 6), "float16", 2)], {"dtype": FLOAT32}
    for dtype in ("int8", "uint8"):
        yield [any_dtype((3, 9), dtype, 1), any_dtype((9, 4), "int8", 2)], {"dtype": INT32}
        yield [any_dtype((2, 3, 5), dtype, 1), any_dtype((2, 5, 4), "int8", 2)], {"dtype": INT32}
        yield [any_dtype((2, 0), dtype, 1), any_dtype((0, 4), "int8", 2)], {"dtype": INT32}


Primitive(
    "dot", "Matrix product of [*B, M, K] and [*B, K, N] in `dtype`: that of the operands (narrow floats are summed in the wider one and rounded "
    "once), the wider one of narrow floats, or int32 for int8 or uint8 times int8.",
    family="heavy", spec=_dot_spec, reference=_dot_reference, lower=("extern", "dot"), samples=_dot_samples, vjp=_dot_vjp, jvp=_dot_jvp,
    batch=_dot_batch,
)  # fmt: skip

# ***** conv *****


def conv_shape(x: Ints, w: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Ints:
    """Shape of the result; ValueError where the operands do not fit."""
    n = len(x) - 2
    if n < 1 or len(w) != n + 2 or not len(stride) == len(padding) == len(dilation) == n:
        raise ValueError(
            f"prim.conv takes [N, C, *S], [O, C/groups, *K] and {n} strides, paddings, dilations; got {list(x)}, {list(w)}"
        )
    if groups < 1 or x[1] != w[1] * groups or w[0] % groups:
        raise ValueError(f"prim.conv: {x[1]} input channels, weight {list(w)} and {groups} groups do not fit")
    sizes = []
    for size, k, step, pad, gap in zip(x[2:], w[2:], stride, padding, dilation, strict=True):
        reach = gap * (k - 1) + 1
        if min(step, gap, k) < 1 or pad < 0 or size + 2 * pad < reach:
            raise ValueError(
                f"prim.conv: kernel {k} (stride {step}, dilation {gap}, padding {pad}) does not fit size {size}"
            )
        sizes.append((size + 2 * pad - reach) // step + 1)
    return (x[0], w[0], *sizes)


def _conv_spec(x: Any, w: Any, **p: Any) -> Aval:
    require("conv", x, "uifc", half=True)
    if x.dtype is not w.dtype:
        raise TypeError(f"prim.conv takes operands of one dtype, got {x.dtype.name} and {w.dtype.name}")
    return conv_shape(x.shape, w.shape, **p), x.dtype


def _conv_reference(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    shape = conv_shape(x.shape, w.shape, stride, padding, dilation, groups)
    padded = np.pad(_doubled(x), [(0, 0), (0, 0), *((p, p) for p in padding)])
    result = np.zeros(shape, dtype=padded.dtype)
    rows, depth = w.shape[0] // groups, w.shape[1]
    for tap in np.ndindex(*w.shape[2:]):
        spots = tuple(
            slice(k * gap, k * gap + (n - 1) * step + 1, step)
            for k, gap, n, step in zip(tap, dilation, shape[2:], stride, strict=True)
        )
        for g in range(groups):
            part = padded[(slice(None), slice(g * depth, (g + 1) * depth), *spots)]
            taps = _doubled(w)[(slice(g * rows, (g + 1) * rows), slice(None), *tap)]
            result[:, g * rows : (g + 1) * rows] += np.einsum("nc...,oc->no...", part, taps)
    return result.astype(x.dtype)


def _conv_decompose(x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """Gather the windows into rows, one matrix product for each group, and move the channels back to the front."""
    batch = x.shape[0]
    n, outs, depth, kernel = len(stride), w.shape[0], w.shape[1], w.shape[2:]
    positions = conv_shape(x.shape, w.shape, stride, padding, dilation, groups)[2:]
    edge = (0, 0, *padding)
    padded = build.pad(x, edge, edge, (0,) * (n + 2))
    # [N, C, *P, *K]
    rows = prim.window(padded, dims=tuple(range(2, n + 2)), size=tuple(kernel), stride=stride, dilation=dilation)
    rows = build.reshape(rows, (batch, groups, depth, *positions, *kernel))
    rows = build.transpose(rows, (1, 0, *range(3, n + 3), 2, *range(n + 3, 2 * n + 3)))  # [G, N, *P, C/G, *K]
    inner = depth * numel(kernel)
    rows = build.reshape(rows, (groups, batch * numel(positions), inner))
    taps = build.transpose(build.reshape(w, (groups, outs // groups, inner)), (0, 2, 1))
    out = build.reshape(build.dot(rows, taps), (groups, batch, numel(positions), outs // groups))
    return build.reshape(build.transpose(out, (1, 0, 3, 2)), (batch, outs, *positions))


def _swap_channels(w: Any, groups: int) -> Any:
    """[G O, C, *K] as [G C, O, *K]."""
    outs, depth, *kernel = w.shape
    split = build.reshape(w, (groups, outs // groups, depth, *kernel))
    swapped = build.transpose(split, (0, 2, 1, *range(3, len(split.shape))))
    return build.reshape(swapped, (groups * depth, outs // groups, *kernel))


def _conv_grad_input(ct: Any, x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """Dilate the cotangent by the stride and convolve it with the flipped kernel."""
    n = len(stride)
    reach = [gap * (k - 1) for gap, k in zip(dilation, w.shape[2:], strict=True)]
    lo = [r - p for r, p in zip(reach, padding, strict=True)]
    spans = [(s - 1) * step + 1 for s, step in zip(ct.shape[2:], stride, strict=True)]
    hi = [size + r - a - span for size, r, a, span in zip(x.shape[2:], reach, lo, spans, strict=True)]
    spread = build.pad(ct, (0, 0, *lo), (0, 0, *hi), (0, 0, *(s - 1 for s in stride)))
    flipped = prim.flip(_swap_channels(w, groups), dims=tuple(range(2, n + 2)))
    return prim.conv(spread, flipped, stride=(1,) * n, padding=(0,) * n, dilation=dilation, groups=groups)


def _conv_grad_weight(ct: Any, x: Any, w: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int) -> Any:
    """Convolve the input, channels as batch, with the cotangent as kernel: stride and dilation are exchanged."""
    batch, channels, *space = x.shape
    n, depth = len(stride), channels // groups
    split = build.reshape(x, (batch, groups, depth, *space))
    images = build.transpose(split, (2, 1, 0, *range(3, n + 3)))  # [C/G, G, N, *S]
    images = build.reshape(images, (depth, groups * batch, *space))
    kernels = build.transpose(ct, (1, 0, *range(2, n + 2)))  # [G O/G, N, *P]
    out = prim.conv(images, kernels, stride=dilation, padding=padding, dilation=stride, groups=groups)
    # the stride may leave a remainder
    cut = [0, 0, *(k - size for k, size in zip(w.shape[2:], out.shape[2:], strict=True))]
    out = build.pad(out, [0] * (n + 2), cut, [0] * (n + 2))
    return build.transpose(out, (1, 0, *range(2, n + 2)))


def _conv_vjp(ct: Any, out: Any, x: Any, w: Any, **p: Any) -> tuple[Any, Any]:
    return _conv_grad_input(ct, x, build.conj(w), **p), _conv_grad_weight(ct, build.conj(x), w, **p)


def _conv_jvp(tangents: Any, out: Any, x: Any, w: Any, **p: Any) -> Any:
    tx, tw = tangents
    left = None if tx is None else prim.conv(tx, w, **p)
    return build.add_any(left, None if tw is None else prim.conv(x, tw, **p))


def _conv_batch(batched: Sequence[bool], x: Any, w: Any, groups: int, **p: Any) -> Any:
    size = (x if batched[0] else w).shape[0]
    if not batched[1]:  # the batch becomes images
        out = prim.conv(build.reshape(x, (size * x.shape[1], *x.shape[2:])), w, groups=groups, **p)
        return (
            build.reshape(out, (size, out.shape[0] // size, *out.shape[1:])) if size else _empty_conv(x, w, groups, **p)
        )
    if size == 0:
        return _empty_conv(x if batched[0] else build.broadcast_to(x, (0, *x.shape)), w, groups, **p)
    x, w = lift(batched, (x, w))  # each item of the batch has its own groups
    images = build.transpose(x, (1, 0, *range(2, len(x.shape))))
    images = build.reshape(images, (x.shape[1], size * x.shape[2], *x.shape[3:]))
    out = prim.conv(images, build.reshape(w, (size * w.shape[1], *w.shape[2:])), groups=size * groups, **p)
    out = build.reshape(out, (out.shape[0], size, out.shape[1] // size, *out.shape[2:]))
    return build.transpose(out, (1, 0, *range(2, len(out.shape))))


def _empty_conv(x: Any, w: Any, groups: int, **p: Any) -> Any:
    weight = w.shape if len(w.shape) == len(x.shape) - 1 else w.shape[1:]
    return build.full((0, *conv_shape(x.shape[1:], weight, groups=groups, **p)), 0, x.dtype)


def _conv_samples() -> Samples:
    def case(x: Ints, w: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int, dtype: str = "float64") -> Any:
        params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return [any_dtype(x, dtype, 1), any_dtype(w, dtype, 2)], params

    yield case((2, 3, 8), (4, 3, 3), (1,), (1,), (1,), 1)
    yield case((2, 4, 7, 6), (6, 2, 3, 2), (2, 1), (1, 0), (1, 2), 2)
    yield case((1, 2, 9), (2, 1, 2), (3,), (0,), (2,), 2)
    yield case((2, 2, 6), (3, 2, 1), (4,), (3,), (1,), 1)  # padding beyond the kernel: the gradient cuts elements off
    yield case((2, 2, 4, 4, 4), (3, 2, 2, 2, 2), (1, 2, 1), (0, 1, 0), (1, 1, 1), 1, "float32")
    yield case((2, 2, 5), (2, 2, 3), (1,), (1,), (1,), 1, "complex128")


Primitive(
    "conv", "N-d convolution of [N, C, *S] with [O, C/groups, *K] (the kernel is not flipped, as in all neural networks).",
    family="heavy", spec=_conv_spec, reference=_conv_reference, lower=("extern", "conv"), decompose=_conv_decompose,
    samples=_conv_samples, vjp=_conv_vjp, jvp=_conv_jvp, batch=_conv_batch,
)  # fmt: skip
