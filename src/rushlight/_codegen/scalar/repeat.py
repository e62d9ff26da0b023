"""Iterations: a loop over all lanes that ends when every lane has converged."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from .writer import Val

__all__ = ["Steps", "repeat"]

_TEXT = """define internal {vt} {name}({signature}) noinline nounwind {{
entry:
{start}
  br i1 {first}, label %loop, label %never
loop:
{phis}
{step}
  %knext = add i64 %k, 1
  br i1 {more}, label %loop, label %done
done:
  ret {vt} {result}
never:
  ret {vt} {initial}
}}
"""


class Steps(NamedTuple):
    """An iteration: `start(*args)` gives the state; `step(k, state, *args)` the next one, k = 1, 2, ...; `going(k,
    state, *args)` the lanes that want step k. The first item of the state is the result. A lane that is done must
    keep its result through further steps.
    """

    start: Callable[..., list[Val]]
    step: Callable[..., list[Val]]
    going: Callable[..., Val]


def repeat(name: str, steps: Steps, *args: Val) -> Val:
    """The result of `steps` on `args` (of one type), in a function of its own in the module; k is an i64 in all lanes."""

    def define(full: str) -> str:
        em = type(args[0].em)(args[0].em.width, args[0].em.module, fma=args[0].em.fma_hardware)
        parameters = [em.val(f"%a{i}", a.type) for i, a in enumerate(args)]
        state = steps.start(*parameters)
        first = em.any_lane(steps.going(em.const("i64", 1), state, *parameters))
        start = "\n".join(em.lines)
        em.lines.clear()
        with em.scope():
            held = [em.val(f"%s{i}", v.type) for i, v in enumerate(state)]
            k = em.splat("%k", "i64")
            found = steps.step(k, held, *parameters)
            more = em.any_lane(steps.going(k + 1, found, *parameters))
            step = "\n".join(em.lines)
        phis = ["  %k = phi i64 [1, %entry], [%knext, %loop]"]
        phis += [
            f"  %s{i} = phi {v.vt} [{v}, %entry], [{n}, %loop]"
            for i, (v, n) in enumerate(zip(state, found, strict=True))
        ]
        return _TEXT.format(
            vt=state[0].vt,
            name=full,
            signature=", ".join(f"{p.vt} {p}" for p in parameters),
            start=start,
            first=first,
            phis="\n".join(phis),
            step=step,
            more=more,
            result=found[0],
            initial=state[0],
        )

    return args[0].em.helper(name if args[0].em.fma_hardware else f"{name}.nofma", define, args[0].type, *args)
