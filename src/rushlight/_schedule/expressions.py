"""Scalar expressions over loop variables; reductions and stores of them.

A `Builder` makes equal expressions one object (hash-consing). Generated code computes an expression once, in the
outermost loop where its operands are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._schedule.indexing import Data, Ix, Var
from rushlight._types.dtype import BOOL, INT64, DType
from rushlight._types.symbols import key_of

__all__ = ["Buffer", "Builder", "Item", "Store", "Expr", "identity", "substitute"]


class Buffer:
    """An array that kernels read or write.  `role` is "input", "output" or "temporary"."""

    __slots__ = ("dtype", "name", "role")

    def __init__(self, name: str, dtype: DType, role: str) -> None:
        self.name, self.dtype, self.role = name, dtype, role

    def __repr__(self) -> str:
        return self.name


class Expr:
    """A scalar expression.  `kind` is one of

    const(value) · arg(number) · load(buffer, ix, guard) · op(prim, params; args) · ix(ix) as a number ·
    inrange(ix, lo, hi): lo <= ix < hi · ref(reduction item): the result of a reduction or the running value of a scan.
    """

    __slots__ = ("args", "dtype", "kind", "order", "value", "vars")

    def __init__(
        self, kind: str, args: tuple[Expr, ...], value: Any, dtype: DType, vars: frozenset[Any], order: int
    ) -> None:
        self.kind, self.args, self.value, self.dtype, self.vars, self.order = kind, args, value, dtype, vars, order

    def __repr__(self) -> str:
        return f"x{self.order}:{self.kind}"


_NOTHING: frozenset[Any] = frozenset()


class Builder:
    """Makes the expressions of one kernel."""

    def __init__(self) -> None:
        self._known: dict[Any, Expr] = {}

    def _make(
        self, key: Any, kind: str, args: tuple[Expr, ...], value: Any, dtype: DType, vars: frozenset[Any]
    ) -> Expr:
        expr = self._known.get(key)
        if expr is None:
            expr = self._known[key] = Expr(kind, args, value, dtype, vars, len(self._known))
        return expr

    def const(self, value: Any, dtype: DType) -> Expr:
        return self._make(("const", key_of(value), dtype), "const", (), value, dtype, _NOTHING)

    def arg(self, number: int, dtype: DType) -> Expr:
        return self._make(("arg", number), "arg", (), number, dtype, _NOTHING)

    def load(self, buffer: Buffer, ix: Ix, guard: Expr | None = None) -> Expr:
        """The element of `buffer` at `ix`, read only where `guard` holds."""
        args = () if guard is None else (guard,)
        vars = ix.vars if guard is None else ix.vars | guard.vars
        return self._make(("load", buffer, ix, guard), "load", args, (buffer, ix), buffer.dtype, vars)

    def op(self, prim: str, args: Sequence[Expr], dtype: DType, params: tuple[tuple[str, Any], ...] = ()) -> Expr:
        vars = args[0].vars if len(args) == 1 else _NOTHING.union(*[a.vars for a in args])
        return self._make(("op", prim, params, *map(id, args), dtype), "op", tuple(args), (prim, params), dtype, vars)

    def index(self, ix: Ix, dtype: DType) -> Expr:
        """An index as a number of `dtype`."""
        return self._make(("ix", ix, dtype), "ix", (), ix, dtype, ix.vars)

    def inrange(self, ix: Ix, lo: int, hi: int) -> Expr | None:
        """Whether `lo <= ix < hi`; None where that always holds."""
        if ix.lo >= lo and ix.hi < hi:
            return None
        return self._make(("inrange", ix, lo, hi), "inrange", (), (ix, lo, hi), BOOL, ix.vars)

    def divides(self, ix: Ix, by: int) -> Expr | None:
        """Whether `by` divides `ix`; None where it always does."""
        rest = ix.mod(by)
        return None if rest.lo == rest.hi == 0 else self.inrange(rest, 0, 1)

    def ref(self, item: Item, part: int = 0) -> Expr:
        """The result of a reduction item; of one with positions the position (part 0) or the value there (part 1)."""
        dtype = INT64 if item.position is not None and part == 0 else item.dtype
        return self._make(("ref", id(item), part), "ref", (), (item, part), dtype, frozenset((item,)))

    def both(self, a: Expr | None, b: Expr | None) -> Expr | None:
        """The conjunction of two conditions, of which None means true."""
        if a is None or b is None or a is b:
            return b if a is None else a
        return self.op("bitwise_and", (a, b), BOOL)


class Item:
    """One result of a reduction or of a scan.

    `op` is a primitive's name (add mul maximum minimum), or one of argmax argmin lastmax lastmin. These four also
    report the `position` (int64) of the element; the last two take the last of equal elements. `twin` is an item of
    the same loops that computes this item's value too. `rising`: the loops reach positions in rising order.
    `place`, where the policy wants it, is the number of an element among those that are reduced, and `lies` its number among all
    of the operand, where that lies nowhere as a whole.
    """

    __slots__ = ("dtype", "lies", "op", "order", "place", "position", "rising", "twin", "value")

    _count = 0

    def __init__(self, op: str, value: Expr, dtype: DType, position: Expr | None = None) -> None:
        Item._count += 1
        self.op, self.value, self.dtype, self.position, self.order = op, value, dtype, position, Item._count
        self.twin: Item | None = None
        self.place: Ix | None = None
        self.lies: Ix | None = None
        self.rising = False

    @property
    def rounds(self) -> bool:
        """Whether the result depends on the order in which elements are combined."""
        return self.op in ("add", "mul") and self.dtype.kind in "fc"

    @property
    def short(self) -> bool:
        """Whether positions are sums of loop variables below 2**31, so that 32 bits hold them."""
        at = self.position
        return (
            at is not None
            and not self.op.startswith("last")
            and at.kind == "ix"
            and all(type(a) is Var for a, _ in at.value.terms)
            and -(1 << 31) < at.value.lo <= at.value.hi < (1 << 31) - 1
        )


class Store:
    """Writes `value` to `buffer` at `ix` where `guard` holds.  `combine` names a primitive that combines it with the
    stored element.
    """

    __slots__ = ("buffer", "combine", "guard", "ix", "stream", "value")

    def __init__(
        self,
        buffer: Buffer,
        ix: Ix,
        value: Expr,
        combine: str | None = None,
        guard: Expr | None = None,
        stream: bool = False,
    ) -> None:
        self.buffer, self.ix, self.value, self.combine, self.guard, self.stream = (
            buffer,
            ix,
            value,
            combine,
            guard,
            stream,
        )


def identity(op: str, dtype: DType) -> Any:
    """The neutral element of `op`."""
    if op in ("add", "mul"):
        return op == "mul" if dtype is BOOL else int(op == "mul")
    least = op.endswith("max") or op == "maximum"
    if dtype is BOOL:
        return not least
    if dtype.kind == "f":
        return float("-inf") if least else float("inf")
    bits = 8 * dtype.itemsize
    if dtype.kind == "u":
        return 0 if least else (1 << bits) - 1
    return -(1 << (bits - 1)) if least else (1 << (bits - 1)) - 1


# ***** substitution *****


def substitute(
    builder: Builder, mapping: dict[Var, Ix], items: dict[Item, Item] | None = None
) -> tuple[Callable[[Ix], Ix], Callable[[Expr], Expr]]:
    """Functions that rebuild index expressions and scalar expressions with loop variables (and reductions) replaced."""
    done: dict[Expr, Expr] = {}
    keys: frozenset[Any] = frozenset(mapping).union(items or ())

    def atom(a: Any) -> Ix | None:
        if type(a) is Var:
            return mapping.get(a)
        if type(a) is Data:
            return Ix(
                ((Data(x(a.value), a.size, a.dim, a.code, x(a.guard) if a.guard is not None else None, a.wraps), 1),), 0
            )
        return None

    def ix(i: Ix) -> Ix:
        return i if keys.isdisjoint(i.vars) else i.rebuild(atom)

    def x(e: Expr) -> Expr:
        if keys.isdisjoint(e.vars):
            return e
        rebuilt = done.get(e)
        if rebuilt is None:
            rebuilt = done[e] = rebuild(e)
        return rebuilt

    def rebuild(e: Expr) -> Expr:
        if e.kind == "load":
            buffer, i = e.value
            return builder.load(buffer, ix(i), x(e.args[0]) if e.args else None)
        if e.kind == "op":
            prim, params = e.value
            return builder.op(prim, [x(a) for a in e.args], e.dtype, params)
        if e.kind == "ix":
            return builder.index(ix(e.value), e.dtype)
        if e.kind == "inrange":
            i, lo, hi = e.value
            condition = builder.inrange(ix(i), lo, hi)
            return builder.const(True, BOOL) if condition is None else condition
        if e.kind == "ref" and items is not None:
            item, part = e.value
            return builder.ref(items[item], part)
        return e

    return ix, x
