"""Arithmetic of PTX on arrays: one element a thread, results with the bits that the instruction set prescribes.

Functions take and give NumPy arrays of the instruction's type; signed and unsigned integers wrap around.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = [
    "DTYPES", "bf16_of", "compare", "float_of_bf16", "fused", "integers", "permute", "round_odd_sum", "shift_left", "shift_right",
]  # fmt: skip

Array = Any

DTYPES: dict[str, Any] = {
    "pred": np.bool_, "b8": np.uint8, "u8": np.uint8, "s8": np.int8, "b16": np.uint16, "u16": np.uint16, "s16": np.int16, "f16": np.float16,
    "bf16": np.uint16, "b32": np.uint32, "u32": np.uint32, "s32": np.int32, "f32": np.float32, "b64": np.uint64, "u64": np.uint64,
    "s64": np.int64, "f64": np.float64, "f16x2": np.uint32, "bf16x2": np.uint32,
}  # fmt: skip

_libm = ctypes.CDLL(ctypes.util.find_library("m") or "libm.so.6")
_libm.fma.restype, _libm.fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3
_fma64 = np.frompyfunc(_libm.fma, 3, 1)


# ***** floating point *****


def float_of_bf16(x: Array) -> Array:
    """bfloat16 as bits to float32, which holds every one."""
    return (x.astype(np.uint32) << 16).view(np.float32)


def bf16_of(x: Array) -> Array:
    """float32 to the bits of the nearest bfloat16, ties to even; every NaN is 0x7FFF."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(0x7FFF), rounded)


def round_odd_sum(a: Array, b: Array) -> Array:
    """a + b in float64, inexact sums to the neighbour with an odd last bit: another rounding, to fewer bits, is then exact."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = total.view(np.int64)
    # where the sum was rounded and its last bit is even, its neighbour in the direction of the error is odd
    away = (error > 0) == (total > 0)
    moved = np.where(away, bits + 1, bits - 1).view(np.float64)
    odd = (bits & 1 == 0) & (error != 0) & np.isfinite(total) & (total != 0)
    return np.where(odd, moved, total)


def fused(a: Array, b: Array, c: Array) -> Array:
    """a b + c with one rounding."""
    if a.dtype == np.float64:
        return _fma64(a, b, c).astype(np.float64)
    wide = [x.astype(np.float64) for x in (a, b, c)]
    return round_odd_sum(wide[0] * wide[1], wide[2]).astype(a.dtype)


def fused_bf16(a: Array, b: Array, c: Array) -> Array:
    """The same for bits of bfloat16."""
    wide = [float_of_bf16(x).astype(np.float64) for x in (a, b, c)]
    return bf16_of_double(round_odd_sum(wide[0] * wide[1], wide[2]))


def bf16_of_double(x: Array) -> Array:
    """float64 to the nearest bfloat16: by a float32 that is rounded to odd."""
    near = x.astype(np.float32)
    bits = near.view(np.int32)
    error = x - near.astype(np.float64)
    moved = np.where((error > 0) == (near > 0), bits + 1, bits - 1).view(np.float32)
    odd = (bits & 1 == 0) & (error != 0) & np.isfinite(near) & (near != 0)
    return bf16_of(np.where(odd, moved, near))


def least(a: Array, b: Array, nan: bool) -> Array:
    """min: -0 is below +0; a NaN counts only if both are, or where `nan`."""
    found = np.minimum(a, b) if nan else np.fmin(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), found)


def greatest(a: Array, b: Array, nan: bool) -> Array:
    """max, likewise."""
    found = np.maximum(a, b) if nan else np.fmax(a, b)
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), found)


# ***** integers *****


def high_product(a: Array, b: Array) -> Array:
    """The upper half of a product."""
    bits = 8 * a.dtype.itemsize
    if bits < 64:
        wide = {16: np.int32, 32: np.int64}[bits] if a.dtype.kind == "i" else {16: np.uint32, 32: np.uint64}[bits]
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    product = np.array([int(x) * int(y) >> 64 for x, y in zip(a.ravel(), b.ravel(), strict=True)], object)
    return (product & 0xFFFFFFFFFFFFFFFF).astype(np.uint64).view(a.dtype).reshape(a.shape)


def wide_product(a: Array, b: Array) -> Array:
    wide = {"i2": np.int32, "i4": np.int64, "u2": np.uint32, "u4": np.uint64}[a.dtype.str[1:]]
    return a.astype(wide) * b.astype(wide)


def quotient(a: Array, b: Array) -> Array:
    """Towards zero; by zero all bits are set."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        return np.where(b == 0, ~b.dtype.type(0), a // safe)
    lowest = np.iinfo(a.dtype).min
    safe = np.where((a == lowest) & (b == -1), b.dtype.type(1), safe)
    found = a // safe
    found = found + ((found < 0) & (found * safe != a)).astype(a.dtype)
    return np.where(b == 0, a.dtype.type(-1), found)


def remainder(a: Array, b: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.where(b == 0, a, a - quotient(a, b) * b)


def shift_left(a: Array, by: Array) -> Array:
    """Amounts above the width are the width."""
    bits = 8 * a.dtype.itemsize
    return np.where(by < bits, a << np.minimum(by, bits - 1).astype(a.dtype), a.dtype.type(0))


def shift_right(a: Array, by: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    moved = a >> np.minimum(by, bits - 1).astype(a.dtype)
    return moved if a.dtype.kind == "i" else np.where(by < bits, moved, a.dtype.type(0))


def funnel(low: Array, high: Array, by: Array, left: bool, wrap: bool) -> Array:
    """shf: 32 bits of the 64 bits of two registers."""
    by = (by & 31 if wrap else np.minimum(by, 32)).astype(np.uint64)
    both = high.astype(np.uint64) << np.uint64(32) | low.astype(np.uint64)
    return ((both << by) >> np.uint64(32) if left else both >> by).astype(np.uint32)


def permute(a: Array, b: Array, selector: Array) -> Array:
    """prmt: bytes of eight, each chosen by four bits, the highest of which asks for the sign alone."""
    both = np.stack([(x >> np.uint32(8 * k) & np.uint32(0xFF)) for x in (a, b) for k in range(4)], -1)
    out = np.zeros(a.shape, np.uint32)
    for k in range(4):
        chosen = (selector >> np.uint32(4 * k)) & np.uint32(0xF)
        byte = np.take_along_axis(both, (chosen & 7).astype(np.int64)[..., None], -1)[..., 0]
        byte = np.where(chosen & 8, np.where(byte & 0x80, np.uint32(0xFF), np.uint32(0)), byte)
        out |= byte.astype(np.uint32) << np.uint32(8 * k)
    return out


def extract_field(a: Array, position: Array, length: Array) -> Array:
    """bfe: bits from a position on; those beyond the highest are its sign, or zero."""
    position, length = (x.astype(np.int64) & 0xFF for x in (position, length))
    wide = a.astype(np.int64) if a.dtype.kind == "i" else a.astype(np.uint64)
    moved = shift_right(wide, position).view(np.uint64)
    above = np.where(length < 64, np.uint64(64) - np.minimum(length, 64).astype(np.uint64), np.uint64(0))
    field = shift_left(moved, above).view(wide.dtype)
    return np.where(length == 0, 0, shift_right(field, above)).astype(a.dtype)


def insert_field(a: Array, b: Array, position: Array, length: Array) -> Array:
    """bfi: b with bits of a from a position on."""
    bits = 8 * a.dtype.itemsize
    position, length = (x.astype(np.uint64) & np.uint64(0xFF) for x in (position, length))
    ones = np.where(
        length >= 64, np.uint64(0xFFFFFFFFFFFFFFFF), (np.uint64(1) << np.minimum(length, 63)) - np.uint64(1)
    )
    mask = np.where(position < bits, ones << np.minimum(position, 63), np.uint64(0)).astype(a.dtype)
    moved = np.where(position < bits, a.astype(np.uint64) << np.minimum(position, 63), np.uint64(0)).astype(a.dtype)
    return (b & ~mask) | (moved & mask)


def count_ones(a: Array) -> Array:
    return np.bitwise_count(a).astype(np.uint32)


def leading_zeros(a: Array) -> Array:
    bits = 8 * a.dtype.itemsize
    left, count = a.copy(), np.zeros(a.shape, np.uint32)
    step = bits // 2
    while step:
        above = left >> a.dtype.type(bits - step) == 0
        count += np.where(above, np.uint32(step), np.uint32(0))
        left = np.where(above, left << a.dtype.type(step), left)
        step //= 2
    return np.where(a == 0, np.uint32(bits), count)


def highest_bit(a: Array, shift: bool) -> Array:
    """bfind: the place of the highest one (of the highest bit that is no copy of the sign), or all ones."""
    bits = 8 * a.dtype.itemsize
    plain = np.where(a < 0, ~a, a) if a.dtype.kind == "i" else a
    plain = plain.view(f"u{a.dtype.itemsize}")
    zeros = leading_zeros(plain)
    return np.where(plain == 0, np.uint32(0xFFFFFFFF), zeros if shift else np.uint32(bits - 1) - zeros)


def reversed_bits(a: Array) -> Array:
    bits, out = 8 * a.dtype.itemsize, np.zeros_like(a)
    for k in range(bits):
        out |= (a >> a.dtype.type(k) & a.dtype.type(1)) << a.dtype.type(bits - 1 - k)
    return out


def logic3(a: Array, b: Array, c: Array, table: int) -> Array:
    """lop3: bit by bit, by a table of eight bits."""
    out = np.zeros_like(a)
    for k in range(8):
        if table >> k & 1:
            out |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    return out


_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
}  # fmt: skip
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compare(how: str, a: Array, b: Array) -> Array:
    """setp's comparisons: ordered, unordered (equ, ltu, ...), num, nan.  NaN differs from everything, but only `neu` says so."""
    how = _UNSIGNED.get(how, how)
    if a.dtype.kind != "f":
        return _COMPARE[how](a, b)
    nan = np.isnan(a) | np.isnan(b)
    if how in ("num", "nan"):
        return nan if how == "nan" else ~nan
    if how in _COMPARE:
        return _COMPARE[how](a, b) & ~nan
    return _COMPARE[how[:-1]](a, b) | nan


def integers(a: Array, dtype: Any, how: str) -> Array:
    """Floating point to integers: how to round is `rni`, `rzi`, `rmi` or `rpi`; too large numbers are the nearest integer; NaN is
    zero, or only the highest bit where either type has 64 bits.
    """
    rounded = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[how](a.astype(np.float64))
    info = np.iinfo(dtype)
    out = np.zeros(a.shape, dtype)
    inside = (rounded > float(info.min) - 1) & (rounded < float(info.max) + 1) & (rounded < 2.0**info.bits)
    if info.bits == 64:
        inside = (rounded >= float(info.min)) & (rounded < float(info.max))
    out[inside] = rounded[inside].astype(dtype)
    out[~inside & (rounded > 0)] = info.max
    out[~inside & (rounded < 0)] = info.min
    nan = np.array(1 << (info.bits - 1), np.uint64) if info.bits == 64 or a.dtype == np.float64 else np.uint64(0)
    out[np.isnan(a)] = nan.astype(f"u{info.bits // 8}").view(dtype)
    return out
