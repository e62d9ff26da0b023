"""Reductions over pieces of a dim, bits joined by exclusive or, sequences in time-batch-channel order."""

from __future__ import annotations

from typing import Any

from rushlight._ops.bodies import (
    CPP_NAME,
    dims_of,
    finish,
    isnan,
    narrow,
    not_implemented,
    onto,
    reduce_dims,
    refuse,
    wide,
)
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import FLOAT64, INT64, UINT64
from rushlight._types.layout import numel

__all__: list[str] = []

IDENTITY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf")}
SCATTER = {"sum": "add", "mean": "add", "prod": "mul", "max": "amax", "min": "amin"}


@operator("segment_reduce_core(Tensor data, Tensor offsets, str reduce, int axis, Scalar? initial) -> Tensor", spaces=(), method=False,
          promote="opmath", promote_over=("data",), node="SegmentReduceBackward0")  # fmt: skip
def segment_reduce_core(data: Any, offsets: Any, reduce: str, axis: int, initial: Any) -> Any:
    """Reduce segments of `data` along a dim: the i-th is offsets[i]..offsets[i + 1], where the offsets (*, segments +
    1) increase.

    An element's segment is the number of offsets at or before it; all are scattered in one pass.
    """
    refuse(data, "_segment_reduce_cpu", "buic")
    lead, size, rest = numel(data.shape[:axis]), data.shape[axis], numel(data.shape[axis + 1 :])
    count = offsets.shape[-1] - 1
    bounds = build.reshape(build.convert(offsets, INT64), (lead, count + 1))
    kept = build.select(bounds < 0, 0, build.select(bounds > size, size, bounds))
    marks = prim.scatter(
        build.full((lead, size + 1), 0, INT64), kept, build.full(kept.shape, 1, INT64), dim=1, reduce="add"
    )
    passed = prim.cumsum(marks, dim=1, reverse=False)
    passed = prim.slice(passed, starts=(0, 0), stops=(lead, size), steps=(1, 1))
    # Elements before the first offset, and from the last on, go to one more segment, which is cut off.
    segment = build.select((passed > 0) & (passed <= count), passed - 1, count)
    x = build.reshape(data, (lead, size, rest))
    index = prim.broadcast(segment, shape=x.shape, dims=(0, 1))
    start = build.full((lead, count + 1, rest), IDENTITY[reduce], x.dtype)
    if reduce == "prod":
        segments = _products(start, index, x)
    else:
        segments = prim.scatter(start, index, x, dim=1, reduce=SCATTER[reduce])
    segments = prim.slice(segments, starts=(0, 0, 0), stops=(lead, count, rest), steps=(1, 1, 1))
    length = prim.slice(kept, starts=(0, 1), stops=(lead, count + 1), steps=(1, 1)) - prim.slice(
        kept, starts=(0, 0), stops=(lead, count), steps=(1, 1)
    )
    segments = _with_initial(segments, prim.broadcast(length, shape=segments.shape, dims=(0, 1)), reduce, initial)
    return build.reshape(segments, (*data.shape[:axis], count, *data.shape[axis + 1 :]))


def _products(start: Any, index: Any, x: Any) -> Any:
    """Products of segments whose derivative by an element is the product of the others, also where it is the only NaN.

    `scatter` divides by the element; a lone NaN is therefore a factor of its own, and 1 among the others.
    """
    nan = build.convert(isnan(x), INT64)
    count = prim.scatter(build.full(start.shape, 0, INT64), index, nan, dim=1, reduce="add")
    lone = build.eq(nan * prim.gather(count, index, dim=1), 1)
    product = prim.scatter(start, index, build.select(lone, 1, x), dim=1, reduce="mul")
    nothing = build.full(start.shape, 0, x.dtype)
    factor = prim.scatter(nothing, index, build.select(lone, x, 0), dim=1, reduce="add")
    return product * build.select(build.eq(count, 1), factor, 1)


def _with_initial(segments: Any, length: Any, reduce: str, initial: Any) -> Any:
    """The reduction started with a number; an empty segment is that number alone."""
    if reduce == "mean":
        total = segments if initial is None else segments + initial
        nothing = float("nan") if initial is None else initial
        full = build.select(build.eq(length, 0), 1, length)
        return build.select(build.eq(length, 0), nothing, total / build.convert(full, segments.dtype))
    if initial is None:
        return segments
    if reduce in ("max", "min"):
        first = build.match(segments, initial)[1]
        return build.select(first > segments if reduce == "max" else first < segments, first, segments)
    return segments + initial if reduce == "sum" else segments * initial


# ***** bits *****


@operator("hash_tensor(Tensor input, int[1]? dim=None, *, bool keepdim=False, int mode=0) -> Tensor", out="exact")
def hash_tensor(x: Any, dim: Any, *, keepdim: bool, mode: int) -> Any:
    """The bits of elements, widened to 64, combined by exclusive or: over all, or along dims.

    A bit of the result is the parity of a count; half of the 64 counts share a word with one of the other half.
    """
    if x.dtype.is_complex or (x.dtype.kind == "u" and x.dtype.itemsize > 1):
        raise not_implemented("xor_sum_cpu", x.dtype)
    if mode != 0:
        raise RuntimeError(f"Unknown hash_tensor mode: {mode}")
    dims = dims_of(x, dim)
    if numel(x.shape) == 0 and not dim and dim != 0:
        raise RuntimeError(
            "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
        )
    for d in dims:
        if x.shape[d] == 0:
            raise IndexError(f"hash_tensor: Expected reduction dim {d} to have non-zero size.")
    bits = (
        prim.bitcast(build.convert(x, FLOAT64), dtype=INT64) if x.dtype.is_floating_point else build.convert(x, INT64)
    )
    last, half = len(x.shape), 32
    spread = prim.broadcast(bits, shape=(*x.shape, half), dims=tuple(range(last)))
    shift = prim.iota(shape=spread.shape, dim=last, dtype=INT64)
    pair = build.full(spread.shape, 1 | 1 << half, INT64)  # two counters, in the lower and the upper half of a word
    counts = reduce_dims("sum", prim.bitwise_and(prim.shift_right(spread, shift), pair), dims)
    odd = prim.bitwise_and(counts, build.full(counts.shape, 1 | 1 << half, INT64))
    bit = prim.iota(shape=odd.shape, dim=len(odd.shape) - 1, dtype=INT64)
    joined = prim.sum(prim.shift_left(odd, bit), dims=(len(odd.shape) - 1,))
    return finish(prim.bitcast(joined, dtype=UINT64), x.shape, dims, keepdim)


# ***** sequences *****


@operator(
    "conv_tbc(Tensor input, Tensor weight, Tensor bias, int pad=0) -> Tensor",
    spaces=("torch", "nn.functional"),
    method=False,
)
def conv_tbc(x: Any, weight: Any, bias: Any, pad: int) -> Any:
    """out[t, b, o] = bias[o] + sum over k, c of x[t + k - pad, b, c] weight[k, c, o]: sequences (time, batch,
    channels)."""
    if len(x.shape) != 3:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel")
    if len(weight.shape) != 3:
        raise RuntimeError("Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.")
    if len(bias.shape) != 1:
        raise RuntimeError("Bias must be 1-D")
    if weight.shape[1] != x.shape[2]:
        raise RuntimeError("Input dim 2 (input channels) is not == dim 1 in the weight tensor")
    if weight.shape[2] != bias.shape[0]:
        raise RuntimeError("Bias size must equal dim 2 in the weight tensor (output channels).")
    if not x.dtype is weight.dtype is bias.dtype:
        raise RuntimeError(
            f"self and mat2 must have the same dtype, but got {CPP_NAME[x.dtype.name]}, {CPP_NAME[weight.dtype.name]} and {CPP_NAME[bias.dtype.name]}"
        )
    if x.shape[0] + 2 * pad < weight.shape[0]:
        raise RuntimeError(
            f"conv_tbc(): a kernel of width {weight.shape[0]} is longer than the padded input of {x.shape[0] + 2 * pad}"
        )
    padded = build.pad(x, (pad, 0, 0), (pad, 0, 0), (0, 0, 0))
    windows = prim.window(padded, dims=(0,), size=(weight.shape[0],), stride=(1,), dilation=(1,))  # [T, B, C, K]
    width = weight.shape[0] * weight.shape[1]
    rows = build.reshape(windows, (*windows.shape[:2], width))
    columns = build.reshape(build.transpose(weight, (1, 0, 2)), (width, weight.shape[2]))
    product = build.dot(build.reshape(rows, (numel(rows.shape[:2]), width)), columns)
    result = build.reshape(product, (*rows.shape[:2], weight.shape[2]))
    return narrow(wide(result) + onto(wide(bias), result.shape, 2), x.dtype)
