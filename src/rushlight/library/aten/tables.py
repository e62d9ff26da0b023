"""The table of formulas, complete: what the backward of an overload is made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import rushlight
from rushlight.library.aten.derivatives import ONLY, RULES
from rushlight.library.aten.formulas import linalg, networks, pointwise, reductions, shapes

__all__ = ["differentiable", "plain_forms", "rules_of"]

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
    return None if overload.form is None else _rules_of(overload)


@cache
def _rules_of(overload: Any) -> dict[tuple[str, ...], Rule] | None:
    table, name, kind = _loaded(), overload._opname, overload._overloadname
    names = [f"{name}.{kind}", name]
    if overload.in_place:
        names[1:1] = [f"{each._opname}.{each._overloadname}" for each in plain_forms(overload)]
        names.append(_plain_name(name))
    for each in names:
        if each in table:
            return table[each]
    return None


def plain_forms(overload: Any) -> list[Any]:
    """The overloads out of place that take what this one in place takes: `pow_.Scalar` goes with `pow.Tensor_Scalar`, and
    not with `pow.Scalar`, whose base is a number.
    """
    plain = getattr(rushlight.ops.aten, _plain_name(overload._opname), None)
    found = [getattr(plain, name) for name in plain.overloads()] if plain is not None else []
    return [each for each in found if _arguments(each) == _arguments(overload)]


def _plain_name(name: str) -> str:
    """The name out of place of an operator in place: `add` of `add_`, `__and__` of `__iand__`."""
    return f"__{name[3:]}" if name.startswith("__i") else name[:-1]


def _arguments(overload: Any) -> list[tuple[str, str]]:
    arguments = overload.form.parsed().arguments if overload.form is not None else ()
    return [(a.name, a.type) for a in arguments]


def differentiable(overload: Any) -> tuple[int, ...] | None:
    """Which results have a gradient; None for all that can have one."""
    name, kind = overload._opname, overload._overloadname
    return ONLY.get(f"{name}.{kind}", ONLY.get(name))
