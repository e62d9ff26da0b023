"""Arithmetic, comparison, bits and shifts: the primitives that are a few instructions each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .repeat import Steps, repeat
from .writer import BITS, Check

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Val

# ***** any dtype *****


def maximum(x: Val, y: Val, signed: bool = True) -> Val:
    """The larger one; NaN if either is NaN."""
    if x.type in BITS and x.type[0] == "i":
        return x | y if x.type == "i1" else x.em.call("llvm.smax" if signed else "llvm.umax", x, y)
    # x86's maxps gives its second operand when either is NaN, so only NaN in x needs care
    return x.em.select(x.is_nan(), x, x.em.select(x.gt(y), x, y))


def minimum(x: Val, y: Val, signed: bool = True) -> Val:
    """The smaller one; NaN if either is NaN."""
    if x.type in BITS and x.type[0] == "i":
        return x & y if x.type == "i1" else x.em.call("llvm.smin" if signed else "llvm.umin", x, y)
    return x.em.select(x.is_nan(), x, x.em.select(x.lt(y), x, y))


# ***** floats *****


def float_sign(x: Val) -> Val:
    """-1, 0 or 1; 0 for NaN, as PyTorch has it."""
    em = x.em
    return em.select(x.gt(0.0), em.const(x.type, 1.0), em.select(x.lt(0.0), em.const(x.type, -1.0), 0.0))


def float_signbit(x: Val) -> Val:
    return x.bits().lt(0)


def sqrt(x: Val) -> Val:
    return x.em.call("llvm.sqrt", x)


def rsqrt(x: Val) -> Val:
    """1 / sqrt(x): two roundings, as PyTorch computes it."""
    return 1.0 / sqrt(x)


def _rounding(intrinsic: str) -> Callable[[Val], Val]:
    return lambda x: x.em.call(intrinsic, x)


def round_even(x: Val) -> Val:
    """The nearest integer, ties to even."""
    em = x.em
    if em.fma_hardware:
        return em.call("llvm.roundeven", x)
    # old processors would call the C library, and not every one has the function
    magic = 2.0**23 if x.type == "float" else 2.0**52
    a = x.abs()
    return em.select(a.lt(magic), ((a + magic) - magic).copysign(x), x)


def copysign(x: Val, y: Val) -> Val:
    return x.copysign(y)


def nextafter(x: Val, y: Val) -> Val:
    """The next value after x in the direction of y."""
    em, bits = x.em, x.bits()
    away = x.gt(0.0).eq(y.gt(x))  # the magnitude grows when y lies on x's outer side
    stepped = em.bitcast(em.select(away, bits + 1, bits - 1), x.type)
    smallest = em.bitcast(em.const(bits.type, 1), x.type).copysign(y)
    result = em.select(x.eq(0.0), smallest, stepped)
    result = em.select(x.eq(y), y, result)
    return em.select(x.compare("uno", y), x + y, result)


def fmod(x: Val, y: Val) -> Val:
    """The remainder of x / y truncated, exact, with the sign of x: C's fmod.

    While the quotient is below 2**51 (float32: 2**28, computed in double) one multiply-add gives the remainder exactly;
    a vector with any other lane calls fmod for each.
    """
    em = x.em
    if x.type == "float":
        a, b, limit = x.to("double").abs(), y.to("double").abs(), 2.0**28
    else:
        a, b, limit = x.abs(), y.abs(), 2.0**51
    quotient = em.call("llvm.trunc", a / b)
    # in double both factors of float32 are short enough for an exact product; else only the true operation is exact
    rest = a - quotient * b if x.type == "float" else em.call("llvm.fma", -quotient, b, a)
    # the quotient may have been rounded up to the next integer
    rest = em.select(rest.lt(0.0), rest + b, rest)
    # a quotient of 0 is x itself, also for an infinite y
    below = a.lt(b)
    fast = em.select(below, x, rest.to(x.type).copysign(x))
    usual = below | (quotient.lt(limit) & b.gt(0.0))
    return em.helper("fmod.rest", lambda name: _fmod_text(x, name), x.type, x, y, fast, usual)


_FMOD = """define internal {vt} {name}.slow({vt} %x, {vt} %y) noinline cold nounwind {{
{calls}
}}
define internal {vt} {name}({vt} %x, {vt} %y, {vt} %fast, {mask} %usual) alwaysinline nounwind {{
{test}
  br i1 {every}, label %done, label %slow
slow:
  %s = call {vt} {name}.slow({vt} %x, {vt} %y)
  ret {vt} %s
done:
  ret {vt} %fast
}}
"""


def _fmod_text(like: Val, name: str) -> str:
    em = type(like.em)(like.em.width, like.em.module, fma=like.em.fma_hardware)
    vt, type_ = like.vt, like.type
    every = em.all_lanes(em.val("%usual", "i1"))
    test = "\n".join(em.lines)
    symbol = "fmodf" if type_ == "float" else "fmod"
    em.module.declarations[f"@{symbol}"] = f"declare {type_} @{symbol}({type_}, {type_})"
    if em.width == 1:
        calls = f"  %r = call {vt} @{symbol}({vt} %x, {vt} %y)\n  ret {vt} %r"
    else:
        calls, last = "", "poison"
        for k in range(em.width):
            calls += (
                f"  %x{k} = extractelement {vt} %x, i64 {k}\n  %y{k} = extractelement {vt} %y, i64 {k}\n"
                f"  %z{k} = call {type_} @{symbol}({type_} %x{k}, {type_} %y{k})\n"
                f"  %r{k} = insertelement {vt} {last}, {type_} %z{k}, i64 {k}\n"
            )
            last = f"%r{k}"
        calls += f"  ret {vt} {last}"
    return _FMOD.format(vt=vt, name=name, calls=calls, mask=em.vt("i1"), test=test, every=every)


# ***** integers *****


def int_abs(x: Val, signed: bool) -> Val:
    return x.em.call("llvm.abs", x) if signed and x.type != "i1" else x


def int_sign(x: Val, signed: bool) -> Val:
    em = x.em
    if x.type == "i1":
        return x
    positive = x.gt(0, signed).to(x.type, signed=False)
    return em.select(x.lt(0), em.const(x.type, -1), positive) if signed else positive


def _quotient(x: Val, y: Val, signed: bool) -> tuple[Val, Val]:
    """(x / y truncated, the divisor used).  A zero divisor is recorded as a check and replaced by 1."""
    em = x.em
    zero = y.eq(0)
    em.checks.append(Check("zero_division", zero, em.width))
    y = em.select(zero, em.const(y.type, 1), y)
    minus = y.eq(-1) if signed else None
    # smallest / -1 overflows: the wrapped result is the negated x
    divisor = em.select(minus, em.const(y.type, 1), y) if minus is not None else y
    if x.type == "i64":
        q = em.emit(f"{'sdiv' if signed else 'udiv'} {x.vt} {x}, {divisor}", x.type)
    else:
        # exact: a quotient that is not an integer stays further than a rounding away from the next one
        through = "double" if x.type == "i32" else "float"
        q = (x.to(through, signed) / divisor.to(through, signed)).to(x.type, signed)
    return (em.select(minus, -x, q) if minus is not None else q), y


def int_div_trunc(x: Val, y: Val, signed: bool) -> Val:
    return _quotient(x, y, signed)[0]


def int_rem_trunc(x: Val, y: Val, signed: bool) -> Val:
    q, y = _quotient(x, y, signed)
    return x - q * y


_INT_POW = """define internal {vt} {name}({vt} %x, {vt} %y) nounwind {{
entry:
  br label %loop
loop:
  %r = phi {vt} [{one}, %entry], [%r1, %loop]
  %b = phi {vt} [%x, %entry], [%b1, %loop]
  %e = phi {vt} [%y, %entry], [%e1, %loop]
  %low = trunc {vt} %e to {mask}
  %m = mul {vt} %r, %b
  %r1 = select {mask} %low, {vt} %m, {vt} %r
  %b1 = mul {vt} %b, %b
  %e1 = lshr {vt} %e, {one}
  %more = icmp ne {vt} %e1, {zero}
{test}
  br i1 {any}, label %loop, label %done
done:
  ret {vt} %r1
}}
"""


def int_pow(x: Val, y: Val, signed: bool) -> Val:
    """x ** y wrapped; a negative exponent gives 0 except for the bases 1 and -1."""
    em = x.em

    def define(name: str) -> str:
        inner = type(em)(em.width, em.module)
        some = inner.any_lane(inner.val("%more", "i1"))
        one, zero = em.const(x.type, 1), em.const(x.type, 0)
        test = "\n".join(inner.lines)
        return _INT_POW.format(vt=x.vt, name=name, mask=em.vt("i1"), one=one, zero=zero, test=test, any=some)

    power = em.helper("pow", define, x.type, x, y)
    if not signed:
        return power
    # 1 and -1 have period 2 in the exponent, so their powers are right for negative ones already
    vanishes = y.lt(0) & x.ne(1) & x.ne(-1)
    return em.select(vanishes, em.const(x.type, 0), power)


def _twos(x: Val) -> Val:
    """The number of trailing zero bits; 0 for 0."""
    return x.em.call("llvm.cttz", x) & (BITS[x.type] - 1)


def _subtractions() -> Steps:
    """State: an odd number, and the number that remains.  The difference of odd numbers is even (J. Stein, J. Comp.
    Phys. 1, 1967).
    """

    def step(k: Val, state: list[Val], x: Val, y: Val) -> list[Val]:
        a, b = state
        odd, done = b.lshr(_twos(b)), b.eq(0)
        less = minimum(a, odd, signed=False)
        return [x.em.select(done, a, less), x.em.select(done, b, maximum(a, odd, signed=False) - less)]

    return Steps(lambda x, y: [x, y], step, lambda k, state, x, y: state[1].ne(0))


_SUBTRACTIONS = _subtractions()


def int_gcd(x: Val, y: Val, signed: bool) -> Val:
    """The greatest common divisor without divisions, which are slow for vectors."""
    em = x.em
    x, y = int_abs(x, signed), int_abs(y, signed)  # the smallest stays as it is: an unsigned number from here on
    either = x | y
    one = x.eq(0) | y.eq(0)  # nothing is left to be taken into account
    first, second = em.select(one, either, x), em.select(one, em.const(x.type, 0), y)
    return repeat("gcd", _SUBTRACTIONS, first.lshr(_twos(first)), second) << _twos(either)


def shift_left(x: Val, y: Val, signed: bool) -> Val:
    """x << y; 0 when y is negative or not below the number of bits."""
    bits, em = BITS[x.type], x.em
    inside = y.lt(bits, signed=False)
    return em.select(inside, x << em.select(inside, y, 0), em.const(x.type, 0))


def shift_right(x: Val, y: Val, signed: bool) -> Val:
    """x >> y; all bits are the sign when y is negative or not below the number of bits."""
    bits, em = BITS[x.type], x.em
    inside = y.lt(bits, signed=False)
    if signed:
        return x >> em.select(inside, y, bits - 1)
    return em.select(inside, x.lshr(em.select(inside, y, 0)), em.const(x.type, 0))


# ***** tables *****

FLOAT_UNARY = {
    "neg": lambda x: -x, "abs": lambda x: x.abs(), "sign": float_sign, "signbit": float_signbit, "sqrt": sqrt, "rsqrt": rsqrt,
    "floor": _rounding("llvm.floor"), "ceil": _rounding("llvm.ceil"), "trunc": _rounding("llvm.trunc"),
    "round": round_even,
}  # fmt: skip
FLOAT_BINARY = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "rem_trunc": fmod, "maximum": maximum, "minimum": minimum, "copysign": copysign, "nextafter": nextafter,
    "eq": lambda x, y: x.eq(y), "ne": lambda x, y: x.ne(y), "lt": lambda x, y: x.lt(y), "le": lambda x, y: x.le(y),
}  # fmt: skip
# integers get one more argument: whether they are signed
INT_UNARY = {
    "neg": lambda x, signed: -x, "abs": int_abs, "sign": int_sign,
    "signbit": lambda x, signed: x.lt(0) if signed else x.em.const("i1", False),
    "floor": lambda x, signed: x, "ceil": lambda x, signed: x, "trunc": lambda x, signed: x, "round": lambda x, signed: x,
}  # fmt: skip
INT_BINARY = {
    "add": lambda x, y, signed: x + y, "sub": lambda x, y, signed: x - y, "mul": lambda x, y, signed: x * y,
    "div_trunc": int_div_trunc, "rem_trunc": int_rem_trunc, "pow": int_pow, "gcd": int_gcd,
    "maximum": maximum, "minimum": minimum,
    "bitwise_and": lambda x, y, signed: x & y, "bitwise_or": lambda x, y, signed: x | y,
    "bitwise_xor": lambda x, y, signed: x ^ y, "shift_left": shift_left, "shift_right": shift_right,
    "eq": lambda x, y, signed: x.eq(y), "ne": lambda x, y, signed: x.ne(y), "lt": lambda x, y, signed: x.lt(y, signed),
    "le": lambda x, y, signed: x.le(y, signed),
}  # fmt: skip
# bool: sum is "or", product is "and", as PyTorch adds and multiplies bools
BOOL_UNARY = {"signbit": lambda x: x.em.const("i1", False), "abs": lambda x: x, "sign": lambda x: x}
BOOL_BINARY = {
    "add": lambda x, y: x | y, "mul": lambda x, y: x & y, "maximum": lambda x, y: x | y, "minimum": lambda x, y: x & y,
    "bitwise_and": lambda x, y: x & y, "bitwise_or": lambda x, y: x | y, "bitwise_xor": lambda x, y: x ^ y,
    "eq": lambda x, y: ~(x ^ y), "ne": lambda x, y: x ^ y, "lt": lambda x, y: ~x & y, "le": lambda x, y: ~x | y,
}  # fmt: skip
