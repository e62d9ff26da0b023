"""Lanes that need a slow way: a helper function that looks whether there are any, and only then goes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .writer import ModuleText, Val

_TEXT = """define internal {vt} {name}.slow({vt} %x, {vt} %y) noinline cold nounwind {{
{slow}
}}
define internal {vt} {name}({vt} %x, {vt} %y) alwaysinline nounwind {{
{test}
  br i1 %any, label %slow, label %done
slow:
  %s = call {vt} {name}.slow({vt} %x, {vt} %y)
  ret {vt} %s
done:
  ret {vt} %y
}}
"""


def where_rare(symbol: str, x: Val, y: Val, limit: float) -> Val:
    """`y`, but the C library's `symbol`(x), in double, in the lanes where |x| > limit."""
    return x.em.helper(f"{symbol}.large", lambda name: _define(symbol, x, name, limit), x.type, x, y)


def any_lane(module: ModuleText, mask: Val, name: str) -> str:
    """Instruction text for `name`: whether any lane of `mask` is set."""
    width = mask.em.width
    if width == 1:
        return f"  {name} = or i1 {mask}, false"
    reduce = f"@llvm.vector.reduce.or.v{width}i1"
    module.declarations[reduce] = f"declare i1 {reduce}(<{width} x i1>)"
    return f"  {name} = call i1 {reduce}(<{width} x i1> {mask})"


def _define(symbol: str, like: Val, name: str, limit: float) -> str:
    em = type(like.em)(like.em.width, like.em.module, fma=like.em.fma_hardware)
    large = em.val("%x", like.type).abs().gt(limit)
    test = "\n".join([*em.lines, any_lane(em.module, large, "%any")])
    em.module.declarations[f"@{symbol}"] = f"declare double @{symbol}(double)"
    return _TEXT.format(vt=like.vt, name=name, slow=_lanes(symbol, like, limit), test=test)


def _lanes(symbol: str, like: Val, limit: float) -> str:
    """A loop over the lanes: few instructions, however wide the vector."""
    type, width, vt = like.type, like.em.width, like.vt
    if width == 1:
        get, put = "  %xk = fadd {t} %x, -0.0", "  %yn = select i1 %big, {t} %r, {t} %y"
    else:
        get = "  %xk = extractelement {vt} %x, i64 %k"
        put = "  %yk = insertelement {vt} %v, {t} %r, i64 %k\n  %yn = select i1 %big, {vt} %yk, {vt} %v"
    widen, narrow = ("fpext", "fptrunc") if type == "float" else ("", "")
    to_double = f"  %d = {widen} {type} %xk to double" if widen else "  %d = fadd double %xk, -0.0"
    from_double = f"  %r = {narrow} double %c to {type}" if narrow else "  %r = fadd double %c, -0.0"
    bound = like.em.at(1).const(type, limit)
    mangled = "f32" if type == "float" else "f64"
    like.em.module.declarations[f"@llvm.fabs.{mangled}"] = f"declare {type} @llvm.fabs.{mangled}({type})"
    return "\n".join([
        "entry:\n  br label %loop", "loop:", "  %k = phi i64 [0, %entry], [%k1, %next]",
        f"  %v = phi {vt} [%y, %entry], [%yn, %next]", get.format(vt=vt, t=type),
        f"  %a = call {type} @llvm.fabs.{mangled}({type} %xk)", f"  %big = fcmp ogt {type} %a, {bound}",
        "  br i1 %big, label %call, label %next0", "call:", to_double, f"  %cc = call double @{symbol}(double %d)", "  br label %next0",
        "next0:", "  %c = phi double [0.0, %loop], [%cc, %call]", from_double, put.format(vt=vt, t=type),
        "  br label %next", "next:", "  %k1 = add i64 %k, 1", f"  %more = icmp slt i64 %k1, {width}",
        "  br i1 %more, label %loop, label %exit", "exit:", f"  ret {vt} %yn",
    ])  # fmt: skip
