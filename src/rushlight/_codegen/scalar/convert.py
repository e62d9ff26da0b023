"""Conversions between every pair of dtypes, bit casts, and parts of complex numbers.

Floats that no integer can hold become what x86 gives and PyTorch therefore returns there: the smallest integer of the
32- or 64-bit type that the conversion goes through, cut to the target's width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rushlight._types.float8 import FORMATS as FLOAT8_FORMATS

from .writer import BITS, FLOATS, reg_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from rushlight._types.dtype import DType

    from .writer import Val, Value


def to_int32(x: Val) -> Val:
    """A float truncated to i32; the smallest integer when it does not fit or is NaN."""
    inside = x.abs().lt(2.0**31)
    return x.em.select(inside, x, -(2.0**31)).to("i32")


def to_int64(x: Val) -> Val:
    """A float truncated to i64; the smallest integer when it does not fit or is NaN."""
    inside = x.abs().lt(2.0**63)
    return x.em.select(inside, x, -(2.0**63)).to("i64")


def _to_unsigned(x: Val, bits: int, convert: Callable[[Val], Val]) -> Val:
    """A float as unsigned i64, as compilers for x86 convert it: the upper half is moved down and its top bit restored.
    Negative values wrap.
    """
    middle = 2.0 ** (bits - 1)
    high = x.ge(middle)
    moved = convert(x.em.select(high, x - middle, x))
    return x.em.select(high, moved ^ -(2 ** (bits - 1)), moved)


def _float_to_int(x: Val, target: DType) -> Val:
    if target.name == "uint64":
        return _to_unsigned(x, 64, to_int64)
    if target.name == "uint32":
        return _to_unsigned(x, 32, to_int32)
    # x86 goes through 64 bits to uint8; floats of 32 bits that only those hold are multiples of 256, zeros either way
    if target.name == "int64" or (target.name == "uint8" and x.type != "float"):
        return to_int64(x).to(reg_type(target))
    return to_int32(x).to(reg_type(target))


def bfloat16_bits(x: Val) -> Val:
    """A float rounded to the nearest bfloat16, ties to even; NaN becomes the quiet NaN 0x7FC0."""
    em, bits = x.em, x.bits()
    rounded = (bits + 0x7FFF + (bits.lshr(16) & 1)).lshr(16)
    return em.select(x.is_nan(), em.const("i32", 0x7FC0), rounded).to("i16")


def bfloat16_part(x: Val) -> Val:
    """A float that is a bfloat16 already, so that nothing need be rounded."""
    return x.bits().lshr(16).to("i16")


def _half_from_bits(x: Val) -> Val:
    """A half as float without the hardware's conversion: a product corrects the exponent, also of subnormal halves."""
    em, bits = x.em, x.bits().to("i32", signed=False)
    sign, rest = (bits & 0x8000) << 16, (bits & 0x7FFF) << 13
    value = (em.bitcast(rest, "float") * 2.0**112).bits()
    value = em.select(rest.ge(0x7C00 << 13), rest | 0x7F800000, value)
    return em.bitcast(value | sign, "float")


def _half_bits(x: Val) -> Val:
    """A float rounded to the nearest half, ties to even, without the hardware's conversion."""
    em, bits = x.em, x.bits()
    a = bits & 0x7FFFFFFF
    normal = (a + (((15 - 127) << 23) + 0xFFF) + (a.lshr(13) & 1)).lshr(13)
    # adding 1/2 leaves the bits of a subnormal half, rounded, at the low end
    subnormal = (em.bitcast(a, "float") + 0.5).bits() - (126 << 23)
    outside = em.select(a.gt(0x7F800000), em.const("i32", 0x7E00), 0x7C00)
    value = em.select(a.lt(113 << 23), subnormal, em.select(a.ge(143 << 23), outside, normal))
    return em.bitcast((value | (bits.lshr(16) & 0x8000)).to("i16"), "half")


def _from_float8(x: Val, name: str) -> Val:
    """A float8 as float: its bits as those of a float, and a product that corrects the exponent, also of subnormal
    numbers.
    """
    em, form, bits = x.em, FLOAT8_FORMATS[name], x.to("i32", signed=False)
    if name == "float8_e8m0fnu":
        power = em.select(bits.eq(0), em.const("i32", 1 << 22), bits << 23)
        return em.bitcast(em.select(bits.eq(form.nan), em.const("i32", 0x7F800001), power), "float")
    rest = bits & 0x7F
    value = (em.bitcast(rest << (23 - form.mantissa), "float") * 2.0 ** (127 - form.bias)).bits()
    if form.unsigned_zero:
        value = em.select(bits.eq(form.nan), em.const("i32", 0x7F800001), value | ((bits & 0x80) << 24))
        return em.bitcast(value, "float")
    special = rest << (23 - form.mantissa) | 0x7F800000
    if form.over > form.top:
        special = em.select(rest.gt(form.over), special | 0x400000, special)
    return em.bitcast(em.select(rest.gt(form.top), special, value) | ((bits & 0x80) << 24), "float")


def _to_float8(x: Val, name: str) -> Val:
    """A float rounded to the nearest float8, ties to even, as `_types/float8.py` says."""
    em, form, bits = x.em, FLOAT8_FORMATS[name], x.bits()
    a = bits & 0x7FFFFFFF
    if name == "float8_e8m0fnu":
        exponent, mantissa = a.lshr(23), a & 0x7FFFFF
        up = mantissa.gt(em.select(exponent.eq(0), em.const("i32", 0x400000), 0x3FFFFF))
        code = exponent + em.select(up, em.const("i32", 1), 0)
        return em.select(a.ge(0x7F800000), em.const("i32", form.nan), code).to("i8")
    drop, low = 23 - form.mantissa, 127 - form.bias
    normal = (a - (low << 23) + ((1 << drop - 1) - 1) + (a.lshr(drop) & 1)).lshr(drop)
    # added to this power of two a number below the normal ones leaves its bits, rounded, at the low end
    power = 24 - form.bias - form.mantissa
    subnormal = (em.bitcast(a, "float") + 2.0**power).bits() - (127 + power << 23)
    code = em.select(a.lt(low + 1 << 23), subnormal, normal)
    code = em.select(code.gt(form.top), em.const("i32", form.over), code)
    code = em.select(a.ge(143 << 23), em.const("i32", form.over), code)
    code = em.select(a.gt(0x7F800000), em.const("i32", form.nan), code)
    sign = bits.lshr(24) & 0x80
    if form.unsigned_zero:
        sign = em.select(code.eq(0) | code.eq(form.nan), em.const("i32", 0), sign)
    return (code | sign).to("i8")


def _widen(x: Val, source: DType) -> Val:
    """float8, float16 and bfloat16 as float; others unchanged."""
    if source.name in FLOAT8_FORMATS:
        return _from_float8(x, source.name)
    if source.name == "bfloat16":
        return x.em.bitcast(x.to("i32", signed=False) << 16, "float")
    if source.name == "float16":
        return x.to("float") if x.em.fma_hardware else _half_from_bits(x)
    return x


def _to_float(x: Val, source: DType, target: DType) -> Val:
    type = reg_type(target.wide)
    if x.type == "i1":
        x = x.em.select(x, x.em.const(type, 1.0), 0.0)
    else:
        x = x.to(type, source.is_signed)
    if target.name == "bfloat16":
        return bfloat16_bits(x)
    if target.name in FLOAT8_FORMATS:
        return _to_float8(x, target.name)
    if target.name == "float16":
        # the machines without fused multiply-add are those without conversions of halves
        return x.to("half") if x.em.fma_hardware else _half_bits(x)
    return x


def convert_real(x: Val, source: DType, target: DType) -> Val:
    """A real value of dtype `source` as one of the real dtype `target`."""
    if source is target:
        return x
    x = _widen(x, source)
    if target.kind == "b":
        return x.ne(0.0 if x.type in FLOATS else 0)
    if target.kind == "f":
        return _to_float(x, source, target)
    if x.type in FLOATS:
        return _float_to_int(x, target)
    return x.to(reg_type(target), source.is_signed and source.kind != "b")


def convert(x: Value, source: DType, target: DType) -> Value:
    """`x` of dtype `source` as `target`; complex to real drops the imaginary part, complex to bool asks for either
    part.
    """
    if source.kind == "c":
        re, im = x  # type: ignore[misc]
        if target.kind == "b":
            return re.ne(0.0) | im.ne(0.0)
        if target.kind == "c":
            parts = source.to_real(), target.to_real()
            return convert_real(re, *parts), convert_real(im, *parts)
        return convert_real(re, source.to_real(), target)
    if target.kind == "c":
        part = target.to_real()
        return convert_real(x, source, part), x.em.const(reg_type(part), 0.0)  # type: ignore[arg-type, union-attr]
    return convert_real(x, source, target)  # type: ignore[arg-type]


def bitcast(x: Value, source: DType, target: DType) -> Value:
    """The bytes as another dtype of the same size."""
    if source.itemsize != target.itemsize:
        raise NotImplementedError(f"bitcast from {source.name} to {target.name}: the sizes differ")
    if source.kind == "c":
        if target.kind == "c":
            return x
        re, im = x  # type: ignore[misc]
        half, whole = BITS[re.type], f"i{2 * BITS[re.type]}"
        joined = re.bits().to(whole, signed=False) | (im.bits().to(whole, signed=False) << half)
        return joined.em.bitcast(joined, reg_type(target))
    assert not isinstance(x, tuple)
    em = x.em
    if source.kind == "b":
        x = x.to("i8", signed=False)
    if target.kind == "c":
        part = reg_type(target)
        half = BITS[part]
        whole = em.bitcast(x, f"i{2 * half}")
        return tuple(em.bitcast(v.to(f"i{half}"), part) for v in (whole, whole.lshr(half)))  # type: ignore[return-value]
    return x.ne(0) if target.kind == "b" else em.bitcast(x, reg_type(target))
