"""Weights in blocks of GGUF files: numbers of one to eight bits with scales, decoded where they are read.

A row of K numbers is K / n blocks of a fixed number of bytes, least significant byte first.  A decoder takes blocks as bytes
[..., B, bytes] and gives their numbers in float32 as [..., B, *dims], where the product of `dims` is n.  The operations
and their order are those of the reference decoder of the format, so results are the same bit for bit.  Types whose names begin
with IQ, and those of four bits in floats, look numbers up in a table, which is an operand.

Source: the layouts of `ggml-quants` (https://github.com/ggml-org/ggml); OCP Microscaling Formats 1.0 for MXFP4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight._ops.nn.quantized_products import FEW
from rushlight._ops.table import operator
from rushlight._prims import build, prim
from rushlight._types.dtype import FLOAT16, FLOAT32, FLOAT64, INT8, INT32, INT64, UINT8, UINT16, UINT32, DType

__all__ = ["BLOCK_TYPES", "BlockType"]

Ints = tuple[int, ...]


class BlockType(NamedTuple):
    """How numbers lie in a block: `numbers` of them in `nbytes`; `table` is the shape of the table that it looks into."""

    numbers: int
    nbytes: int
    decode: Callable[..., Any]
    table: Ints | None


BLOCK_TYPES: dict[str, BlockType] = {}


def _block(name: str, numbers: int, nbytes: int, table: Ints | None = None) -> Callable[[Callable[..., Any]], Any]:
    def note(decode: Callable[..., Any]) -> Callable[..., Any]:
        BLOCK_TYPES[name] = BlockType(numbers, nbytes, decode, table)
        return decode

    return note


# ***** fields of a block *****


def _part(x: Any, start: int, stop: int) -> Any:
    """Elements of the last dim."""
    lead = x.shape[:-1]
    return prim.slice(x, starts=(*(0,) * len(lead), start), stops=(*lead, stop), steps=(1,) * (len(lead) + 1))


def _as(x: Any, lead: int, *dims: int) -> Any:
    """`x` with its dims after the first `lead` seen as `dims`; ones are broadcast by what follows."""
    return build.reshape(x, (*x.shape[:lead], *dims))


def _right(x: Any, by: Any) -> Any:
    return (
        prim.shift_right(*build.match(x, by))
        if not isinstance(by, int)
        else prim.shift_right(x, build.full_like(x, by))
    )


def _left(x: Any, by: Any) -> Any:
    return (
        prim.shift_left(*build.match(x, by)) if not isinstance(by, int) else prim.shift_left(x, build.full_like(x, by))
    )


def _bits(x: Any, dim: int, step: int, mask: int) -> Any:
    """Fields of `step` bits, the lowest first: dim `dim` of `x` has size 1, and becomes their number."""
    size = x.dtype.itemsize * 8 // step if step else 1
    return _fields(x, dim, size, step, mask)


def _fields(x: Any, dim: int, count: int, step: int, mask: int) -> Any:
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :])
    shifts = prim.iota(shape=shape, dim=dim, dtype=x.dtype)
    if step != 1:
        shifts = shifts * step
    return _right(build.broadcast_to(x, shape), shifts) & mask


def _word(x: Any, dtype: DType) -> Any:
    """Little-endian words [..., n] of bytes [..., n * size]."""
    size = dtype.itemsize
    lead = len(x.shape) - 1
    x = _as(x, lead, x.shape[-1] // size, size)
    word = None
    for i in range(size):
        byte = build.convert(_as(_part(x, i, i + 1), lead, x.shape[-2]), dtype)
        word = byte if word is None else word | _left(byte, 8 * i)
    return word


def _half(x: Any, start: int) -> Any:
    """The float16 at a byte, in float32: [...]."""
    word = _word(_part(x, start, start + 2), UINT16)
    return build.convert(prim.bitcast(build.reshape(word, word.shape[:-1]), dtype=FLOAT16), FLOAT32)


def _float(x: Any) -> Any:
    return build.convert(x, FLOAT32)


def _joined(low: Any, high: Any, by: int) -> Any:
    """Fields whose higher bits lie elsewhere."""
    return low | _left(build.convert(high, low.dtype), by)


def _minus(x: Any, by: int) -> Any:
    """Bytes as signed numbers, less `by`."""
    return prim.bitcast(x, dtype=INT8) - by


def _cat(dim: int, *parts: Any) -> Any:
    return prim.cat(*parts, dim=dim)


# ***** one scale for 32 numbers *****


def _nibbles(x: Any, start: int, stop: int) -> Any:
    """Low halves of bytes, then high halves: [..., 2, n]."""
    lead = len(x.shape) - 1
    return _bits(_as(_part(x, start, stop), lead, 1, stop - start), lead, 4, 15)


def _fifth_bits(x: Any, start: int) -> Any:
    """Bit j of four bytes for number j: [..., 2, 16]."""
    lead = len(x.shape) - 1
    return _as(_bits(_as(_part(x, start, start + 4), lead, 4, 1), lead + 1, 1, 1), lead, 2, 16)


def _scaled(x: Any, start: int, like: Any) -> Any:
    """A float16 of each block, for its numbers."""
    d, lead = _half(x, start), len(x.shape) - 1
    return _as(d, lead, *(1,) * (len(like.shape) - lead))


@_block("Q4_0", 32, 18)
def _q4_0(x: Any) -> Any:
    q = _float(_minus(_nibbles(x, 2, 18), 8))
    return _scaled(x, 0, q) * q


@_block("Q4_1", 32, 20)
def _q4_1(x: Any) -> Any:
    q = _float(_nibbles(x, 4, 20))
    return _scaled(x, 0, q) * q + _scaled(x, 2, q)


@_block("Q5_0", 32, 22)
def _q5_0(x: Any) -> Any:
    q = _float(_minus(_joined(_nibbles(x, 6, 22), _fifth_bits(x, 2), 4), 16))
    return _scaled(x, 0, q) * q


@_block("Q5_1", 32, 24)
def _q5_1(x: Any) -> Any:
    q = _float(_joined(_nibbles(x, 8, 24), _fifth_bits(x, 4), 4))
    return _scaled(x, 0, q) * q + _scaled(x, 2, q)


@_block("Q8_0", 32, 34)
def _q8_0(x: Any) -> Any:
    q = _float(prim.bitcast(_part(x, 2, 34), dtype=INT8))
    return q * _scaled(x, 0, q)


# ***** blocks of 256 numbers, with scales of their parts *****


def _crumbs(x: Any, start: int) -> Any:
    """Fields of two bits of 64 bytes: four for each half of them, [..., 2, 4, 32]."""
    lead = len(x.shape) - 1
    return _bits(_as(_part(x, start, start + 64), lead, 2, 1, 32), lead + 1, 2, 3)


@_block("Q2_K", 256, 84)
def _q2_k(x: Any) -> Any:
    lead = len(x.shape) - 1
    q = _float(_as(_crumbs(x, 16), lead, 2, 4, 2, 16))
    scales = _as(_part(x, 0, 16), lead, 2, 4, 2, 1)
    d, least = _scaled(x, 80, q) * _float(scales & 15), _scaled(x, 82, q) * _float(_right(scales, 4))
    return d * q - least


@_block("Q3_K", 256, 110)
def _q3_k(x: Any) -> Any:
    lead = len(x.shape) - 1
    low = _as(_bits(_as(_part(x, 96, 104), lead, 1, 8), lead, 4, 15), lead, 16)
    high = _as(_bits(_as(_part(x, 104, 108), lead, 1, 4), lead, 2, 3), lead, 16)
    scales = _as(_float(_minus(_joined(low, high, 4), 32)), lead, 2, 4, 2, 1)
    mask = _as(_bits(_as(_part(x, 0, 32), lead, 1, 32), lead, 1, 1), lead, 2, 4, 32)
    q = prim.bitcast(_crumbs(x, 32), dtype=INT8) - prim.bitcast(_left(mask ^ 1, 2), dtype=INT8)
    q = _float(_as(q, lead, 2, 4, 2, 16))
    return _scaled(x, 108, q) * scales * q


def _scales_and_minima(x: Any, start: int) -> tuple[Any, Any]:
    """Eight scales and eight minima of six bits in twelve bytes: [..., 8] in float32."""
    d, m, both = (_part(x, start + 4 * i, start + 4 * i + 4) for i in range(3))
    last = len(x.shape) - 1
    scales = _cat(last, d & 63, (both & 15) | (_right(d, 2) & 48))
    minima = _cat(last, m & 63, _right(both, 4) | (_right(m, 2) & 48))
    return _float(scales), _float(minima)


def _with_minima(x: Any, q: Any) -> Any:
    """Numbers [..., 4, 2, 32] times the scales of Q4_K and Q5_K, less the minima."""
    lead = len(x.shape) - 1
    scales, minima = (_as(v, lead, 4, 2, 1) for v in _scales_and_minima(x, 4))
    return _scaled(x, 0, q) * scales * q - _scaled(x, 2, q) * minima


@_block("Q4_K", 256, 144)
def _q4_k(x: Any) -> Any:
    lead = len(x.shape) - 1
    return _with_minima(x, _float(_bits(_as(_part(x, 16, 144), lead, 4, 1, 32), lead + 1, 4, 15)))


@_block("Q5_K", 256, 176)
def _q5_k(x: Any) -> Any:
    lead = len(x.shape) - 1
    low = _bits(_as(_part(x, 48, 176), lead, 4, 1, 32), lead + 1, 4, 15)
    high = _as(_bits(_as(_part(x, 16, 48), lead, 1, 32), lead, 1, 1), lead, 4, 2, 32)
    return _with_minima(x, _float(_joined(low, high, 4)))


@_block("Q6_K", 256, 210)
def _q6_k(x: Any) -> Any:
    lead = len(x.shape) - 1
    low = _as(_bits(_as(_part(x, 0, 128), lead, 2, 1, 64), lead + 1, 4, 15), lead, 2, 4, 32)
    high = _bits(_as(_part(x, 128, 192), lead, 2, 1, 32), lead + 1, 2, 3)
    q = _float(_as(_minus(_joined(low, high, 4), 32), lead, 2, 4, 2, 16))
    scales = _as(_float(prim.bitcast(_part(x, 192, 208), dtype=INT8)), lead, 2, 4, 2, 1)
    return _scaled(x, 208, q) * scales * q


# ***** three values *****


def _threes(x: Any, start: int, count: int, digits: int) -> Any:
    """Digits to base three of bytes, the highest first: [..., digits * count], as 0, 1 and 2."""
    lead = len(x.shape) - 1
    powers = _cat(0, *(build.full((1,), 3**i, UINT8) for i in range(digits)))
    shape = (*x.shape[:-1], digits, count)
    part = build.broadcast_to(_as(_part(x, start, start + count), lead, 1, count), shape)
    return _as(part * prim.broadcast(powers, shape=shape, dims=(lead,)), lead, digits * count)


@_block("TQ1_0", 256, 54)
def _tq1_0(x: Any) -> Any:
    q = _cat(len(x.shape) - 1, _threes(x, 0, 32, 5), _threes(x, 32, 16, 5), _threes(x, 48, 4, 4))
    digits = build.convert(_right(build.convert(q, UINT16) * 3, 8), UINT8)
    q = _float(_minus(digits, 1))
    return _scaled(x, 52, q) * q


@_block("TQ2_0", 256, 66)
def _tq2_0(x: Any) -> Any:
    q = _float(_minus(_crumbs(x, 0), 1))
    return _scaled(x, 64, q) * q


# ***** numbers from a table of sixteen *****


def _looked_up(table: Any, index: Any) -> Any:
    return prim.index(table, build.convert(index, INT64))


@_block("IQ4_NL", 32, 18, (16,))
def _iq4_nl(x: Any, table: Any) -> Any:
    q = _looked_up(table, _nibbles(x, 2, 18))
    return _scaled(x, 0, q) * q


@_block("IQ4_XS", 256, 136, (16,))
def _iq4_xs(x: Any, table: Any) -> Any:
    lead = len(x.shape) - 1
    low = _as(_bits(_as(_part(x, 4, 8), lead, 4, 1), lead + 1, 4, 15), lead, 8)
    high = _fields(_word(_part(x, 2, 4), UINT16), lead, 8, 2, 3)
    scales = _as(_float(_minus(_joined(low, build.convert(high, UINT8), 4), 32)), lead, 8, 1, 1)
    q = _looked_up(table, _bits(_as(_part(x, 8, 136), lead, 8, 1, 16), lead + 1, 4, 15))
    return _scaled(x, 0, q) * scales * q


@_block("MXFP4", 32, 17, (16,))
def _mxfp4(x: Any, table: Any) -> Any:
    """A power of two for 32 numbers; half of it, because the table holds twice the numbers."""
    lead = len(x.shape) - 1
    e = build.convert(_as(_part(x, 0, 1), lead, 1, 1), UINT32)
    small = _left(build.full_like(e, 0x00200000), build.select(e < 2, e, build.full_like(e, 0)))
    bits = build.select(e < 2, small, _left(build.select(e < 2, e, e - 1), 23))
    return prim.bitcast(bits, dtype=FLOAT32) * _looked_up(table, _nibbles(x, 1, 17))


@_block("NVFP4", 64, 36, (16,))
def _nvfp4(x: Any, table: Any) -> Any:
    """A number of four exponent and three mantissa bits for sixteen numbers; half of it, as for MXFP4."""
    lead = len(x.shape) - 1
    bits = build.convert(_as(_part(x, 0, 4), lead, 4, 1, 1), INT32)
    exponent, mantissa = _right(bits, 3) & 15, _float(bits & 7)
    power = prim.bitcast(_left(exponent + 120, 23), dtype=FLOAT32)
    value = build.select(build.eq(exponent, 0), mantissa * 2.0**-9, (mantissa / 8.0 + 1.0) * power)
    scale = build.select(build.eq(bits, 0) | build.eq(bits, 127), 0.0, value * 0.5)
    return scale * _looked_up(table, _bits(_as(_part(x, 4, 36), lead, 4, 1, 8), lead + 1, 4, 15))


# ***** numbers from a table of vectors *****


def _either(positive: Any, size: float) -> Any:
    """`size` where a condition holds, else `-size`, in float32."""
    return build.select(positive, build.full(positive.shape, size, FLOAT32), -size)


def _sign_bits(x: Any, dim: int) -> Any:
    """-1.0 where a bit of a byte is set, else 1.0; dim `dim` of `x` has size 1, and becomes 8."""
    return _either(build.eq(_bits(x, dim, 1, 1), 0), 1.0)


def _even(index: Any) -> Any:
    """Seven signs, with an eighth that makes the number of negative ones even: bytes."""
    parity = index
    for by in (4, 2, 1):
        parity = parity ^ _right(parity, by)
    return build.convert(index | _left(parity & 1, 7), UINT8)


def _eighths(x: Any, start: int, count: int) -> Any:
    """Scales of four bits, with a half added, in quarters: [..., count * 2]."""
    lead = len(x.shape) - 1
    scales = _as(_bits(_as(_part(x, start, start + count), lead, count, 1), lead + 1, 4, 15), lead, 2 * count)
    return _float(scales) + 0.5


@_block("IQ2_XXS", 256, 66, (256, 8))
def _iq2_xxs(x: Any, table: Any) -> Any:
    lead = len(x.shape) - 1
    words = _as(_part(x, 2, 66), lead, 8, 8)
    word = _word(_part(words, 4, 8), UINT32)  # [..., 8, 1]
    scale = _half(x, 0)
    scale = _as(scale, lead, 1, 1, 1) * _as(_float(_right(word, 28)) + 0.5, lead, 8, 1, 1) * 0.25
    signs = _sign_bits(_as(_even(_fields(word, lead + 1, 4, 7, 127)), lead, 8, 4, 1), lead + 2)
    return scale * _looked_up(table, _part(words, 0, 4)) * signs


@_block("IQ2_XS", 256, 74, (512, 8))
def _iq2_xs(x: Any, table: Any) -> Any:
    lead = len(x.shape) - 1
    q = _as(_word(_part(x, 2, 66), UINT16), lead, 16, 2)
    scale = _as(_half(x, 0), lead, 1, 1, 1) * _as(_eighths(x, 66, 8), lead, 16, 1, 1) * 0.25
    signs = _sign_bits(_as(_even(_right(q, 9)), lead, 16, 2, 1), lead + 2)
    return scale * _looked_up(table, q & 511) * signs


@_block("IQ2_S", 256, 82, (1024, 8))
def _iq2_s(x: Any, table: Any) -> Any:
    lead = len(x.shape) - 1
    scale = _as(_half(x, 0), lead, 1, 1, 1) * _as(_eighths(x, 74, 8), lead, 16, 1, 1) * 0.25
    signs = _sign_bits(_as(_part(x, 34, 66), lead, 16, 2, 1), lead + 2)
    high = _as(_bits(_as(_part(x, 66, 74), lead, 8, 1), lead + 1, 2, 3), lead, 32)
    index = _joined(build.convert(_part(x, 2, 34), UINT16), high, 8)
    return scale * _looked_up(table, _as(index, lead, 16, 2)) * signs


@_block("IQ3_XXS", 256, 98, (256, 4))
def _iq3_xxs(x: Any, table: Any) -> Any:
    lead = len(x.shape) - 1
    word = _as(_word(_part(x, 66, 98), UINT32), lead, 8, 1)
    scale = _as(_half(x, 0), lead, 1, 1, 1, 1) * _as(_float(_right(word, 28)) + 0.5, lead, 8, 1, 1, 1) * 0.5
    signs = _sign_bits(_as(_even(_fields(word, lead + 1, 4, 7, 127)), lead, 8, 4, 1), lead + 2)
    return scale * _looked_up(table, _as(_part(x, 2, 66), lead, 8, 4, 2)) * _as(signs, lead, 8, 4, 2, 4)


@_block("IQ3_S", 256, 110, (512, 4))
def _iq3_s(x: Any, table: Any) -> Any:
    lead = len(x.shape) - 1
    scales = _as(_bits(_as(_part(x, 106, 110), lead, 4, 1), lead + 1, 4, 15), lead, 8)
    scale = _as(_half(x, 0), lead, 1, 1, 1, 1) * _as(_float(scales * 2 + 1), lead, 8, 1, 1, 1)
    signs = _sign_bits(_as(_part(x, 74, 106), lead, 8, 4, 1), lead + 2)
    high = _as(_bits(_as(_part(x, 66, 74), lead, 8, 1), lead + 1, 1, 1), lead, 64)
    index = _as(_joined(build.convert(_part(x, 2, 66), UINT16), high, 8), lead, 8, 4, 2)
    return scale * _looked_up(table, index) * _as(signs, lead, 8, 4, 2, 4)


_DELTA = 0.125


@_block("IQ1_S", 256, 50, (2048, 8))
def _iq1_s(x: Any, table: Any) -> Any:
    lead = len(x.shape) - 1
    word = _as(_word(_part(x, 34, 50), UINT16), lead, 8, 1)
    scale = _half(x, 0)
    scale = _as(scale, lead, 1, 1, 1) * _as(_float((_right(word, 12) & 7) * 2 + 1), lead, 8, 1, 1)
    delta = _as(_either(build.eq(_right(word, 15), 0), _DELTA), lead, 8, 1, 1)
    low = build.convert(_as(_part(x, 2, 34), lead, 8, 4), UINT16)
    return scale * (_looked_up(table, _joined(low, _fields(word, lead + 1, 4, 3, 7), 8)) + delta)


@_block("IQ1_M", 256, 56, (2048, 8))
def _iq1_m(x: Any, table: Any) -> Any:
    """The scale of a block lies in the highest bits of four words, those of its parts in the others."""
    lead = len(x.shape) - 1
    words = _word(_part(x, 48, 56), UINT16)  # [..., 4]
    bits = None
    for i in range(4):
        nibble = _left(_right(_part(words, i, i + 1), 12), 4 * i)
        bits = nibble if bits is None else bits | nibble
    d = _float(prim.bitcast(_as(bits, lead, 1, 1, 1, 1), dtype=FLOAT16))
    scales = _as(_fields(_as(words, lead, 4, 1), lead + 1, 4, 3, 7), lead, 8, 2, 1, 1)
    high = _as(_bits(_as(_part(x, 32, 48), lead, 16, 1), lead + 1, 4, 15), lead, 8, 2, 2)
    index = _joined(_as(build.convert(_part(x, 0, 32), UINT16), lead, 8, 2, 2), high & 7, 8)
    delta = _as(_either(build.eq(high & 8, 0), _DELTA), lead, 8, 2, 2, 1)
    return d * _float(scales * 2 + 1) * (_looked_up(table, index) + delta)


# ***** operators *****


def _decoded(blocks: Any, table: Any, kind: str) -> Any:
    """Numbers of blocks [..., B, bytes], as [..., B, *dims]."""
    form = BLOCK_TYPES.get(kind)
    if form is None:
        raise ValueError(f"GGUF has no blocks of type {kind!r}; there are {', '.join(BLOCK_TYPES)}")
    if blocks.dtype is not UINT8 or len(blocks.shape) < 2 or blocks.shape[-1] != form.nbytes:
        raise RuntimeError(
            f"blocks of {kind} are bytes [..., B, {form.nbytes}], got {blocks.dtype.name}{list(blocks.shape)}"
        )
    if form.table is None:
        return form.decode(blocks)
    if table is None or table.shape != form.table or table.dtype is not FLOAT32:
        raise RuntimeError(f"{kind} looks its numbers up in a float32 table {list(form.table)}, got {table!r}")
    return form.decode(blocks, table)


@operator("gguf_numbers(Tensor blocks, Tensor? table, *, str kind) -> Tensor", spaces=(), method=False,
          underivable="integers have no derivative")  # fmt: skip
def gguf_numbers(blocks: Any, table: Any, *, kind: str) -> Any:
    """The numbers [..., B * n] in float32 of blocks [..., B, bytes] of the type `kind`."""
    numbers = _decoded(blocks, table, kind)
    lead = len(blocks.shape) - 2
    return build.reshape(numbers, (*blocks.shape[:lead], math.prod(numbers.shape[lead:])))


@operator("gguf_linear(Tensor input, Tensor blocks, Tensor? table, *, str kind) -> Tensor", spaces=(), method=False)  # fmt: skip
def gguf_linear(x: Any, blocks: Any, table: Any, *, kind: str) -> Any:
    """input [..., K] in float32 or float64 times a weight [N, K] in blocks [N, B, bytes]: [..., N].

    The weight is decoded where it is read: in registers for a few rows of input, else while it is packed for the product.
    """
    if x.dtype not in (FLOAT32, FLOAT64) or len(blocks.shape) != 3:
        raise RuntimeError(
            f"gguf_linear takes rows in float32 or float64 and blocks [N, B, bytes], got {x!r}, {blocks!r}"
        )
    weight = build.convert(_decoded(blocks, table, kind), x.dtype)
    n, depth = blocks.shape[0], math.prod(weight.shape[1:])
    if x.shape[-1] != depth:
        raise RuntimeError(f"gguf_linear: rows of {x.shape[-1]} numbers and a weight of rows of {depth}")
    rows = math.prod(x.shape[:-1])
    if rows > FEW:
        flat = build.transpose(build.reshape(weight, (n, depth)), (1, 0))
        return build.reshape(build.dot(build.reshape(x, (rows, depth)), flat), (*x.shape[:-1], n))
    inner = weight.shape[1:]
    shape = (rows, n, *inner)
    after = tuple(range(2, len(shape)))
    wide = prim.broadcast(build.reshape(x, (rows, *inner)), shape=shape, dims=(0, *after))
    y = prim.sum(wide * prim.broadcast(weight, shape=shape, dims=(1, *after)), dims=after)
    return build.reshape(y, (*x.shape[:-1], n))
