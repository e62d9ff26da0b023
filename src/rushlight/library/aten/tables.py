"""The table of formulas, complete: what the backward of an overload is made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from rushlight.library.aten.derivatives import ONLY, RULES
from rushlight.library.aten.formulas import linalg, networks, pointwise, reductions, shapes

__all__ = ["differentiable", "rules_of"]

Rule = Callable[..., Any]
# The modules that fill the table when they are loaded.
FILLED_BY = (linalg, networks, pointwise, reductions, shapes)


@cache
def _loaded() -> dict[str, dict[tuple[str, ...], Rule]]:
    return {name: dict(sorted(rules.items())) for name, rules in RULES.items()}


def rules_of(overload: Any) -> dict[tuple[str, ...], Rule] | None:
    """The formulas of an overload; those of the plain form for one in place.  {} where there is no gradient, None where
    nothing is known.
    """
    if overload.form is None:
        return None
    table, name, kind = _loaded(), overload._opname, overload._overloadname
    plain = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    for each in (f"{name}.{kind}", f"{plain}.{kind}", name, plain):
        if each in table:
            return table[each]
    return None


def differentiable(overload: Any) -> tuple[int, ...] | None:
    """Which results have a gradient; None for all that can have one."""
    name, kind = overload._opname, overload._overloadname
    return ONLY.get(f"{name}.{kind}", ONLY.get(name))
