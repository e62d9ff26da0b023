"""Products of quantized numbers: integers are multiplied exactly in int32, and sums are requantized before they are stored.

A number is (integer - zero point) * scale, so that a product of matrices is

    sum (x - zx) (w - zw) = sum x w - zx sum w - zw sum x + K zx zw

where the second and the last term depend on the weight alone: callers compute them once and pass them as `offset`.  What
follows a product here (offset, scale, bias, rounding, clamping) is its epilogue in kernels: sums never reach memory.
Rounding is to nearest, ties to even.
"""

from __future__ import annotations

import math
from typing import Any

from rushlight._ops.bodies import number_value
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import BY_NAME, FLOAT32, FLOAT64, INT32, UINT8, DType
from rushlight._types.layout import broadcast_shapes, dense_strides

__all__ = ["FEW", "SMALL_SCALE", "picked", "rows_together"]

SMALL_SCALE = 6.0999998822808266e-05  # a float32: no scale that is chosen for numbers is smaller

Ints = tuple[int, ...]

# ***** from sums to numbers *****


def _columns(values: Any, sums: Any) -> Any:
    """A vector of one element for each column of [*B, M, N]; one element stands for all."""
    if values.shape != (1,):
        return build.broadcast_to(build.reshape(values, (*sums.shape[:-2], 1, sums.shape[-1])), sums.shape)
    return build.broadcast_to(build.reshape(values, ()), sums.shape)


def _requantized(sums: Any, scale: Any, bias: Any, zero_point: Any, result: str, relu: bool) -> Any:
    """sums * scale + bias, where bias is in units of the scale: floats, or integers of the dtype `result`."""
    y = build.convert(sums, FLOAT32)
    if bias is not None:
        y = y + _columns(bias, sums)
    y = y * _columns(scale, sums)
    if result == "float32":
        return build.select(y > 0.0, y, 0.0) if relu else y
    return _stored(y, zero_point, BY_NAME[result], relu)


def _ends(dtype: DType) -> tuple[float, float]:
    bits = 8 * dtype.itemsize
    return (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1) if dtype.is_signed else (0.0, 2.0**bits - 1)


def _stored(steps: Any, zero_point: Any, dtype: DType, relu: bool = False) -> Any:
    """Whole numbers of steps, shifted by the zero point and clamped to the integers of `dtype`; NaN goes to the top."""
    low, high = _ends(dtype)
    zero = build.broadcast_to(zero_point, steps.shape)
    y = prim.round(steps) + zero
    least = zero if relu else build.full_like(y, low)
    y = build.select(y < least, least, y)
    return build.convert(build.select(y <= high, y, build.full_like(y, high)), dtype)


def _corrected(sums: Any, offset: Any, x: Any, weight_zero: Any) -> Any:
    """Sums of products of numbers, from those of integers; `x` holds the rows."""
    if weight_zero is not None:
        rows = prim.sum(build.convert(x, INT32), dims=(len(x.shape) - 1,))
        rows = build.keep_dims(rows, sums.shape, (len(sums.shape) - 1,))
        sums = sums - rows * _columns(weight_zero, sums)
    return sums + _columns(offset, sums)


def _zero(zero_point: Any) -> Any:
    return build.convert(number_value(zero_point, FLOAT32), FLOAT32)


# ***** linear *****


@operator("quantized_linear(Tensor input, Tensor weight, Tensor offset, Tensor scale, Tensor? bias, Tensor? weight_zero, Scalar zero_point, *, "
          "str result='uint8', bool relu=False) -> Tensor", spaces=(), method=False, underivable="integers have no derivative")  # fmt: skip
def quantized_linear(
    x: Any,
    weight: Any,
    offset: Any,
    scale: Any,
    bias: Any,
    weight_zero: Any,
    zero_point: Any,
    *,
    result: str,
    relu: bool,
) -> Any:
    """Integers input [..., K] (uint8 or int8) times weight [N, K] (int8), as integers of the dtype `result`.

    `scale` [N or 1] is that of input times that of the weight, over that of the result; `bias` [N] is in units of
    input scale times weight scale; `offset` [N] (int32) is - input zero sum(weight) + K input zero weight zero.
    """
    rows = build.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    sums = build.dot(rows, build.transpose(weight, (1, 0)), INT32)
    y = _requantized(_corrected(sums, offset, rows, weight_zero), scale, bias, _zero(zero_point), result, relu)
    return build.reshape(y, (*x.shape[:-1], weight.shape[0]))


def _fitting(x: Any, reduce_range: bool) -> tuple[Any, Any]:
    """Scale and zero point (float32, 0-dim) of uint8 for all numbers of `x`, 0 among them, as `quantize_per_tensor_dynamic`."""
    dims = tuple(range(len(x.shape)))
    low, high = (build.convert(f(x, dims=dims), FLOAT64) for f in (prim.amin, prim.amax))
    low = prim.require(low, low <= high, requirement="range is ordered")  # fails for NaN alone
    low, high = build.select(low < 0.0, low, 0.0), build.select(high > 0.0, high, 0.0)
    most = 127.0 if reduce_range else 255.0
    scale = build.convert(build.convert((high - low) / most, FLOAT32), FLOAT64)
    flat = build.eq(scale, 0.0) | build.eq(1.0 / build.convert(scale, FLOAT32), math.inf)
    scale = build.select(flat, 0.1, scale)
    raised = build.select(scale < SMALL_SCALE, SMALL_SCALE, scale)
    low, high, scale = low * (raised / scale), high * (raised / scale), raised
    from_low, from_high = -low / scale, most - high / scale
    nearer = prim.abs(low / scale) < most + prim.abs(high / scale)
    zero = prim.round(build.select(nearer, from_low, from_high))
    zero = build.select(zero < 0.0, 0.0, build.select(zero > most, most, zero))
    return build.convert(scale, FLOAT32), build.convert(zero, FLOAT32)


@operator("quantized_linear_dynamic(Tensor input, Tensor weight, Tensor weight_sum, Tensor weight_scale, Tensor? bias, Tensor? weight_zero, *, "
          "bool reduce_range=False, bool relu=False) -> Tensor", spaces=(), method=False,
          underivable="integers have no derivative")  # fmt: skip
def quantized_linear_dynamic(
    x: Any,
    weight: Any,
    weight_sum: Any,
    weight_scale: Any,
    bias: Any,
    weight_zero: Any,
    *,
    reduce_range: bool,
    relu: bool,
) -> Any:
    """Floats input [..., K] rounded to uint8 by one scale that fits them, times weight [N, K] (int8), in float32.

    `weight_sum` [N] (int32) is the sum of weight - weight zero over K, `weight_scale` [N or 1] the scale of the weight.
    """
    rows = build.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    scale, zero = _fitting(rows, reduce_range)
    inverse = 1.0 / scale
    steps = rows * build.broadcast_to(inverse, rows.shape) + build.broadcast_to(zero, rows.shape)
    most = 127.0 if reduce_range else 255.0
    steps = prim.round(steps)
    steps = build.select(steps < 0.0, 0.0, build.select(steps > most, most, steps))
    ints = build.convert(steps, UINT8)
    sums = build.dot(ints, build.transpose(weight, (1, 0)), INT32)
    offset = weight_sum * build.broadcast_to(-build.convert(zero, INT32), weight_sum.shape)
    y = build.convert(_corrected(sums, offset, ints, weight_zero), FLOAT32)
    y = y * _columns(weight_scale * build.broadcast_to(scale, weight_scale.shape), sums)
    if bias is not None:
        y = y + _columns(bias, sums)
    y = build.select(y > 0.0, y, 0.0) if relu else y
    return build.reshape(y, (*x.shape[:-1], weight.shape[0]))


# ***** convolution *****


FEW_CHANNELS = 8  # of an image, below which its pixels do not fill vectors


def _surrounded(x: Any, zero: Any, padding: Ints) -> Any:
    """Images [N, *S, C] with the zero point around them: bytes wrap, so it is taken off before and added after."""
    if not any(padding):
        return x
    channels = x.shape[-1]
    if channels < FEW_CHANNELS:  # rows of pixels instead of pixels, which are shorter than vectors
        x, padding = build.reshape(x, (*x.shape[:-2], x.shape[-2] * channels)), (*padding[:-1], padding[-1] * channels)
    shift = build.broadcast_to(zero, x.shape)
    around = (0, *padding) if channels < FEW_CHANNELS else (0, *padding, 0)
    padded = build.pad(x - shift, around, around, (0,) * len(x.shape))
    padded = padded + build.broadcast_to(zero, padded.shape)
    if channels < FEW_CHANNELS:
        padded = build.reshape(padded, (*padded.shape[:-1], padded.shape[-1] // channels, channels))
    return padded


def _window_rows(x: Any, kernel: Ints, stride: Ints, dilation: Ints) -> tuple[Any, Ints]:
    """Windows of images [N, *S, C] as rows [N * positions, taps * C], and the positions' sizes."""
    channels, n = x.shape[-1], len(kernel)
    counts = tuple(
        (s - gap * (k - 1) - 1) // step + 1
        for s, k, step, gap in zip(x.shape[1:-1], kernel, stride, dilation, strict=True)
    )
    if all(k == 1 for k in kernel) and all(s == 1 for s in stride):
        return build.reshape(x, (math.prod(x.shape[:-1]), channels)), counts
    size, step = kernel, stride
    if dilation[-1] == 1:  # a window's last dim and its channels are one run of memory
        x = build.reshape(x, (*x.shape[:-2], x.shape[-2] * channels))
        size, step = (*kernel[:-1], kernel[-1] * channels), (*stride[:-1], stride[-1] * channels)
    rows = prim.window(x, dims=tuple(range(1, n + 1)), size=size, stride=step, dilation=dilation)  # [N, *P, (C), *K]
    if dilation[-1] != 1:
        rows = build.transpose(rows, (*range(n + 1), *range(n + 2, 2 * n + 2), n + 1))
    return build.reshape(rows, (x.shape[0] * math.prod(counts), math.prod(kernel) * channels)), counts


def _depthwise(x: Any, weight: Any, kernel: Ints, stride: Ints, dilation: Ints) -> Any:
    """Sums of images [N, *S, C] with one kernel for each channel, [C, 1, *K], as [N, *P, C]."""
    counts = [
        (s - gap * (k - 1) - 1) // step + 1
        for s, k, step, gap in zip(x.shape[1:-1], kernel, stride, dilation, strict=True)
    ]
    shape, sums = (x.shape[0], *counts, x.shape[-1]), None
    taps = build.transpose(build.reshape(weight, (weight.shape[0], math.prod(kernel))), (1, 0))
    wide = build.convert(x, INT32)
    for place in range(math.prod(kernel)):
        rest, starts = place, []
        for k, gap in zip(kernel[::-1], dilation[::-1], strict=True):
            starts.append(rest % k * gap)
            rest //= k
        starts = [0, *starts[::-1], 0]
        stops = [
            x.shape[0],
            *(a + (n - 1) * s + 1 for a, n, s in zip(starts[1:-1], counts, stride, strict=True)),
            x.shape[-1],
        ]
        part = prim.slice(wide, starts=tuple(starts), stops=tuple(stops), steps=(1, *stride, 1))
        tap = prim.slice(taps, starts=(place, 0), stops=(place + 1, taps.shape[1]), steps=(1, 1))
        term = part * build.broadcast_to(build.convert(build.reshape(tap, (taps.shape[1],)), INT32), shape)
        sums = term if sums is None else sums + term
    return sums


def _conv_sums(x: Any, weight: Any, geometry: tuple[Ints, Ints, int]) -> tuple[Any, Any, Ints]:
    """(sums [G, rows, O/G], windows [G, rows, K], positions) of padded images [N, *S, C]."""
    stride, dilation, groups = geometry
    kernel, outs, depth = weight.shape[2:], weight.shape[0], weight.shape[1]
    order = (0, *range(2, len(weight.shape)), 1)
    taps = build.reshape(build.transpose(weight, order), (groups, outs // groups, math.prod(kernel) * depth))
    if groups == 1:
        rows, positions = _window_rows(x, kernel, stride, dilation)
        rows = build.reshape(rows, (1, *rows.shape))
        sums = build.dot(
            build.reshape(rows, rows.shape[1:]), build.transpose(build.reshape(taps, taps.shape[1:]), (1, 0)), INT32
        )
        return build.reshape(sums, (1, *sums.shape)), rows, positions
    parts, positions = [], ()
    for g in range(groups):
        starts, stops = (0,) * len(x.shape), list(x.shape)
        stops[-1] = (g + 1) * depth
        part = prim.slice(x, starts=(*starts[:-1], g * depth), stops=tuple(stops), steps=(1,) * len(x.shape))
        rows, positions = _window_rows(part, kernel, stride, dilation)
        parts.append(build.reshape(rows, (1, *rows.shape)))
    rows = prim.cat(*parts, dim=0)
    return build.dot(rows, build.transpose(taps, (0, 2, 1)), INT32), rows, positions


def _channels_last(shape: Ints, specs: Any) -> Ints:
    """The result is channels last, whatever the input: its rows are products of windows."""
    return dense_strides(shape, [0, *range(2, len(shape)), 1])


@operator("quantized_conv(Tensor input, Tensor weight, Tensor offset, Tensor scale, Tensor? bias, Tensor? weight_zero, Scalar input_zero, Scalar zero_point, "
          "int[] stride, int[] padding, int[] dilation, int groups, *, str result='uint8', bool relu=False) -> Tensor", tags=("any_number",), spaces=(), method=False,
          like=_channels_last, underivable="integers have no derivative")  # fmt: skip
def quantized_conv(
    x: Any, weight: Any, offset: Any, scale: Any, bias: Any, weight_zero: Any, input_zero: Any, zero_point: Any,
    stride: Ints, padding: Ints, dilation: Ints, groups: int, *, result: str, relu: bool,
) -> Any:  # fmt: skip
    """Integers input [N, C, *S] (uint8 or int8) convolved with weight [O, C/groups, *K] (int8), surrounded by the input's
    zero point; see `quantized_linear` for the other operands, whose columns are the O channels here.
    """
    n = len(stride)
    image = build.transpose(x, (0, *range(2, n + 2), 1))
    zero = build.convert(number_value(input_zero, INT32), x.dtype)
    image = _surrounded(image, zero, padding)
    kernel, outs = weight.shape[2:], weight.shape[0]
    if weight_zero is None and weight.shape[1] == 1 and groups == x.shape[1] == outs and math.prod(kernel) <= 49:
        found = _depthwise(image, weight, kernel, stride, dilation)
        positions, order = found.shape[1:-1], (0, n + 1, *range(1, n + 1))
        sums, rows = build.reshape(found, (1, math.prod(found.shape[:-1]), outs)), None
    else:
        sums, rows, positions = _conv_sums(image, weight, (stride, dilation, groups))
        order = (1, 0, n + 2, *range(2, n + 2))
    y = _corrected(sums, offset, rows, weight_zero)
    y = _requantized(y, scale, bias, _zero(zero_point), result, relu)
    if rows is None:
        return build.transpose(build.reshape(y, (x.shape[0], *positions, outs)), order)
    y = build.transpose(build.reshape(y, (groups, x.shape[0], *positions, outs // groups)), order)
    return build.reshape(y, (x.shape[0], outs, *positions))


# ***** numbers to integers *****


@operator("quantized_steps(Tensor input, Scalar scale, Scalar zero_point, *, str result='uint8') -> Tensor", tags=("any_number",), spaces=(), method=False,
          like="operands", underivable="integers have no derivative")  # fmt: skip
def quantized_steps(x: Any, scale: Any, zero_point: Any, *, result: str) -> Any:
    """round(input / scale + zero_point), clamped to the integers of the dtype `result`."""
    low, high = _ends(BY_NAME[result])
    inverse = 1.0 / build.convert(number_value(scale, FLOAT32), FLOAT32)
    y = prim.round(x * build.broadcast_to(inverse, x.shape) + build.broadcast_to(_zero(zero_point), x.shape))
    y = build.select(y < low, build.full_like(y, low), y)
    return build.convert(build.select(y <= high, y, build.full_like(y, high)), BY_NAME[result])


@operator("quantized_numbers(Tensor input, Scalar scale, Scalar zero_point) -> Tensor", spaces=(), method=False, like="operands",
          underivable="integers have no derivative")  # fmt: skip
def quantized_numbers(x: Any, scale: Any, zero_point: Any) -> Any:
    """(input - zero_point) * scale in float32, for integers input."""
    scale = build.convert(number_value(scale, FLOAT32), FLOAT32)
    y = build.convert(x, FLOAT32) - build.broadcast_to(_zero(zero_point), x.shape)
    return y * build.broadcast_to(scale, x.shape)


@operator("quantized_pair(Tensor input, Tensor other, Scalar scale, Scalar zero, Scalar other_scale, Scalar other_zero, Scalar result_scale, "
          "Scalar result_zero, *, str how='add', str result='uint8', bool relu=False) -> Tensor", tags=("any_number",), spaces=(), method=False, like="operands",
          underivable="integers have no derivative")  # fmt: skip
def quantized_pair(
    x: Any, other: Any, scale: Any, zero: Any, other_scale: Any, other_zero: Any, result_scale: Any, result_zero: Any,
    *, how: str, result: str, relu: bool,
) -> Any:  # fmt: skip
    """The sum or the product (`how`: "add", "mul") of two tensors of integers, broadcast, as integers of the dtype `result`."""
    shape = broadcast_shapes(x.shape, other.shape)
    a, b = (
        build.broadcast_to(quantized_numbers.body(v, s, z), shape)
        for v, s, z in ((x, scale, zero), (other, other_scale, other_zero))
    )
    y = a + b if how == "add" else a * b
    y = build.select(y > 0.0, y, 0.0) if relu else y
    return quantized_steps.body(y, result_scale, result_zero, result=result)


# ***** weights of few bits, numbers in floats *****


@operator("_weight_int8pack_mm(Tensor input, Tensor mat2, Tensor scales) -> Tensor", method=False, promote="opmath", promote_over=("input",),
          underivable="PyTorch has no derivative of it")  # fmt: skip
def _weight_int8pack_mm(x: Any, weight: Any, scales: Any) -> Any:
    """input [M, K] in floats times mat2 [N, K] (int8), each of whose rows has a scale: [M, N]."""
    if len(x.shape) != 2 or len(weight.shape) != 2 or weight.dtype.name != "int8" or x.shape[1] != weight.shape[1]:
        raise RuntimeError(
            f"_weight_int8pack_mm: expected A [M, K] and an int8 B [N, K], got {list(x.shape)}, {list(weight.shape)}"
        )
    if scales.shape != (weight.shape[0],):
        raise RuntimeError("_weight_int8pack_mm: expect scales to be a vector of one element for each row of B")
    y = (
        _streamed(x, build.convert(weight, x.dtype))
        if x.shape[0] <= FEW
        else build.dot(x, build.transpose(build.convert(weight, x.dtype), (1, 0)))
    )
    return y * _columns(build.convert(scales, x.dtype), y)


FEW = 4  # rows of activations for which a weight is streamed through registers, not packed


def _streamed(x: Any, weight: Any) -> Any:
    """x [M, K] times weight [N, K] as sums over K: the weight is computed where it is read."""
    shape = (x.shape[0], *weight.shape)
    wide = prim.broadcast(x, shape=shape, dims=(0, 2)) * prim.broadcast(weight, shape=shape, dims=(1, 2))
    return prim.sum(wide, dims=(2,))


@operator("_weight_int4pack_mm_for_cpu(Tensor input, Tensor mat2, int qGroupSize, Tensor qScaleAndZeros) -> Tensor", method=False, promote="opmath",
          promote_over=("input",), underivable="PyTorch has no derivative of it")  # fmt: skip
def _weight_int4pack_mm_for_cpu(x: Any, packed: Any, size: int, scales: Any) -> Any:
    """input [M, K] in floats times a packed weight [N, K / 2] of four bits (`_convert_weight_to_int4pack_for_cpu`): [M, N].

    A number is (integer - 8) * scale + zero, with scale and zero [K / qGroupSize, N, 2] of its group along K.
    """
    if len(x.shape) != 2 or packed.dtype is not UINT8 or len(packed.shape) != 2 or 2 * packed.shape[1] != x.shape[1]:
        raise RuntimeError(
            f"_weight_int4pack_mm_for_cpu: expected A [M, K] and a uint8 B [N, K/2], got {list(x.shape)}, {list(packed.shape)}"
        )
    if size not in (32, 64, 128, 256) or x.shape[1] % size:
        raise RuntimeError(f"_weight_int4pack_mm_for_cpu: expect qGroupSize to be 32, 64, 128 or 256, got {size}")
    n, groups = packed.shape[0], x.shape[1] // size
    if n % 16:
        raise RuntimeError(f"_weight_int4pack_mm_for_cpu: expect N divisible by 16, got {n}")
    if scales.shape != (groups, n, 2):
        raise RuntimeError("_weight_int4pack_mm_for_cpu: expect qScaleAndZeros to be [K / qGroupSize, N, 2]")
    scale, zero = (
        build.convert(
            build.reshape(prim.slice(scales, starts=(0, 0, i), stops=(groups, n, i + 1), steps=(1, 1, 1)), (groups, n)),
            x.dtype,
        )
        for i in range(2)
    )
    rows = rows_together(n)
    packed = build.reshape(packed, (n // rows, packed.shape[1], rows))
    if x.shape[0] <= FEW:
        return _streamed_groups(x, packed, scale, zero)
    halves = [build.reshape(_half(packed, half, x.dtype), (*packed.shape, 1)) for half in range(2)]
    numbers = build.reshape(build.transpose(prim.cat(*halves, dim=3), (1, 3, 0, 2)), (groups, size, n))
    wide = [prim.broadcast(f, shape=numbers.shape, dims=(0, 2)) for f in (scale, zero)]
    return build.dot(x, build.reshape((numbers - 8.0) * wide[0] + wide[1], (groups * size, n)))


def rows_together(rows: int) -> int:
    """The rows of a packed weight whose bytes lie side by side: lanes of a kernel."""
    return next(n for n in (64, 32, 16) if rows % n == 0)


def _half(packed: Any, half: int, dtype: DType) -> Any:
    """The numbers from 0 to 15 in the low or the high bits of a packed weight."""
    wide = build.convert(packed, INT32)  # shifted there: CPUs have no shift of bytes
    bits = (
        prim.shift_right(wide, build.full_like(wide, 4)) if half else prim.bitwise_and(wide, build.full_like(wide, 15))
    )
    return build.convert(bits, dtype)


STEP = 8  # numbers along K whose sum is scaled at once


def _streamed_groups(x: Any, packed: Any, scale: Any, zero: Any) -> Any:
    """x [M, K] times a packed weight [N / rows, K / 2, rows] of four bits: sums of a group are scaled as they are added,
    and what all its numbers have in common is multiplied by the sum of the group's x.
    """
    blocks, pairs, rows = packed.shape
    groups = scale.shape[0]
    steps = 2 * pairs // groups // STEP
    shape = (x.shape[0], blocks, rows, groups, steps)
    parts, terms = build.reshape(x, (x.shape[0], groups, steps, STEP)), None
    packed = build.reshape(packed, (blocks, groups, steps, STEP // 2, rows))
    for k in range(STEP):
        left = prim.broadcast(picked(parts, 3, k), shape=shape, dims=(0, 3, 4))
        bits = build.transpose(_half(picked(packed, 3, k // 2), k % 2, x.dtype), (0, 3, 1, 2))
        right = prim.broadcast(bits, shape=shape, dims=(1, 2, 3, 4))
        terms = left * right if terms is None else prim.fma(left, right, terms)
    factors = build.transpose(build.reshape(scale, (groups, blocks, rows)), (1, 2, 0))
    y = prim.sum(terms * prim.broadcast(factors, shape=shape, dims=(1, 2, 3)), dims=(3, 4))
    return build.reshape(y, (x.shape[0], blocks * rows)) + build.dot(prim.sum(parts, dims=(2, 3)), zero - scale * 8.0)


def picked(x: Any, dim: int, index: int) -> Any:
    """One index of a dim, which is removed."""
    starts, stops = [0] * len(x.shape), list(x.shape)
    starts[dim], stops[dim] = index, index + 1
    part = prim.slice(x, starts=tuple(starts), stops=tuple(stops), steps=(1,) * len(x.shape))
    return build.squeeze(part, (dim,))


@operator("_convert_weight_to_int4pack_for_cpu(Tensor input, int innerKTiles) -> Tensor", method=False, underivable="integers have no derivative")  # fmt: skip
def _convert_weight_to_int4pack_for_cpu(weight: Any, inner: int) -> Any:
    """Numbers from 0 to 15, [N, K] (int32), two in a byte: [N, K / 2] (uint8), in an order of this library's own.

    Bytes [N / R, K / 2, R], where R is the largest of 64, 32 and 16 that divides N: byte [n, k, r] holds number 2 k of row
    n R + r in its low bits and number 2 k + 1 in its high.
    """
    if len(weight.shape) != 2 or weight.dtype is not INT32:
        raise RuntimeError("_convert_weight_to_int4pack_for_cpu: expect weight to be an int32 matrix")
    n, k = weight.shape
    if k % 32 or n % 16:
        raise RuntimeError("_convert_weight_to_int4pack_for_cpu: expect N divisible by 16 and K by 32")
    rows = rows_together(n)
    pairs = build.transpose(build.reshape(weight, (n // rows, rows, k // 2, 2)), (0, 2, 1, 3))
    low, high = (picked(pairs, 3, i) for i in range(2))
    packed = prim.bitwise_or(low, prim.shift_left(high, build.full_like(high, 4)))
    return build.convert(build.reshape(packed, (n, k // 2)), UINT8)
