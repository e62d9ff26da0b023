"""Functions of the C library that lowered primitives call, for the GPU, which has no such library."""

from __future__ import annotations

from rushlight._codegen.scalar import ModuleText

from .large_angles import define_angle_function

__all__ = ["define_library"]

# x = q y + r with the sign of x, one bit of q after the other: exact, as each step is
_FMOD = """define internal {t} @{name}({t} %x, {t} %y) noinline nounwind {{
entry:
  %bx = bitcast {t} %x to i{n}
  %by = bitcast {t} %y to i{n}
  %ax = and i{n} %bx, {magnitude}
  %ay = and i{n} %by, {magnitude}
  %sign = xor i{n} %bx, %ax
  %badx = icmp uge i{n} %ax, {infinity}
  %bady = icmp ugt i{n} %ay, {infinity}
  %zero = icmp eq i{n} %ay, 0
  %bad0 = or i1 %badx, %bady
  %bad = or i1 %bad0, %zero
  br i1 %bad, label %nan, label %usual
nan:
  ret {t} {quiet}
usual:
  %below = icmp ult i{n} %ax, %ay
  br i1 %below, label %small, label %start
small:
  ret {t} %x
start:
  %ex0 = lshr i{n} %ax, {m}
  %ey0 = lshr i{n} %ay, {m}
  %ex = call i{n} @llvm.umax.i{n}(i{n} %ex0, i{n} 1)
  %ey = call i{n} @llvm.umax.i{n}(i{n} %ey0, i{n} 1)
  %fx = and i{n} %ax, {fraction}
  %fy = and i{n} %ay, {fraction}
  %nx = icmp ne i{n} %ex0, 0
  %ny = icmp ne i{n} %ey0, 0
  %hx = select i1 %nx, i{n} {hidden}, i{n} 0
  %hy = select i1 %ny, i{n} {hidden}, i{n} 0
  %mx0 = or i{n} %fx, %hx
  %my0 = or i{n} %fy, %hy
  %cx = call i{n} @llvm.ctlz.i{n}(i{n} %mx0, i1 false)
  %cy = call i{n} @llvm.ctlz.i{n}(i{n} %my0, i1 false)
  %kx = sub i{n} %cx, {lead}
  %ky = sub i{n} %cy, {lead}
  %mx = shl i{n} %mx0, %kx
  %my = shl i{n} %my0, %ky
  %enx = sub i{n} %ex, %kx
  %eny = sub i{n} %ey, %ky
  %steps = sub i{n} %enx, %eny
  br label %loop
loop:
  %r = phi i{n} [%mx, %start], [%r3, %next]
  %left = phi i{n} [%steps, %start], [%left1, %next]
  %enough = icmp uge i{n} %r, %my
  %less = sub i{n} %r, %my
  %r2 = select i1 %enough, i{n} %less, i{n} %r
  %last = icmp eq i{n} %left, 0
  br i1 %last, label %done, label %next
next:
  %r3 = shl i{n} %r2, 1
  %left1 = sub i{n} %left, 1
  br label %loop
done:
  %none = icmp eq i{n} %r2, 0
  br i1 %none, label %nothing, label %pack
nothing:
  %sz = bitcast i{n} %sign to {t}
  ret {t} %sz
pack:
  %lead = call i{n} @llvm.ctlz.i{n}(i{n} %r2, i1 false)
  %shift = sub i{n} %lead, {lead}
  %moved = shl i{n} %r2, %shift
  %e2 = sub i{n} %eny, %shift
  %normal = icmp sgt i{n} %e2, 0
  %e3 = shl i{n} %e2, {m}
  %f2 = and i{n} %moved, {fraction}
  %vn = or i{n} %e3, %f2
  %back = sub i{n} 1, %e2
  %vs = lshr i{n} %moved, %back
  %v = select i1 %normal, i{n} %vn, i{n} %vs
  %w = or i{n} %v, %sign
  %out = bitcast i{n} %w to {t}
  ret {t} %out
}}
"""


def _fmod(name: str, bits: int, mantissa: int) -> str:
    sign = 1 << bits - 1
    infinity = ((1 << bits - 1 - mantissa) - 1) << mantissa
    return _FMOD.format(
        t="float" if bits == 32 else "double", name=name, n=bits, m=mantissa, magnitude=sign - 1, infinity=infinity,
        quiet="0x7FF8000000000000", fraction=(1 << mantissa) - 1, hidden=1 << mantissa, lead=bits - 1 - mantissa,
    )  # fmt: skip


_DEFINED = {"@fmodf": lambda: _fmod("fmodf", 32, 23), "@fmod": lambda: _fmod("fmod", 64, 52)}


def define_library(module: ModuleText) -> None:
    """Replace declarations of C functions by definitions; NotImplementedError for a function that is not known here."""
    for name in [n for n in module.declarations if not n.startswith(("@llvm.", "@__assertfail", "@vprintf"))]:
        if name in ("@sin", "@cos", "@tan"):
            del module.declarations[name]
            define_angle_function(module, name[1:])
            continue
        if name not in _DEFINED:
            raise NotImplementedError(f"the C function {name[1:]} has no form for the GPU")
        module.definitions[name] = _DEFINED[name]()
        del module.declarations[name]
        bits = 32 if name == "@fmodf" else 64
        for intrinsic, tail in (("umax", f"i{bits}, i{bits}"), ("ctlz", f"i{bits}, i1")):
            full = f"@llvm.{intrinsic}.i{bits}"
            module.declarations.setdefault(full, f"declare i{bits} {full}({tail})")
