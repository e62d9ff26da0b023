"""Cost analysis: what a set of expressions reads and writes, and how expensive an element is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rushlight._schedule.expressions import Buffer, Expr, Item, Store
from rushlight._schedule.indexing import Data, Ix, Var
from rushlight._schedule.policy import Policy
from rushlight._types.dtype import DType

if TYPE_CHECKING:
    from rushlight._schedule.groups import Stage

__all__ = ["Facts", "facts_of", "part_size"]


class Facts:
    """Resources of a set of expressions: index expressions, memory accesses, and the cost of an element."""

    def __init__(self) -> None:
        self.indices: dict[Ix, None] = {}
        self.accesses: list[tuple[Buffer, Ix, float]] = []
        self.runs: list[float] = []  # how often each access runs for a row
        self.work = 1
        self.widest = 1
        self.primitives: list[str] = []  # names of all operations
        self.loads: list[Expr] = []
        self.seen: set[Expr] = set()

    @property
    def operations(self) -> int:
        """How many operations an element takes."""
        return len(self.primitives)

    def cost(self, policy: Policy) -> float:
        """The cost of an element, including 1 for moving it."""
        total, costs, plain = 1.0, policy.costs.get, policy.plain_cost
        for primitive in self.primitives:
            total += costs(primitive, plain)
        return total

    def widest_along(self, lane: Var, stages: Iterable[Stage]) -> int:
        """Bytes of the widest number that vectors hold where `lane` runs through them.

        What is the same for all lanes, as the number of a row that is fetched, is computed once, and says nothing.
        """
        most = 1
        for x in self.seen:
            if x.kind in ("op", "load", "ix") and any(v is lane or type(v) is Item for v in x.vars):
                most = max(most, part_size(x.dtype))
        for stage in stages:
            for store in stage.stores:
                most = max(most, part_size(store.buffer.dtype))
            for item in stage.items:
                place = 0 if item.position is None else 4 if item.short else 8
                most = max(most, part_size(item.dtype), part_size(item.value.dtype), place)
        return most

    def add_store(self, s: Store) -> None:
        self.add_ix(s.ix)
        self.accesses.append((s.buffer, s.ix, 2.0))
        self.runs.append(self.work)
        self.add(s.value)
        if s.value.kind == "const":  # the buffer alone says how wide the lanes are
            self.widest = max(self.widest, part_size(s.buffer.dtype))
        if s.guard is not None:
            self.add(s.guard)

    def add_item(self, item: Item) -> None:
        if item.lies is not None:
            self.add_ix(item.lies)
            self.accesses.append((Buffer("operand", item.dtype, "temporary"), item.lies, 1.0))
            self.runs.append(self.work)
        self.add(item.value)
        if item.short:
            assert item.position is not None
            self.add_ix(item.position.value)
            self.widest = max(self.widest, 4)
        elif item.position is not None:
            self.add(item.position)

    def add_ix(self, ix: Ix) -> None:
        if ix in self.indices:
            return
        self.indices[ix] = None
        for atom, _ in ix.terms:
            if type(atom) is Data:
                self.add(atom.value)
                if atom.guard is not None:
                    self.add(atom.guard)
            elif type(atom) is not Var:
                self.add_ix(atom.ix)

    def add(self, x: Expr) -> None:
        if x in self.seen:
            return
        self.seen.add(x)
        for a in x.args:
            if a not in self.seen:
                self.add(a)
        if x.kind == "load":
            buffer, ix = x.value
            self.add_ix(ix)
            self.accesses.append((buffer, ix, 1.0))
            self.runs.append(self.work)
            self.loads.append(x)
        elif x.kind == "ix":
            self.add_ix(x.value)
        elif x.kind == "inrange":
            self.add_ix(x.value[0])
        elif x.kind == "op":
            self.primitives.append(x.value[0])
        if x.kind in ("op", "load", "ix"):
            self.widest = max(self.widest, part_size(x.dtype))


def part_size(dtype: DType) -> int:
    """Bytes of a lane: of a number, or of a part of a complex number."""
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def facts_of(stages: Iterable[Stage]) -> Facts:
    """The facts of all expressions of some stages."""
    facts = Facts()
    for stage in stages:
        facts.work = stage.work
        for item in stage.items:
            facts.add_item(item)
        for store in stage.stores:
            facts.add_store(store)
    return facts
