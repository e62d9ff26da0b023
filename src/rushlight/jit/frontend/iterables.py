"""Iterables of loops: lists, ranges, tensors, strings, dicts, and `enumerate`, `zip`, `reversed` of those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.jit.frontend.errors import CompileError
from rushlight.jit.frontend.sugared import Items, Simple, Sugared, builtin_call
from rushlight.jit.ir import types as T
from rushlight.jit.ir.graph import Location, Value

__all__ = ["Elements", "Iterable", "Range", "Tree", "elements"]


class Iterable(Sugared):
    """Something to loop over: its length and its items as values; or `static`, all items, where they are known."""

    kind = "iterable"
    static: list[Sugared] | None = None
    plain = False

    def length(self, e: Any, at: Location) -> Value:
        """How many items."""
        raise NotImplementedError

    def item(self, e: Any, at: Location, index: Value) -> Sugared:
        """One item."""
        raise NotImplementedError

    def items(self, e: Any, at: Location) -> list[Sugared] | None:
        """All items, where they are known."""
        return self.static

    def value(self, e: Any, at: Location) -> Value:
        """Not possible."""
        raise CompileError(f"{self.kind} cannot be used as a value", at)


class Static(Iterable):
    """Items that are known."""

    def __init__(self, parts: Sequence[Sugared]) -> None:
        self.static = list(parts)

    def value(self, e: Any, at: Location) -> Value:
        """A tuple."""
        assert self.static is not None
        return Items(self.static).value(e, at)


class Range(Iterable):
    """`range(...)`."""

    kind = "range"

    def __init__(self, e: Any, at: Location, args: list[Value]) -> None:
        if not 1 <= len(args) <= 3:
            raise CompileError(f"range expected at least 1 arguments, got {len(args)}", at)
        values = [e.convert(v, T.INT, at, "all inputs of range must be ints") if v.type != T.INT else v for v in args]
        self.plain = len(values) == 1
        self.step: Any = None
        self.start = e.graph.constant(0, T.INT) if self.plain else values[0]
        self.end = values[0] if self.plain else values[1]
        self.step = values[2] if len(values) == 3 else e.graph.constant(1, T.INT)

    def length(self, e: Any, at: Location) -> Value:
        """The number of steps."""
        if self.plain:
            return self.end
        return builtin_call(e, at, "aten::__range_length", [self.start, self.end, self.step], {})

    def item(self, e: Any, at: Location, index: Value) -> Sugared:
        """The number at a step."""
        if self.plain:
            return Simple(index)
        return Simple(builtin_call(e, at, "aten::__derive_index", [index, self.start, self.step], {}))

    def getitem(self, e: Any, at: Location, index: Value) -> Sugared:
        """The number at a step."""
        return self.item(e, at, index)


class Elements(Iterable):
    """The elements of a list, a tensor or a string."""

    def __init__(self, held: Value) -> None:
        self.held = held

    def length(self, e: Any, at: Location) -> Value:
        """The number of elements."""
        return builtin_call(e, at, "aten::len", [self.held], {})

    def item(self, e: Any, at: Location, index: Value) -> Sugared:
        """An element."""
        if self.held.type == T.TENSOR:
            zero = e.graph.constant(0, T.INT)
            return Simple(builtin_call(e, at, "aten::select", [self.held, zero, index], {}))
        return Simple(builtin_call(e, at, "aten::__getitem__", [self.held, index], {}))


class Tree(Iterable):
    """Several things at once: `zip`, `enumerate`."""

    def __init__(self, parts: Sequence[Iterable]) -> None:
        self.parts = list(parts)
        known = [p.static for p in self.parts if p.static is not None]
        if known:
            count = min(map(len, known))
            columns = []
            for part in self.parts:
                if part.static is not None:
                    columns.append(part.static[:count])
                elif isinstance(part, _Counter):
                    columns.append([part.known(i) for i in range(count)])
                else:
                    columns = []
                    break
            if columns:
                self.static = [Items(list(row)) for row in zip(*columns, strict=True)]
            else:
                raise CompileError(
                    "Can not iterate over a module list or tuple with a value that does not have a static length", None
                )

    def length(self, e: Any, at: Location) -> Value:
        """The length of the shortest."""
        counts = [p.length(e, at) for p in self.parts if not isinstance(p, _Counter)]
        if len(counts) == 1:
            return counts[0]
        listed = e.graph.op("prim::ListConstruct", counts, T.list_of(T.INT))
        return builtin_call(e, at, "prim::min", [listed], {})

    def item(self, e: Any, at: Location, index: Value) -> Sugared:
        """One of each, as a tuple."""
        return Items([p.item(e, at, index) for p in self.parts])


class _Counter(Iterable):
    """0, 1, 2, ... or from another start."""

    def __init__(self, e: Any, start: Value | None) -> None:
        self.e, self.start = e, start

    def known(self, at: int) -> Sugared:
        """The number at a place that is known."""
        number = Simple(self.e.graph.constant(at, T.INT))
        return (
            number
            if self.start is None
            else Simple(builtin_call(self.e, self.e.graph.location, "aten::add", [number.inner, self.start], {}))
        )

    def item(self, e: Any, at: Location, index: Value) -> Sugared:
        """The number at a step."""
        if self.start is None:
            return Simple(index)
        return Simple(builtin_call(e, at, "aten::add", [index, self.start], {}))


def counter(e: Any, start: Value | None) -> Iterable:
    """The counter that `enumerate` puts beside the items."""
    return _Counter(e, start)


def elements(e: Any, held: Sugared, at: Location) -> Iterable:
    """The items of a loop over something; CompileError where there are none."""
    if isinstance(held, Iterable):
        return held
    known = held.items(e, at)
    if known is not None:
        return Static(known)
    value = held.value(e, at)
    kind = value.type
    if kind.name == "Dict":
        return Elements(builtin_call(e, at, "aten::keys", [value], {}))
    if kind == T.STR:
        return Elements(builtin_call(e, at, "aten::list", [value], {}))
    if kind.name == "List" or kind == T.TENSOR:
        return Elements(value)
    raise CompileError(f"'{kind.annotation}' object is not iterable", at)
