"""libdevice's functions on bits and integers, its conversions, and those that are formulas of others.

Functions that round in another direction than to the nearest, Bessel functions and inverses of `erfc` and `normcdf` are not here:
asking for them says so.
"""

from __future__ import annotations

import math as python_math
from collections.abc import Callable
from typing import Any

from .ambient import builtin
from .arithmetic import abs_of, cast, where
from .dtypes import BY_TRITON_NAME, dtype
from .mathematics import FUNCTIONS, umulhi
from .promotion import operands
from .values import tensor, to_tensor

__all__ = ["ABSENT"]

_INT32, _UINT32, _INT64, _UINT64 = (BY_TRITON_NAME[name] for name in ("int32", "uint32", "int64", "uint64"))
_FLOAT, _DOUBLE = BY_TRITON_NAME["fp32"], BY_TRITON_NAME["fp64"]

_INEXACT = ("rd", "ru", "rz")
# Functions of libdevice that rushlight lacks
ABSENT = frozenset(
    [
        *(f"{name}_{way}" for name in ("add", "sub", "mul", "div", "fma", "sqrt", "rcp") for way in _INEXACT),
        *(f"{kind}2{to}_{way}" for kind in ("ll", "ull") for to in ("float", "double") for way in _INEXACT),
        *"cyl_bessel_i0 cyl_bessel_i1 j0 j1 jn y0 y1 yn erfcinv normcdfinv rcp64h".split(),
    ]
)


def _register(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def attach(function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*xs: Any) -> Any:
            return function(*map(to_tensor, xs))

        called.__name__ = called.__qualname__ = name
        called.__doc__ = function.__doc__ or f"{name}, as in libdevice."
        FUNCTIONS[name] = builtin(called)
        return function

    return attach


def _bits(x: tensor, to: dtype) -> tensor:
    return cast(x, to, bitcast=True)


def _unsigned(x: tensor) -> tensor:
    return _bits(x, _UINT64 if x.dtype.int_bitwidth == 64 else _UINT32)


# ***** conversions *****

_ROUNDED = {"rn": "rint", "rd": "floor", "ru": "ceil", "rz": "trunc"}
_WHOLE = {"int": _INT32, "uint": _UINT32, "ll": _INT64, "ull": _UINT64}


def _to_whole(x: tensor, way: str, to: dtype) -> tensor:
    """A float as an integer; what does not fit becomes the nearest that does, NaN 0."""
    signed = to.is_int_signed()
    high = 2 ** (to.int_bitwidth - signed)
    low = -high if signed else 0
    whole = FUNCTIONS[_ROUNDED[way]](x)
    inside = (whole >= float(low)) & (whole < float(high))
    found = cast(where(inside, whole, 0.0), to)
    edge = where(whole > 0, cast(to_tensor(high - 1), to), cast(to_tensor(low), to))
    return where(inside | (x != x), found, edge)


def _to_float(exact: tensor, way: str) -> tensor:
    """A double as a float, rounded in some direction."""
    near = cast(exact, _FLOAT)
    again = cast(near, _DOUBLE)
    infinity = float("inf")
    down, up = (FUNCTIONS["nextafter"](near, near * 0 + end) for end in (-infinity, infinity))
    above, below = again > exact, again < exact
    if way == "rd":
        return where(above, down, near)
    if way == "ru":
        return where(below, up, near)
    if way == "rz":
        return where((exact > 0) & above, down, where((exact < 0) & below, up, near))
    return near


def _conversions() -> None:
    for kind, source in (("float", _FLOAT), ("double", _DOUBLE)):
        for name, to in _WHOLE.items():
            for way in _ROUNDED:
                _register(f"{kind}2{name}_{way}")(
                    lambda x, way=way, to=to, source=source: _to_whole(cast(x, source), way, to)
                )
    for way in _ROUNDED:
        _register(f"double2float_{way}")(lambda x, way=way: _to_float(x, way))
        for name in ("int", "uint"):
            _register(f"{name}2float_{way}")(
                lambda x, way=way, of=_WHOLE[name]: _to_float(cast(cast(x, of), _DOUBLE), way)
            )
    for name, of in _WHOLE.items():
        _register(f"{name}2double_rn")(lambda x, of=of: cast(cast(x, of), _DOUBLE))
    for name in ("ll", "ull"):
        _register(f"{name}2float_rn")(lambda x, of=_WHOLE[name]: cast(cast(x, of), _FLOAT))
    for name, to in (
        ("float_as_int", _INT32), ("float_as_uint", _UINT32), ("int_as_float", _FLOAT), ("uint_as_float", _FLOAT),
        ("double_as_longlong", _INT64), ("longlong_as_double", _DOUBLE),
    ):  # fmt: skip
        _register(name)(lambda x, to=to: _bits(x, to))
    _register("double2hiint")(lambda x: cast(_bits(x, _INT64) >> 32, _INT32))
    _register("double2loint")(lambda x: cast(_bits(x, _INT64), _INT32))


@_register("hiloint2double")
def _double_of_parts(high: tensor, low: tensor) -> tensor:
    return _bits((cast(high, _INT64) << 32) | cast(_bits(low, _UINT32), _INT64), _DOUBLE)


# ***** bits and integers *****


@_register("popc")
def _count_bits(x: tensor) -> tensor:
    u = _unsigned(x)
    wide = u.dtype.int_bitwidth
    a, b, c = (_number(mask, u) for mask in (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F))
    u = u - ((u >> 1) & a)
    u = (u & b) + ((u >> 2) & b)
    u = (u + (u >> 4)) & c
    return cast((u * _number(0x0101010101010101, u)) >> (wide - 8), _INT32)


def _number(value: int, like: tensor) -> tensor:
    """An unsigned number of the bits of another."""
    return cast(to_tensor(value & (2**like.dtype.int_bitwidth - 1)), like.dtype)


def _smeared(u: tensor) -> tensor:
    """All bits below the highest that is set are set."""
    step = 1
    while step < u.dtype.int_bitwidth:
        u, step = u | (u >> step), 2 * step
    return u


@_register("clz")
def _leading_zeros(x: tensor) -> tensor:
    u = _unsigned(x)
    return u.dtype.int_bitwidth - _count_bits(_smeared(u))


@_register("ffs")
def _first_set(x: tensor) -> tensor:
    """The number of the lowest bit that is set, from 1 on; 0 for 0."""
    u = _unsigned(x)
    return where(u == 0, 0, _count_bits(u ^ (u - 1)))


@_register("brev")
def _reversed_bits(x: tensor) -> tensor:
    u, step = _unsigned(x), 1
    wide = u.dtype.int_bitwidth
    while step < wide:
        mask = _number(sum(((1 << step) - 1) << at for at in range(0, wide, 2 * step)), u)
        u, step = ((u >> step) & mask) | ((u & mask) << step), 2 * step
    return _bits(u, x.dtype)


@_register("byte_perm")
def _chosen_bytes(x: tensor, y: tensor, selector: tensor) -> tensor:
    """Four of the eight bytes of x and y, by the lower three bits of each hexadecimal digit of the selector."""
    both = (cast(_bits(y, _UINT32), _UINT64) << 32) | cast(_bits(x, _UINT32), _UINT64)
    found: Any = 0
    for place in range(4):
        number = cast((selector >> (4 * place)) & 7, _UINT64)
        found = (((both >> (number * 8)) & 255) << (8 * place)) | found
    return cast(cast(found, _UINT32), _INT32, bitcast=True)


@_register("mul24")
def _product_of_24_bits(x: tensor, y: tensor) -> tensor:
    a, b = operands(x, y)
    return ((a << 8) >> 8) * ((b << 8) >> 8)


@_register("mulhi")
def _upper_product(x: tensor, y: tensor) -> tensor:
    a, b = operands(x, y)
    upper = umulhi(a, b)
    if not a.dtype.is_int_signed():
        return upper
    return upper - where(a < 0, b, 0) - where(b < 0, a, 0)


@_register("sad")
def _sum_of_difference(x: tensor, y: tensor, z: tensor) -> tensor:
    a, b = operands(x, y)
    return cast(where(a > b, a - b, b - a), z.dtype) + z


@_register("hadd")
def _average(x: tensor, y: tensor) -> tensor:
    a, b = operands(x, y)
    return (a & b) + ((a ^ b) >> 1)


@_register("rhadd")
def _average_rounded_up(x: tensor, y: tensor) -> tensor:
    a, b = operands(x, y)
    return (a | b) - ((a ^ b) >> 1)


# ***** floats *****


def _on_floats(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For a function of floats; integers are converted."""

    def attach(function: Callable[..., Any]) -> Callable[..., Any]:
        _register(name)(lambda *xs: function(*(cast(x, _FLOAT) if x.dtype.is_int() else x for x in xs)))
        return function

    return attach


@_on_floats("fdim")
def _positive_difference(x: tensor, y: tensor) -> tensor:
    a, b = operands(x, y)
    return where(a <= b, a * 0 + 0.0, a - b)


def _power_of_two(n: tensor) -> tensor:
    """2^n as a double, for n from -1022 to 1023."""
    return _bits((cast(n, _INT64) + 1023) << 52, _DOUBLE)


def _scaled(x: tensor, n: tensor) -> tensor:
    """x 2^n, rounded once."""
    wide, n = cast(x, _DOUBLE), cast(n, _INT32)
    for _ in range(2):
        small, large = n < -1022, n > 1023
        wide = where(small, wide * 2.0**-969, where(large, wide * 2.0**1023, wide))
        n = where(small, n + 969, where(large, n - 1023, n))
    n = where(n < -1022, -1022, where(n > 1023, 1023, n))
    return cast(wide * _power_of_two(n), x.dtype)


_register("ldexp")(_scaled)
_register("scalbn")(_scaled)


def _exponent(x: tensor) -> tensor:
    """The exponent of a number that is neither zero nor infinite nor NaN."""
    wide = cast(x, _DOUBLE)
    tiny = abs_of(wide) < 2.0**-1022
    bits = _bits(where(tiny, wide * 2.0**54, wide), _INT64)
    return cast((bits >> 52) & 2047, _INT32) - where(tiny, 1023 + 54, 1023)


@_on_floats("ilogb")
def _whole_exponent(x: tensor) -> tensor:
    last = cast(to_tensor(-(2**31)), _INT32)
    infinite = abs_of(x) == float("inf")
    return where((x == 0) | (x != x), last, where(infinite, cast(to_tensor(2**31 - 1), _INT32), _exponent(x)))


@_on_floats("logb")
def _float_exponent(x: tensor) -> tensor:
    whole = cast(_exponent(x), x.dtype)
    unusual = (x != x) | (abs_of(x) == float("inf"))
    return where(unusual, x * x, where(x == 0, x * 0 - float("inf"), whole))


@_on_floats("remainder")
def _nearest_remainder(x: tensor, y: tensor) -> tensor:
    """x - n y for the whole n nearest to x / y, even ones of two."""
    a, b = operands(x, y)
    size, unit = abs_of(a), abs_of(b)
    double = unit + unit
    r = where(double < float("inf"), FUNCTIONS["fmod"](size, double), size)
    upper = r > unit - r  # r + r > unit, without overflow
    r = where(upper, r - unit, r)
    r = where(upper & (r >= unit - r), r - unit, r)
    r = where(unit == float("inf"), size, r)
    wrong = (a != a) | (b != b) | (size == float("inf")) | (unit == 0)
    signed = where(FUNCTIONS["signbit"](a) != 0, -r, r)
    return where(wrong, a * 0 + float("nan"), signed)


def _norm(*xs: tensor) -> tensor:
    """The square root of a sum of squares, without overflow in between."""
    sizes = [abs_of(x) for x in operands(*xs)]
    largest = sizes[0]
    for size in sizes[1:]:
        largest = where(size > largest, size, largest)
    unit = where((largest == 0) | (largest == float("inf")), 1.0, largest)
    total: Any = 0.0
    for size in sizes:
        total = total + (size / unit) * (size / unit)
    return where(largest == float("inf"), largest, unit * FUNCTIONS["sqrt"](total))


@_on_floats("sinpi")
def _sine_of_pi(x: tensor) -> tensor:
    return _of_pi(x, 0)


@_on_floats("cospi")
def _cosine_of_pi(x: tensor) -> tensor:
    return _of_pi(x, 1)


def _of_pi(x: tensor, quarter: int) -> tensor:
    """sin(pi (x + quarter / 2)); the quarter turn is exact."""
    rint = FUNCTIONS["rint"]
    turned = x - 2.0 * rint(x * 0.5)  # -1 to 1
    half = rint(turned * 2.0)
    angle = (turned - half * 0.5) * python_math.pi
    number = (cast(half, _INT32) + quarter) & 3
    sine, cosine = FUNCTIONS["sin"](angle), FUNCTIONS["cos"](angle)
    found = where(number == 0, sine, where(number == 1, cosine, where(number == 2, -sine, -cosine)))
    return where(abs_of(x) == float("inf"), x * 0 + float("nan"), found)


@_on_floats("tgamma")
def _gamma(x: tensor) -> tensor:
    """Computed in double; for doubles the error grows with the logarithm of the result."""
    wide = cast(x, _DOUBLE)
    size = FUNCTIONS["exp"](FUNCTIONS["lgamma"](wide))
    whole = FUNCTIONS["floor"](wide)
    odd = FUNCTIONS["fmod"](whole, whole * 0 + 2.0) != 0
    found = where((wide < 0) & odd, -size, size)
    pole = (wide < 0) & (whole == wide) | (wide == -float("inf"))
    found = where(pole, wide * 0 + float("nan"), where(wide == 0, 1.0 / wide, found))
    return cast(found, x.dtype)


@_on_floats("erfcx")
def _scaled_erfc(x: tensor) -> tensor:
    """exp(x^2) erfc(x)."""
    wide = cast(x, _DOUBLE)
    square = wide * wide
    rest = FUNCTIONS["fma"](wide, wide, -square)
    near = FUNCTIONS["exp"](square) * (1.0 + rest) * FUNCTIONS["erfc"](wide)
    inverse = 1.0 / square
    far = 1.0 + inverse * (-0.5 + inverse * (0.75 + inverse * (-1.875 + inverse * (6.5625 - inverse * 29.53125))))
    far = far * (python_math.pi**-0.5) / wide
    return cast(where(wide > 25.0, far, where(wide < -26.7, wide * 0 + float("inf"), near)), x.dtype)


def _formulas() -> None:
    for name in ("norm3d", "norm4d"):
        _on_floats(name)(_norm)
        _on_floats(f"r{name}")(lambda *xs: 1.0 / _norm(*xs))
    _on_floats("rhypot")(lambda x, y: 1.0 / FUNCTIONS["hypot"](x, y))
    _on_floats("rcbrt")(lambda x: 1.0 / FUNCTIONS["cbrt"](x))
    _on_floats("llrint")(lambda x: _to_whole(x, "rn", _INT64))
    _on_floats("llround")(lambda x: _to_whole(FUNCTIONS["round"](x), "rn", _INT64))
    _on_floats("fast_exp10f")(lambda x: FUNCTIONS["exp10"](x))
    _on_floats("fast_log10f")(lambda x: FUNCTIONS["log10"](x))


_conversions()
_formulas()
