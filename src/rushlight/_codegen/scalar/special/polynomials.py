"""Orthogonal polynomials by their three-term recurrences (Abramowitz and Stegun 22.7), the degree being data."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..repeat import Steps, repeat

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..writer import Val

__all__ = ["BINARY"]


class _Family(NamedTuple):
    """p_1(x), and p_{k+1} from x, p_k, p_{k-1} and k (as a float)."""

    first: Callable[[Val], Val]
    step: Callable[[Val, Val, Val, Val], Val]


_FAMILIES = {
    "hermite_h": _Family(lambda x: x + x, lambda x, p, q, k: (x + x) * p - (k + k) * q),
    "hermite_he": _Family(lambda x: x, lambda x, p, q, k: x * p - k * q),
    "laguerre": _Family(lambda x: 1.0 - x, lambda x, p, q, k: ((k + k + 1.0 - x) * p - k * q) / (k + 1.0)),
    "legendre": _Family(lambda x: x, lambda x, p, q, k: ((k + k + 1.0) * x * p - k * q) / (k + 1.0)),
}


def _degree(n: Val) -> Val:
    """n cut to a whole number; -1 where it is none that a 64-bit integer holds."""
    usable = n.abs().lt(2.0**63)
    return n.em.select(usable, n, -1.0).to("i64")


def _steps(family: _Family) -> Steps:
    """State: p_n as far as it is known, p_k, p_{k-1}.  A NaN stays one, so that lane may stop."""

    def start(x: Val, n: Val) -> list[Val]:
        em, degree = x.em, _degree(n)
        one, first = em.const(x.type, 1.0), family.first(x)
        low = em.select(degree.eq(0), one, em.select(degree.lt(0), em.const(x.type, 0.0), first))
        return [low, first, one]

    def step(k: Val, state: list[Val], x: Val, n: Val) -> list[Val]:
        found, p, q = state
        after = family.step(x, p, q, k.to(x.type))
        return [x.em.select(k.lt(_degree(n)), after, found), after, p]

    def going(k: Val, state: list[Val], x: Val, n: Val) -> Val:
        return k.lt(_degree(n)) & ~state[1].is_nan()

    return Steps(start, step, going)


def polynomial(x: Val, n: Val, family: str) -> Val:
    return repeat(f"polynomial.{family}", _STEPS[family], x, n)


_STEPS = {name: _steps(family) for name, family in _FAMILIES.items()}
BINARY: dict[str, Callable[..., Val]] = {"polynomial": polynomial}
