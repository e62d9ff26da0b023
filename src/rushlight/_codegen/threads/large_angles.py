"""Sine, cosine and tangent of large arguments, in double, for the GPU: what the C library does on the CPU.

The argument is m * 2**e with an integer m.  Only some 190 bits of 2 / pi decide on the quarter of a turn that it lies in and
on the angle within (M. Payne, R. Hanek, 1983), so one product of integers gives both exactly enough.
"""

from __future__ import annotations

from rushlight._codegen.scalar import Emitter, ModuleText, Val
from rushlight._codegen.scalar import coefficients as table

__all__ = ["define_angle_function"]

_LEADING, _WORDS = 64, 21  # bits of 0 before those of 2 / pi; words of 64 bits in all


def _two_over_pi() -> list[int]:
    """2 / pi as words, the most significant first."""
    bits = 64 * _WORDS - _LEADING
    scale = 1 << bits + 64

    def arctan_inverse(n: int) -> int:
        total, term, k = 0, scale // n, 1
        while term:
            total += (term if k % 4 == 1 else -term) // k
            term //= n * n
            k += 2
        return total

    pi = 4 * (4 * arctan_inverse(5) - arctan_inverse(239))
    number = (2 * scale << bits) // pi
    return [number >> 64 * k & (1 << 64) - 1 for k in reversed(range(_WORDS))]


_REDUCE = """define internal {{double, double, i32}} @rl.angle(double %x) noinline nounwind {{
  %bits = bitcast double %x to i64
  %exponent0 = lshr i64 %bits, 52
  %exponent = and i64 %exponent0, 2047
  %fraction = and i64 %bits, 4503599627370495
  %m = or i64 %fraction, 4503599627370496
  ; the first bit of 2 / pi that counts has weight 2**1 in the product
  %p = sub i64 %exponent, {first}
  %w = lshr i64 %p, 6
  %sh = and i64 %p, 63
  %a0 = getelementptr i64, ptr @rl.two_over_pi, i64 %w
  %a1 = getelementptr i64, ptr %a0, i64 1
  %a2 = getelementptr i64, ptr %a0, i64 2
  %a3 = getelementptr i64, ptr %a0, i64 3
  %w0 = load i64, ptr %a0
  %w1 = load i64, ptr %a1
  %w2 = load i64, ptr %a2
  %w3 = load i64, ptr %a3
  %u0 = call i64 @llvm.fshl.i64(i64 %w0, i64 %w1, i64 %sh)
  %u1 = call i64 @llvm.fshl.i64(i64 %w1, i64 %w2, i64 %sh)
  %u2 = call i64 @llvm.fshl.i64(i64 %w2, i64 %w3, i64 %sh)
  ; the lowest 192 bits of the product with m
  %mm = zext i64 %m to i128
  %e2 = zext i64 %u2 to i128
  %q2 = mul i128 %e2, %mm
  %v2 = trunc i128 %q2 to i64
  %c2 = lshr i128 %q2, 64
  %e1 = zext i64 %u1 to i128
  %q1a = mul i128 %e1, %mm
  %q1 = add i128 %q1a, %c2
  %v1 = trunc i128 %q1 to i64
  %c1 = lshr i128 %q1, 64
  %c1s = trunc i128 %c1 to i64
  %q0 = mul i64 %u0, %m
  %v0 = add i64 %q0, %c1s
  ; the quarter, rounded, and what is left of it with a sign
  %half = lshr i64 %v0, 61
  %low = and i64 %half, 1
  %quarter0 = lshr i64 %half, 1
  %quarter = add i64 %quarter0, %low
  %up = icmp ne i64 %low, 0
  %f0 = call i64 @llvm.fshl.i64(i64 %v0, i64 %v1, i64 2)
  %f1 = call i64 @llvm.fshl.i64(i64 %v1, i64 %v2, i64 2)
  %n0 = xor i64 %f0, -1
  %n1 = xor i64 %f1, -1
  %g0 = select i1 %up, i64 %n0, i64 %f0
  %g1 = select i1 %up, i64 %n1, i64 %f1
  %lead = call i64 @llvm.ctlz.i64(i64 %g0, i1 false)
  %h0 = call i64 @llvm.fshl.i64(i64 %g0, i64 %g1, i64 %lead)
  %h1 = shl i64 %g1, %lead
  %hi53 = and i64 %h0, -2048
  %rest0 = shl i64 %h0, 53
  %rest1 = lshr i64 %h1, 11
  %rest = or i64 %rest0, %rest1
  %hid = uitofp i64 %hi53 to double
  %restd = uitofp i64 %rest to double
  %lowd = fmul double %restd, 0x3CA0000000000000
  %scale0 = sub i64 959, %lead
  %scale1 = shl i64 %scale0, 52
  %scale = bitcast i64 %scale1 to double
  %hi = fmul double %hid, %scale
  %lo = fmul double %lowd, %scale
  %r = fmul double %hi, 0x3FF921FB54442D18
  %nr = fneg double %r
  %err = call double @llvm.fma.f64(double %hi, double 0x3FF921FB54442D18, double %nr)
  %s1 = call double @llvm.fma.f64(double %hi, double 0x3C91A62633145C07, double %err)
  %s2 = call double @llvm.fma.f64(double %lo, double 0x3FF921FB54442D18, double %s1)
  %negr = fneg double %r
  %negs = fneg double %s2
  %rr = select i1 %up, double %negr, double %r
  %ss = select i1 %up, double %negs, double %s2
  %q32 = trunc i64 %quarter to i32
  %o0 = insertvalue {{double, double, i32}} poison, double %rr, 0
  %o1 = insertvalue {{double, double, i32}} %o0, double %ss, 1
  %o2 = insertvalue {{double, double, i32}} %o1, i32 %q32, 2
  ret {{double, double, i32}} %o2
}}
"""


def define_angle_function(module: ModuleText, name: str) -> None:
    """Define "sin", "cos" or "tan" of a double of at least 2**17, or of one that is not finite."""
    words = ", ".join(f"i64 {w - (1 << 64) if w >> 63 else w}" for w in _two_over_pi())
    module.definitions["@rl.two_over_pi"] = f"@rl.two_over_pi = private constant [{_WORDS} x i64] [{words}]"
    for intrinsic, types in (("fshl", "i64, i64, i64"), ("ctlz", "i64, i1")):
        module.declarations[f"@llvm.{intrinsic}.i64"] = f"declare i64 @llvm.{intrinsic}.i64({types})"
    module.declarations["@llvm.fma.f64"] = "declare double @llvm.fma.f64(double, double, double)"
    # x = m * 2**(exponent - 1075); the bit of 2 / pi at place exponent - 1076, counted from 1, is the first
    module.definitions["@rl.angle"] = _REDUCE.format(first=1076 - _LEADING + 1)
    em = Emitter(1, module, prefix="s")
    x = em.val("%x", "double")
    parts = em.emit("call {double, double, i32} @rl.angle(double %x)", "")
    r, low = (em.emit(f"extractvalue {{double, double, i32}} {parts}, {k}", "double") for k in (0, 1))
    quarter = em.emit(f"extractvalue {{double, double, i32}} {parts}, 2", "i32")
    sine, cosine = _sine(r, low), _cosine(r, low)
    negative, odd, upper = x.lt(0.0), (quarter & 1).ne(0), (quarter & 2).ne(0)
    if name == "sin":
        y = em.select(odd, cosine, sine)
        y = em.select(upper ^ negative, -y, y)
    elif name == "cos":
        y = em.select(odd, sine, cosine)
        y = em.select(upper ^ odd, -y, y)
    else:
        y = em.select(odd, -cosine, sine) / em.select(odd, sine, cosine)
        y = em.select(negative, -y, y)
    y = em.select(x.abs().lt(float("inf")), y, x - x)
    body = "\n".join(em.lines)
    module.definitions[f"@{name}"] = (
        f"define internal double @{name}(double %x) noinline nounwind {{\n{body}\n  ret double {y}\n}}"
    )


def _odd(r: Val) -> Val:
    z = r * r
    return r.em.fma(r * z, r.em.horner(z, table.SIN_F64), r)


def _sine(r: Val, low: Val) -> Val:
    """sin(r + low) for |r| below pi / 4."""
    return _odd(r) + low * (1.0 - r * r * 0.5)


def _cosine(r: Val, low: Val) -> Val:
    """cos(r + low), the sine of what a quarter of a turn lacks."""
    em, a = r.em, r.abs()
    low = em.select(r.lt(0.0), -low, low)
    quarter = em.const("double", float.fromhex("0x1.921fb54442d18p+0"))
    rest = quarter - a
    gone = (quarter - rest) - a + (float.fromhex("0x1.1a62633145c07p-54") - low)
    return _odd(rest) + gone * a
