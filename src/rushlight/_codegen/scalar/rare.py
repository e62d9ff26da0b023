"""Rare cases: a helper function computes them only where some lane needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Val

_TEXT = """define internal {vt} {name}({vt} %x, {vt} %y) alwaysinline nounwind {{
{test}
  br i1 {any}, label %slow, label %done
slow:
{slow}
  ret {vt} {result}
done:
  ret {vt} %y
}}
"""


def when_any(name: str, condition: Callable[[Val], Val], slow: Callable[[Val, Val], Val], x: Val, y: Val) -> Val:
    """`slow(x, y)` if `condition(x)` holds in any lane, else `y`; `slow` keeps y in the lanes where it does not hold.

    The branch is in a helper function, so the caller's code stays straight.
    """

    def define(full: str) -> str:
        em = type(x.em)(x.em.width, x.em.module, fma=x.em.fma_hardware)
        a, b = em.val("%x", x.type), em.val("%y", x.type)
        some = em.any_lane(condition(a))
        test = "\n".join(em.lines)
        em.lines.clear()
        result = slow(a, b)
        return _TEXT.format(vt=x.vt, name=full, test=test, any=some, slow="\n".join(em.lines), result=result)

    return x.em.helper(name if x.em.fma_hardware else f"{name}.nofma", define, x.type, x, y)


def beyond(symbol: str, x: Val, y: Val, limit: float) -> Val:
    """`y`, but the C library's `symbol`(x), in double, in the lanes where |x| > limit."""

    def slow(a: Val, b: Val) -> Val:
        return a.em.helper(f"{symbol}.lanes", lambda name: _lanes(symbol, a, limit, name), a.type, a, b)

    return when_any(f"{symbol}.beyond", lambda a: a.abs().gt(limit), slow, x, y)


_LANES = """define internal {vt} {name}({vt} %x, {vt} %y) noinline cold nounwind {{
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k1, %next]
  %v = phi {vt} [%y, %entry], [%yn, %next]
  %xk = {get}
  %d = {widen}
  %a = call double @llvm.fabs.f64(double %d)
  %large = fcmp ogt double %a, {limit}
  br i1 %large, label %call, label %next
call:
  %c = call double @{symbol}(double %d)
  %r = {narrow}
  %yk = {put}
  br label %next
next:
  %yn = phi {vt} [%v, %loop], [%yk, %call]
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, {width}
  br i1 %more, label %loop, label %exit
exit:
  ret {vt} %yn
}}
"""


def _lanes(symbol: str, like: Val, limit: float, name: str) -> str:
    """A loop over the lanes, whose code does not grow with the vector."""
    type, width, vt, module = like.type, like.em.width, like.vt, like.em.module
    module.declarations[f"@{symbol}"] = f"declare double @{symbol}(double)"
    module.declarations["@llvm.fabs.f64"] = "declare double @llvm.fabs.f64(double)"
    same = "fadd {} {}, -0.0"
    return _LANES.format(
        vt=vt,
        name=name,
        symbol=symbol,
        width=width,
        limit=like.em.at(1).const("double", limit),
        get=f"extractelement {vt} %x, i64 %k" if width > 1 else same.format(type, "%x"),
        put=f"insertelement {vt} %v, {type} %r, i64 %k" if width > 1 else same.format(type, "%r"),
        widen="fpext float %xk to double" if type == "float" else same.format("double", "%xk"),
        narrow="fptrunc double %c to float" if type == "float" else same.format("double", "%c"),
    )
