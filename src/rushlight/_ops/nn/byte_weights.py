"""Weights of eight or four bits under activations of eight: integers are multiplied exactly, four products an instruction.

Activations are rounded to integers of -127 to 127, with a scale for each row and `GROUP` numbers of it.  Weights are
integers from 0 on, as words of four bytes (the primitive `dp4a`): those of the rows whose words lie side by side are lanes of
a kernel, which reads them once, in order, and scales the sum of a group's products as it adds it up in float32.
"""

from __future__ import annotations

from typing import Any

from rushlight._ops.nn.quantized_products import FEW, picked
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import FLOAT32, INT32

__all__ = ["GROUP"]

GROUP = 32  # numbers along K with a scale of their own


# ***** activations *****


def _rounded(x: Any) -> tuple[Any, Any]:
    """(integers [M, G, GROUP] in int32, their scales [M, G]) of x [M, K]."""
    parts = build.reshape(build.convert(x, FLOAT32), (x.shape[0], x.shape[1] // GROUP, GROUP))
    most = prim.amax(prim.abs(parts), dims=(2,))
    inverse = build.select(most > 0.0, 127.0 / most, 0.0)
    steps = prim.round(parts * prim.broadcast(inverse, shape=parts.shape, dims=(0, 1)))
    return build.convert(steps, INT32), most * (1.0 / 127.0)


def _words(ints: Any) -> Any:
    """Words [M, G, GROUP / 4] of integers [M, G, GROUP]: the first number is in the lowest byte."""
    fours = build.reshape(ints, (*ints.shape[:-1], GROUP // 4, 4))
    low = prim.bitwise_and(fours, build.full_like(fours, 255))
    word = picked(low, 3, 0)
    for k in range(1, 4):
        part = picked(low, 3, k)
        word = prim.bitwise_or(word, prim.shift_left(part, build.full_like(part, 8 * k)))
    return word


# ***** products *****


def _check(name: str, x: Any, weight: Any, numbers: int) -> None:
    """`numbers` of a row are in a word of the weight."""
    if len(x.shape) != 2 or len(weight.shape) != 3 or weight.dtype is not INT32:
        raise RuntimeError(
            f"{name}: expected input [M, K] and int32 words [N / R, K / {numbers}, R], got {list(x.shape)} and "
            f"{list(weight.shape)} of {weight.dtype.name}"
        )
    if x.shape[1] != weight.shape[1] * numbers or x.shape[1] % GROUP:
        raise RuntimeError(
            f"{name}: expected input [M, {weight.shape[1] * numbers}] whose rows are a multiple of {GROUP}, got {list(x.shape)}"
        )


def _sums(words: Any, parts: Any, shape: Any) -> Any:
    """Sums [M, B, R, G] of products of a group: words [M, G, W] of activations, and as many values [B, G, R] of weights."""
    sums = build.full(shape, 0, INT32)
    for k, part in enumerate(parts):
        left = prim.broadcast(build.transpose(part, (0, 2, 1)), shape=shape, dims=(1, 2, 3))
        sums = prim.dp4a(left, prim.broadcast(picked(words, 2, k), shape=shape, dims=(0, 3)), sums)
    return build.convert(sums, FLOAT32)


@operator("linear_int8_words(Tensor input, Tensor weight, Tensor scales) -> Tensor", spaces=(), method=False, underivable="integers have no derivative")  # fmt: skip
def linear_int8_words(x: Any, weight: Any, scales: Any) -> Any:
    """Floats input [M, K], rounded to eight bits, times integers of eight bits [N, K], whose scales are `scales` [N].

    `weight` [N / R, K / 4, R] (int32) has integers plus 128 as words: byte j of word [n, k, r] is that of row n R + r and
    number 4 k + j.  Result: [M, N] in the dtype of input.
    """
    _check("linear_int8_words", x, weight, 4)
    blocks, words, rows = weight.shape
    if scales.shape != (blocks * rows,):
        raise RuntimeError(f"linear_int8_words: expected scales [{blocks * rows}], got {list(scales.shape)}")
    ints, factors = _rounded(x)
    scales = build.convert(scales, FLOAT32)
    if x.shape[0] > FEW:
        numbers = build.convert(_bytes(weight), FLOAT32) - 128.0
        y = build.dot(_numbers(ints, factors), build.reshape(numbers, (4 * words, blocks * rows)))
    else:
        groups, each = words * 4 // GROUP, GROUP // 4
        shape = (x.shape[0], blocks, rows, groups)
        parts = build.reshape(weight, (blocks, groups, each, rows))
        sums = _sums(_words(ints), [picked(parts, 2, k) for k in range(each)], shape)
        y = prim.sum(sums * prim.broadcast(factors, shape=shape, dims=(0, 3)), dims=(3,))
        y = build.reshape(y, (x.shape[0], blocks * rows))
        shift = prim.sum(_group_sums(ints, factors), dims=(1,)) * -128.0
        y = y + prim.broadcast(shift, shape=y.shape, dims=(0,))
    return build.convert(y * prim.broadcast(scales, shape=y.shape, dims=(1,)), x.dtype)


@operator("linear_int4_words(Tensor input, Tensor weight, Tensor scales, Tensor starts) -> Tensor", spaces=(), method=False, underivable="integers have no derivative")  # fmt: skip
def linear_int4_words(x: Any, weight: Any, scales: Any, starts: Any) -> Any:
    """Floats input [M, K], rounded to eight bits, times integers of four bits [N, K] with scales and starts of groups.

    A number is integer * scale + start, with `scales` and `starts` [G, N] of groups of K / G numbers, a multiple of 32.
    `weight` [N / R, K / 8, R] (int32) has integers as words: the low half of byte j of word [n, k, r] is that of row
    n R + r and number 8 k + j, the high half that of number 8 k + 4 + j.  Result: [M, N] in the dtype of input.
    """
    _check("linear_int4_words", x, weight, 8)
    blocks, words, rows = weight.shape
    n, groups = blocks * rows, scales.shape[0] if scales.shape else 0
    if scales.shape != (groups, n) or starts.shape != (groups, n) or not groups or words * 8 % (GROUP * groups):
        raise RuntimeError(
            f"linear_int4_words: expected scales and starts [G, {n}] of G groups that divide {words * 8 // GROUP}, got "
            f"{list(scales.shape)}, {list(starts.shape)}"
        )
    scale, start = (build.convert(v, FLOAT32) for v in (scales, starts))
    halves = prim.bitwise_and(weight, build.full_like(weight, 0x0F0F0F0F)), _high(weight)
    ints, factors = _rounded(x)
    if x.shape[0] > FEW:
        return build.convert(build.dot(_numbers(ints, factors), _weight_of_fours(halves, scale, start)), x.dtype)
    steps = words * 8 // GROUP // groups
    shape = (x.shape[0], blocks, rows, groups * steps)
    parts = [build.reshape(h, (blocks, groups * steps, GROUP // 8, rows)) for h in halves]
    sums = _sums(_words(ints), [picked(parts[k % 2], 2, k // 2) for k in range(GROUP // 4)], shape)
    sums = build.reshape(
        sums * prim.broadcast(factors, shape=shape, dims=(0, 3)), (x.shape[0], blocks, rows, groups, steps)
    )
    lanes = build.transpose(build.reshape(scale, (groups, blocks, rows)), (1, 2, 0))
    y = prim.sum(sums * prim.broadcast(lanes, shape=sums.shape, dims=(1, 2, 3)), dims=(3, 4))
    common = prim.sum(build.reshape(_group_sums(ints, factors), (x.shape[0], groups, steps)), dims=(2,))
    return build.convert(build.reshape(y, (x.shape[0], blocks * rows)) + build.dot(common, start), x.dtype)


def _weight_of_fours(halves: tuple[Any, Any], scale: Any, start: Any) -> Any:
    """Numbers [K, N] of a weight of four bits: its words [B, K / 8, R] of low and of high halves, scale and start [G, N]."""
    blocks, words, rows = halves[0].shape
    pairs = prim.cat(*(build.expand_dims(half, (2,)) for half in halves), dim=2)
    ints = _bytes(build.reshape(pairs, (blocks, 2 * words, rows)))
    shape = (scale.shape[0], 8 * words // scale.shape[0], blocks * rows)
    wide = [prim.broadcast(factor, shape=shape, dims=(0, 2)) for factor in (scale, start)]
    numbers = build.reshape(build.convert(ints, FLOAT32), shape) * wide[0] + wide[1]
    return build.reshape(numbers, (8 * words, blocks * rows))


def _high(words: Any) -> Any:
    """The high halves of the bytes of words."""
    return prim.bitwise_and(prim.shift_right(words, build.full_like(words, 4)), build.full_like(words, 0x0F0F0F0F))


def _group_sums(ints: Any, factors: Any) -> Any:
    """Sums [M, G] of the numbers of groups."""
    return build.convert(prim.sum(ints, dims=(2,)), FLOAT32) * factors


def _numbers(ints: Any, factors: Any) -> Any:
    """The numbers [M, K] of integers [M, G, GROUP]."""
    wide = build.convert(ints, FLOAT32) * prim.broadcast(factors, shape=ints.shape, dims=(0, 1))
    return build.reshape(wide, (ints.shape[0], ints.shape[1] * ints.shape[2]))


def _bytes(words: Any) -> Any:
    """Integers [K, B, R] of the bytes of words [B, K / 4, R]."""
    parts = [
        prim.bitwise_and(prim.shift_right(words, build.full_like(words, 8 * j)), build.full_like(words, 255))
        for j in range(4)
    ]
    wide = build.transpose(prim.cat(*(build.expand_dims(p, (2,)) for p in parts), dim=2), (1, 2, 0, 3))
    return build.reshape(wide, (4 * words.shape[1], words.shape[0], words.shape[2]))
