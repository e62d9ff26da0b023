"""Recomputation: element-wise results that are read early and again late are computed again, and not kept in between.

    units, late = recomputed(units, policy)

In a training step these are activations: norms, GELU, ReLU.  The second computation has the bits of the first: it is
the same arithmetic on the same elements, and sums that the first call left in memory are read, not added up again.
What it reads is there at that time anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from rushlight._graph.core import Graph, Node, Value
from rushlight._schedule.schedule import is_reduction
from rushlight._transforms.units import Number, Operand, Unit, Units
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._schedule.policy import Policy

__all__ = ["recomputed"]

_KINDS = ("scalar", "index")


class _Again(NamedTuple):
    """A call that computes a result again, before the call with the number `at`."""

    value: Value
    at: int


def recomputed(units: Units, policy: Policy) -> tuple[list[Unit], set[int]]:
    """The calls of a program with those that compute results again, and the ids of these."""
    found = _Recomputation(units, policy).run()
    return (units.units, set()) if found is None else found


class _Recomputation:
    """`readers` are the numbers of the calls that read a value; calls that are added stand before a number."""

    def __init__(self, units: Units, policy: Policy) -> None:
        self.units, self.policy, self.limits = list(units.units), policy, policy.recompute
        self.lasting = {id(v) for v in (*units.inputs, *units.outputs)}
        self.maker = {id(v): (k, j) for k, unit in enumerate(self.units) for j, v in enumerate(unit.results)}
        self.readers: dict[int, list[int]] = {}
        for k, unit in enumerate(self.units):
            for base in {id(o.base) for o in unit.operands if o.base is not None}:
                self.readers.setdefault(base, []).append(k)
        self.added: dict[int, list[Unit]] = {}
        self.again: dict[int, _Again] = {}

    def run(self) -> tuple[list[Unit], set[int]] | None:
        far = max(len(self.units) // self.limits.far, 4)
        saved = 0
        for number in range(len(self.units)):
            for result in self.units[number].results:
                late = self._late(result, number, far)
                nbytes = numel(result.shape) * result.dtype.itemsize
                if not late or nbytes < self.limits.least_bytes or id(result) in self.lasting:
                    continue
                made: list[Unit] = []
                again = self._computed(result, late[0], made, self.limits.depth)
                if again is None:
                    continue
                saved += nbytes
                self.added.setdefault(late[0], []).extend(made)
                for k in late:
                    self._redirect(k, result, again)
                self.readers[id(result)] = [k for k in self.readers[id(result)] if k not in late]
                self.readers[id(again)] = late
                self.again[id(result)] = _Again(again, late[0])
        if saved < self.limits.least_total:
            return None
        new = {id(unit) for units in self.added.values() for unit in units}
        return [u for k, unit in enumerate(self.units) for u in (*self.added.get(k, ()), unit)], new

    def _late(self, value: Value, number: int, far: int) -> list[int]:
        """The readers behind the greatest gap between readers, where that is a long one."""
        readers = sorted(set(self.readers.get(id(value), ())))
        if len(readers) < 2 or readers[0] - number > far:
            return []
        gap, at = max((b - a, k) for k, (a, b) in enumerate(pairwise(readers)))
        return readers[at + 1 :] if gap >= far else []

    def _computed(self, value: Value, at: int, made: list[Unit], depth: int) -> Value | None:
        """The value of another call that gives the same, before call `at`; None where that is not to be had.  `made`
        receives the calls, in order.
        """
        number, place = self.maker[id(value)]
        unit = self.units[number]
        cutter = _Cut(unit, place, lambda v: self._is_there(v, at, value))
        if not cutter.possible or cutter.cost(self.policy) > self.limits.most_cost or depth == 0:
            return None
        operands: list[Operand | Number] = []
        for operand in cutter.operands:
            found = self._operand(operand, at, value, made, depth)
            if found is None:
                return None
            operands.append(found)
        again = Unit(cutter.graph(), operands, [Value(value.shape, value.dtype)], [unit.strides[place]])
        for operand in operands:
            if operand.base is not None:
                self.readers.setdefault(id(operand.base), []).append(at)
        made.append(again)
        return again.results[0]

    def _operand(
        self, operand: Operand | Number, at: int, wanted: Value, made: list[Unit], depth: int
    ) -> Operand | Number | None:
        """An operand of a call that is made again: of what is there, or of what is made again too."""
        base = operand.base
        if base is None or self._is_there(base, at, wanted):
            return operand
        assert isinstance(operand, Operand)
        known = self.again.get(id(base))
        if known is not None and known.at <= at and self._is_there(known.value, at, wanted):
            return _of(operand, known.value)
        if id(base) not in self.maker:
            return None
        other = self._computed(base, at, made, depth - 1)
        return None if other is None else _of(operand, other)

    def _is_there(self, value: Value, at: int, wanted: Value) -> bool:
        """Whether a value is in memory at a time anyway, or is too small to matter."""
        if id(value) in self.lasting or max(self.readers.get(id(value), (-self.limits.near,))) >= at - self.limits.near:
            return value is not wanted
        return (
            self.limits.small * numel(value.shape) * value.dtype.itemsize <= numel(wanted.shape) * wanted.dtype.itemsize
        )

    def _redirect(self, number: int, old: Value, new: Value) -> None:
        """Let a call read another value in the place of one."""
        unit = self.units[number]
        operands = [_of(o, new) if isinstance(o, Operand) and o.base is old else o for o in unit.operands]
        self.units[number] = Unit(unit.graph, operands, unit.results, unit.strides, unit.lanes)


def _of(operand: Operand, base: Value) -> Operand:
    """The same view of another value that lies alike."""
    return Operand(base, operand.views, operand.shape, operand.strides, operand.offset)


class _Cut:
    """The nodes that compute one result of a call from its operands and from other results that exist."""

    def __init__(self, unit: Unit, place: int, is_there: Any) -> None:
        self.out = unit.graph.outputs[place]
        given = {id(v): o for v, o in zip(unit.graph.inputs, unit.operands, strict=True)}
        for v, result, strides in zip(unit.graph.outputs, unit.results, unit.strides, strict=True):
            if v is not self.out and id(v) not in given and is_there(result):
                given[id(v)] = Operand(result, (), result.shape, tuple(strides), 0)
        self.leaves: dict[int, Value] = {}
        self.nodes: list[Node] = []
        self.possible = self._walk(unit.graph, given)
        self.operands: Sequence[Operand | Number] = [given[key] for key in self.leaves]

    def _walk(self, graph: Graph, given: dict[int, Any]) -> bool:
        wanted, todo = set(), [self.out]
        while todo:
            value = todo.pop()
            if id(value) in given:
                self.leaves[id(value)] = value
                continue
            node = value.node
            if node is None or id(node) in wanted:
                continue
            if node.prim.lower[0] not in _KINDS or node.prim.name in ("cat", "unwindow") or is_reduction(node):
                return False
            wanted.add(id(node))
            todo += node.inputs
        self.nodes = [node for node in graph.nodes if id(node) in wanted]
        return bool(self.nodes)

    def cost(self, policy: Policy) -> float:
        """Of one element of the result."""
        size = max(numel(self.out.shape), 1)
        return sum(policy.cost(node.prim.name) * numel(node.outputs[0].shape) / size for node in self.nodes)

    def graph(self) -> Graph:
        """The nodes as a graph over the leaves."""
        values = {key: Value(v.shape, v.dtype, weak=v.weak) for key, v in self.leaves.items()}
        inputs, nodes = list(values.values()), []
        for node in self.nodes:
            twin = Node(
                node.prim,
                tuple(values[id(v)] for v in node.inputs),
                node.params,
                [(v.shape, v.dtype) for v in node.outputs],
            )
            nodes.append(twin)
            values.update(zip(map(id, node.outputs), twin.outputs, strict=True))
        return Graph(inputs, nodes, [values[id(self.out)]])
