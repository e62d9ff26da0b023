"""Elementary functions, and those of libdevice."""

from __future__ import annotations

import math as python_math
from collections.abc import Callable
from typing import Any

from .ambient import builder, builtin
from .arithmetic import abs_of, cast, compute, where
from .dtypes import BY_TRITON_NAME
from .promotion import operands
from .values import make, member, tensor, to_tensor

__all__ = [
    "FUNCTIONS", "abs", "cdiv", "ceil", "cos", "div_rn", "erf", "exp", "exp2", "fdiv", "floor", "fma", "log", "log2", "rsqrt", "sigmoid", "sin",
    "sqrt", "sqrt_rn", "umulhi",
]  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {}  # those of libdevice, by name


def _elementary(prim: str, doc: str, name: str = "") -> Callable[..., tensor]:
    """A function of fp32 and fp64."""

    def function(x: Any) -> tensor:
        value = to_tensor(x)
        if value.dtype.name not in ("fp32", "fp64"):
            raise ValueError(
                f"Expected dtype ['fp32', 'fp64'] but got {value.dtype}: cast the argument of {name or prim}"
            )
        return make(compute(prim, value.handle), value.dtype)

    function.__name__, function.__doc__, function.__qualname__ = name or prim, doc, name or prim
    return member()(builtin(function))


exp = _elementary("exp", "e to the power x.")
exp2 = _elementary("exp2", "2 to the power x.")
log = _elementary("log", "The natural logarithm.")
log2 = _elementary("log2", "The logarithm to base 2.")
sin = _elementary("sin", "Sine.")
cos = _elementary("cos", "Cosine.")
sqrt = _elementary("sqrt", "Square root, rounded as IEEE asks.")
sqrt_rn = _elementary("sqrt", "Square root, rounded as IEEE asks.", "sqrt_rn")
rsqrt = _elementary("rsqrt", "1 / sqrt(x).")
erf = _elementary("erf", "Error function.")
floor = _elementary("floor", "The next whole number below.")
ceil = _elementary("ceil", "The next whole number above.")


@member()
@builtin
def abs(x: Any) -> tensor:
    """|x|."""
    return abs_of(to_tensor(x))


@builtin
def fma(x: Any, y: Any, z: Any) -> tensor:
    """x * y + z, rounded once."""
    a, b, c = operands(x, y, z)
    if not a.dtype.is_floating():
        return a * b + c
    return make(compute("fma", a.handle, b.handle, c.handle), a.dtype)


@builtin
def fdiv(x: Any, y: Any, ieee_rounding: bool = False, approx: bool = False) -> tensor:
    """x / y of floats; always rounded as IEEE asks."""
    a, b = operands(x, y, division=True)
    if not a.dtype.is_floating():
        raise TypeError("fdiv requires floating-point operands after type promotion")
    return make(compute("div", a.handle, b.handle), a.dtype)


@builtin
def div_rn(x: Any, y: Any) -> tensor:
    """x / y of floats, rounded as IEEE asks."""
    return fdiv(x, y)


@builtin
def umulhi(x: Any, y: Any) -> tensor:
    """The upper half of the product of two integers."""
    a, b = operands(x, y)
    if a.dtype.name not in ("int32", "int64", "uint32", "uint64"):
        raise ValueError(f"umulhi takes integers of 32 or 64 bits, not {a.dtype}")
    unsigned = BY_TRITON_NAME[f"uint{a.dtype.int_bitwidth}"]
    x, y = (cast(v, unsigned, bitcast=True) for v in (a, b))
    return cast(make(builder().value("multiply_high", x.handle, y.handle), unsigned), a.dtype, bitcast=True)


@member()
@builtin
def sigmoid(x: Any) -> tensor:
    """1 / (1 + exp(-x))."""
    value = to_tensor(x)
    return 1 / (1 + exp(-value))


@member()
@builtin
def cdiv(x: Any, div: Any) -> Any:
    """The quotient of integers, rounded up."""
    return (x + (div - 1)) // div


# ***** libdevice *****


def _library(name: str, function: Callable[..., Any], doc: str = "") -> None:
    def called(*xs: Any) -> Any:
        return function(*map(_as_float, xs))

    called.__name__ = called.__qualname__ = name
    called.__doc__ = doc or f"{name} of floats."
    FUNCTIONS[name] = builtin(called)


def _as_float(x: Any) -> tensor:
    value = to_tensor(x)
    return cast(value, BY_TRITON_NAME["fp32"]) if value.dtype.is_int() else value


def _pointwise(prim: str) -> Callable[..., tensor]:
    def function(*xs: Any) -> tensor:
        values = operands(*xs) if len(xs) > 1 else (to_tensor(xs[0]),)
        return make(compute(prim, *(v.handle for v in values)), values[0].dtype)

    return function


def _question(of: Callable[[tensor], tensor]) -> Callable[[Any], tensor]:
    """A test that answers 0 or 1 as int32, as libdevice does."""
    return lambda x: cast(of(to_tensor(x)), BY_TRITON_NAME["int32"])


def _cbrt(x: tensor) -> tensor:
    size = compute("pow", abs_of(x).handle, (x * 0 + 1.0 / 3.0).handle)
    root = make(size, x.dtype)
    root = root - (root * root * root - abs_of(x)) / where(root == 0, 1.0, 3.0 * root * root)  # one step of Newton
    return make(compute("copysign", root.handle, x.handle), x.dtype)


def _round_away(x: tensor) -> tensor:
    """The nearest whole number, halves away from zero."""
    whole = make(compute("trunc", x.handle), x.dtype)
    one = make(compute("copysign", (x * 0 + 1.0).handle, x.handle), x.dtype)
    return where(abs_of(x - whole) >= 0.5, whole + one, whole)


def _hypot(x: Any, y: Any) -> tensor:
    """sqrt(x^2 + y^2) without overflow in between."""
    a, b = (abs_of(v) for v in operands(x, y))
    large, small = where(a > b, a, b), where(a > b, b, a)
    ratio = small / where(large == 0, 1.0, large)
    return where(large == float("inf"), large, large * sqrt(1 + ratio * ratio))


def _integer_power(x: Any, n: Any) -> tensor:
    a, b = operands(x, cast(to_tensor(n), to_tensor(x).dtype))
    return make(compute("pow", a.handle, b.handle), a.dtype)


def _fill() -> None:
    same = (
        "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc erfinv lgamma floor "
        "ceil trunc atan2 copysign nextafter fma"
    )
    for name in same.split():
        _library(name, _pointwise(name))
    others = {
        "rint": "round", "nearbyint": "round", "roundeven": "round", "pow": "pow", "fmod": "rem_trunc", "div_rn": "div", "fdiv": "div",
        "sqrt_rn": "sqrt", "fast_expf": "exp", "fast_logf": "log", "fast_log2f": "log2", "fast_sinf": "sin", "fast_cosf": "cos",
        "fast_tanf": "tan", "fast_powf": "pow", "fast_dividef": "div", "fma_rn": "fma", "add_rn": "add", "sub_rn": "sub", "mul_rn": "mul",
        "rsqrt_rn": "rsqrt", "fast_tanhf": "tanh",
    }  # fmt: skip
    for name, prim in others.items():
        _library(name, _pointwise(prim))
    _library("abs", lambda x: abs_of(x))
    _library("fabs", lambda x: abs_of(x))
    _library("cbrt", _cbrt)
    _library("exp10", lambda x: exp(x * python_math.log(10.0)))
    _library("hypot", _hypot)
    _library("rcp_rn", lambda x: 1.0 / x)
    _library("isnan", _question(lambda x: x != x))
    _library("isinf", _question(lambda x: abs_of(x) == float("inf")))
    _library("finitef", _question(lambda x: abs_of(x) < float("inf")))
    _library("isfinited", _question(lambda x: abs_of(x) < float("inf")))
    _library("signbit", _question(lambda x: make(compute("signbit", x.handle), BY_TRITON_NAME["int1"])))
    _library("round", _round_away)
    _library("saturatef", lambda x: where(x > 0, where(x < 1, x, 1.0), 0.0))
    _library("normcdf", lambda x: 0.5 * FUNCTIONS["erfc"](x * -(0.5**0.5)))
    FUNCTIONS["powi"] = builtin(_integer_power)
    FUNCTIONS["umulhi"] = umulhi


_fill()
