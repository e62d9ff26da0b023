"""The floats of eight bits: five formats, and the rounding of numbers to each.

A format has a sign bit, exponent bits and mantissa bits (`float8_e8m0fnu` has eight exponent bits and nothing else:
powers of two and one NaN).  They differ at the top of the range:

- `e5m2` has infinities and NaN like IEEE 754's formats; larger numbers become infinite;
- `e4m3fn` has one NaN for each sign and no infinity; larger numbers become the largest one;
- the `fnuz` formats have one zero, and their only NaN has the code of the negative zero; larger numbers become NaN.

"FP8 formats for deep learning" (Micikevicius et al., 2022); OCP Microscaling Formats (MX) v1.0 for e8m0.  Rounding is
to nearest, ties to even.  All conversions start from float32: numbers of other dtypes go through it.
"""

from __future__ import annotations

import math
import struct
from typing import NamedTuple

__all__ = ["FORMATS", "Format", "decode", "encode", "values"]


class Format(NamedTuple):
    """`top` is the code of the largest finite number; `over` and `nan` are the codes (without a sign, if there is one)
    for larger numbers and for NaN; `unsigned_zero` marks the formats in which 0x80 is NaN."""

    mantissa: int
    bias: int
    top: int
    over: int
    nan: int
    unsigned_zero: bool = False


FORMATS = {
    "float8_e4m3fn": Format(3, 7, 0x7E, 0x7E, 0x7F),
    "float8_e5m2": Format(2, 15, 0x7B, 0x7C, 0x7F),
    "float8_e4m3fnuz": Format(3, 8, 0x7F, 0x80, 0x80, True),
    "float8_e5m2fnuz": Format(2, 16, 0x7F, 0x80, 0x80, True),
    "float8_e8m0fnu": Format(0, 127, 0xFE, 0xFF, 0xFF),
}


def decode(name: str, code: int) -> float:
    """The number that a code stands for."""
    form = FORMATS[name]
    if name == "float8_e8m0fnu":
        return math.nan if code == form.nan else 2.0 ** (code - form.bias)
    if form.unsigned_zero and code == form.nan:
        return math.nan
    sign, rest = (-1.0 if code & 0x80 else 1.0), code & 0x7F
    if rest > form.top:
        return sign * math.inf if rest == form.over else math.nan
    exponent, mantissa = rest >> form.mantissa, rest & (1 << form.mantissa) - 1
    if exponent:
        mantissa += 1 << form.mantissa
    return sign * math.ldexp(mantissa, max(exponent, 1) - form.bias - form.mantissa)


_VALUES: dict[str, list[float]] = {}


def values(name: str) -> list[float]:
    """The numbers of all 256 codes."""
    if name not in _VALUES:
        _VALUES[name] = [decode(name, code) for code in range(256)]
    return _VALUES[name]


def encode(name: str, value: float) -> int:
    """The code nearest to a number, which is rounded to float32 first."""
    form = FORMATS[name]
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        bits = 0x7F800000 if value > 0 else 0xFF800000
    size, sign = bits & 0x7FFFFFFF, bits >> 24 & 0x80
    if name == "float8_e8m0fnu":
        if size >= 0x7F800000:
            return form.nan
        # halfway rounds up, as the even mantissa of the next power is nearer; below the smallest power it rounds down
        return (size >> 23) + ((size & 0x7FFFFF) > (0x3FFFFF if size >> 23 else 0x400000))
    if size > 0x7F800000:
        return form.nan | (0 if form.unsigned_zero else sign)
    (exact,) = struct.unpack("<f", struct.pack("<I", size))
    if size < 1 - form.bias + 127 << 23:  # multiples of the smallest number
        code = round(math.ldexp(exact, form.bias + form.mantissa - 1))
    else:
        drop = 23 - form.mantissa
        code = (size - (127 - form.bias << 23) + (1 << drop - 1) - 1 + (size >> drop & 1)) >> drop
    if code > form.top:
        code = form.over
    if form.unsigned_zero and code in (0, form.nan):
        return code
    return code | sign
