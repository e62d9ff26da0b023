"""Arithmetic on numbers that a graph computes (sizes, mostly): vectors of one element in ONNX.

What is known is computed here: a number is a Python number as long as it depends on no symbol.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.onnx.exporting.values import Value
from rushlight.onnx.exporting.writer import Writer

__all__ = ["NUMBERS", "arithmetic"]

Rule = Callable[..., Any]
NUMBERS: dict[Any, Rule] = {}


def _dtype(*items: Any) -> Any:
    kinds = [i.dtype if isinstance(i, Value) else type(i) for i in items]
    return (
        rushlight.float32
        if any(k is float or getattr(k, "is_floating_point", False) for k in kinds)
        else rushlight.int64
    )


def _rule(*targets: Any) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        def run(w: Writer, *items: Any) -> Any:
            if not any(isinstance(i, Value) for i in items):
                return targets[0](*items)
            return rule(w, *items)

        for target in targets:
            NUMBERS[target] = run
        return run

    return register


def _simple(kind: str, *targets: Any) -> None:
    @_rule(*targets)
    def run(w: Writer, *items: Any) -> Value:
        dtype = _dtype(*items)
        logical = kind in ("And", "Or")
        given = [w.vector(i, rushlight.bool if logical else dtype) for i in items]
        return w.number(kind, *given)


_simple("Add", operator.add)
_simple("Sub", operator.sub)
_simple("Mul", operator.mul)
_simple("Neg", operator.neg)
_simple("Abs", operator.abs)
_simple("Equal", operator.eq)
_simple("Less", operator.lt)
_simple("LessOrEqual", operator.le)
_simple("Greater", operator.gt)
_simple("GreaterOrEqual", operator.ge)
_simple("And", operator.and_)
_simple("Or", operator.or_)
_simple("Max", rushlight.sym_max)
_simple("Min", rushlight.sym_min)


@_rule(operator.ne)
def _(w: Writer, a: Any, b: Any) -> Value:
    return w.number("Not", arithmetic(w, operator.eq, a, b))


@_rule(operator.not_, rushlight.sym_not)
def _(w: Writer, a: Any) -> Value:
    return w.number("Not", w.vector(a, rushlight.bool))


@_rule(operator.floordiv)
def _(w: Writer, a: Any, b: Any) -> Value:
    if _dtype(a, b).is_floating_point:
        return w.number("Floor", arithmetic(w, operator.truediv, a, b))
    x, y = w.vector(a), w.vector(b)
    # ONNX divides towards zero; without the remainder, which has the divisor's sign, it is the floor.
    return w.number("Div", w.number("Sub", x, w.number("Mod", x, y)), y)


@_rule(operator.mod)
def _(w: Writer, a: Any, b: Any) -> Value:
    dtype = _dtype(a, b)
    x, y = w.vector(a, dtype), w.vector(b, dtype)
    if dtype.is_floating_point:
        return w.number("Sub", x, w.number("Mul", w.number("Floor", w.number("Div", x, y)), y))
    return w.number("Mod", x, y)


@_rule(operator.truediv)
def _(w: Writer, a: Any, b: Any) -> Value:
    return w.number("Div", w.vector(a, rushlight.float32), w.vector(b, rushlight.float32))


@_rule(operator.pow)
def _(w: Writer, a: Any, b: Any) -> Value:
    dtype = _dtype(a, b)
    return w.number("Pow", w.vector(a, dtype), w.vector(b, dtype))


@_rule(rushlight.sym_float, float)
def _(w: Writer, a: Any) -> Value:
    return w.vector(a, rushlight.float32)


@_rule(rushlight.sym_int, int, math.trunc)
def _(w: Writer, a: Any) -> Value:
    return w.vector(a, rushlight.int64)  # Cast drops the fraction


def _rounded(kind: str, target: Any) -> None:
    @_rule(target)
    def run(w: Writer, a: Any) -> Value:
        if not a.dtype.is_floating_point:
            return a
        return w.vector(w.number(kind, a), rushlight.int64)


_rounded("Floor", math.floor)
_rounded("Ceil", math.ceil)
_rounded("Round", round)


@_rule(rushlight.sym_ite)
def _(w: Writer, condition: Any, a: Any, b: Any) -> Any:
    dtype = _dtype(a, b)
    return w.number("Where", w.vector(condition, rushlight.bool), w.vector(a, dtype), w.vector(b, dtype), dtype=dtype)


def _sum(w: Writer, items: Any) -> Any:
    made: Any = 0
    for item in items:
        made = arithmetic(w, operator.add, made, item)
    return made


NUMBERS[rushlight.sym_sum] = _sum


def arithmetic(w: Any, target: Any, *items: Any) -> Any:
    """A call of a Python operator on numbers."""
    return NUMBERS[target](getattr(w, "writer", w), *items)
