"""Scheduling: a graph becomes groups, each of them one or two kernels, and library calls between them.

Values that follow from an index are computed where they are read and not stored. Stored are outputs, operands of
library calls, results of scans and scatters, and reductions that other groups read. Nodes are taken in the order of
the graph; each reduction and each stored value joins the latest group that it fits into, or starts one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rushlight._schedule.attached import fuse_epilogues, fuse_prologues
from rushlight._schedule.grouping import Grouper, Operands
from rushlight._schedule.groups import Group
from rushlight._schedule.hazards import copy_temporaries, find_hazards
from rushlight._schedule.inline import Location
from rushlight._schedule.scans import prepare
from rushlight._schedule.schedule import LibraryCall, Schedule, Sequential, is_reduction, name_of
from rushlight._schedule.updates import Place, layout_of
from rushlight._types.layout import channels_last_strides, contiguous_strides, numel

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node, Value
    from rushlight._schedule.policy import Target

__all__ = ["schedule_graph"]


def schedule_graph(
    graph: Graph,
    layouts: Sequence[Sequence[int] | None],
    out_strides: Sequence[Sequence[int] | None] | None,
    aliases: dict[int, int],
    overlaps: dict[int, Sequence[int]],
    target: Target,
) -> Schedule:
    """The groups of a graph in the order in which they run, without conflicts of memory, and with pointwise work moved
    into library calls (arguments: see `Schedule`).
    """
    temporaries: tuple[int, ...] = ()
    while True:
        schedule = Schedule(graph, layouts, out_strides, aliases, overlaps, target, temporaries)
        Scheduler(schedule).run()
        hazards = find_hazards(schedule)
        if not hazards:
            break
        temporaries = (*temporaries, *hazards)
    copy_temporaries(schedule)
    fuse_epilogues(schedule)
    fuse_prologues(schedule)
    return schedule


class Scheduler:
    """Takes the nodes of a graph in order and has each become part of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.grouper = schedule, Grouper(schedule)
        self.operands, self.kept = Operands(schedule, self.grouper), KeptValues(schedule, self.grouper)

    def run(self) -> None:
        """Form the groups."""
        for value in self.schedule.graph.inputs:
            self._store_outputs(value)
        for node in self.schedule.graph.nodes:
            self._take_node(node)
            for value in node.outputs:
                self._store_outputs(value)

    def _store_outputs(self, value: Value) -> None:
        for i in self.schedule.output_numbers.get(id(value), ()):
            target = self.schedule.targets[i]
            if numel(value.shape) == 0:
                continue
            placed = self.schedule.placed.get(id(value))
            if placed is not None and placed[0] is target:
                continue
            self.grouper.store(value, target)

    def _take_node(self, node: Node) -> None:
        kind = node.prim.lower[0]
        if all(numel(v.shape) == 0 for v in node.outputs):
            return
        self.kept.keep_expensive(node)
        if kind == "extern":
            self._extern(node)
        elif kind in ("scan", "scatter", "index_write"):
            self._sequential(node)
        elif is_reduction(node):
            self.grouper.reduce(node)

    # ***** scans, scatters and library calls *****

    def _sequential(self, node: Node) -> None:
        number = len(self.schedule.groups)
        self.schedule.begin()
        group = Group(self.schedule.locator(number), self.schedule.policy)
        targets = []
        values = [self._rounded(value) for value in node.outputs]
        for value in values:
            targets.append(self.schedule.output_location(value) or self.schedule.new_temporary(value))
        own = self._own_memory(node)
        sequential = Sequential(node, group, [own] if own is not None else targets, own is not None)
        targets = sequential.targets
        prepare(sequential)
        self.schedule.groups.append(sequential)
        self.schedule.commit()
        for value, target in zip(values, targets, strict=True):
            self.schedule.place_all(value, target, number)
        self.schedule.notes.append(f"group {number}: {node.prim.name}")

    def _own_memory(self, node: Node) -> Location | None:
        """The memory of a scatter's first operand, where the result is written there and has no other reader."""
        x, value = node.inputs[0], node.outputs[0]
        if node.prim.lower[0] == "scan":
            return None
        for i in self.schedule.output_numbers.get(id(value), ()):
            k = self.schedule.aliases.get(i, -1)
            written = k >= 0 and i not in self.schedule.temporaries and not self.schedule.overlaps.get(i)
            if written and self._is_alone(x, k, i):
                return self.schedule.targets[i]
        return None

    def _is_alone(self, x: Value, k: int, i: int) -> bool:
        """Whether `x` is what lies where output `i` is written in the memory of input `k`, and nobody else reads that."""
        memory, strides = self.schedule.graph.inputs[k], self.schedule.sources[k].strides  # type: ignore[union-attr]
        found = layout_of(x, memory, strides)
        if found is None or found[1] != self.schedule.places.get(i, Place(strides, 0)):
            return False
        while self.schedule.uses.get(id(x)) == 1 and id(x) not in self.schedule.output_numbers:
            if x is memory:
                return True
            x = x.node.inputs[0]  # type: ignore[union-attr]
        return False

    def _rounded(self, value: Value) -> Value:
        """A scan's result, or the conversion of it where that is its only use."""
        if (
            value.node is None
            or value.node.prim.lower[0] != "scan"
            or id(value) in self.schedule.output_numbers
            or self.schedule.uses.get(id(value)) != 1
        ):
            return value
        for node in self.schedule.graph.nodes:
            if node.prim.name == "convert" and node.inputs[0] is value:
                return node.outputs[0]
        return value

    def _extern(self, node: Node) -> None:
        form = self.schedule.target.library.form(node)
        conjugated, operands = _conjugated(node) if form.conjugates else ((), node.inputs)
        inputs = [self.operands.location(x, not form.strided or k in form.dense) for k, x in enumerate(operands)]
        outputs = []
        number = len(self.schedule.groups)
        for k, value in enumerate(node.outputs):
            placed = k in form.placed
            last = form.keeps_layout and len(value.shape) == 4 and value.shape[1] > 1 and inputs[0].strides[1] == 1
            home = (
                self.schedule.output_location_through_views(value, number, last)
                if placed
                else self.schedule.output_location(value)
            )
            anywhere = placed or form.strided_results
            if home is not None and home.strides != contiguous_strides(value.shape) and not anywhere:
                home = None
            dense = None if placed else contiguous_strides(value.shape)
            strides = channels_last_strides(value.shape) if last else self.schedule.marked_strides(value) or dense
            outputs.append(home or self.schedule.new_temporary(value, strides))
        self.schedule.groups.append(
            LibraryCall(node, inputs, outputs, {"conjugated": conjugated} if any(conjugated) else {})
        )
        for value, target in zip(node.outputs, outputs, strict=True):
            self.schedule.place_all(value, target, number)
        self.schedule.notes.append(f"group {number}: calls {node.prim.name}")


class _Work(NamedTuple):
    """The work of computing one element: values in memory that are read, the cost, and those among them that are results
    of reductions.
    """

    reads: frozenset[int]
    cost: float
    reductions: frozenset[int]


class KeptValues:
    """Decides which values are stored rather than computed again for each of their readers."""

    def __init__(self, schedule: Schedule, grouper: Grouper) -> None:
        self.schedule, self.grouper = schedule, grouper
        self._works: dict[int, _Work] = {}

    def _work_of(self, value: Value) -> _Work:
        """The work of computing one element of `value`."""
        work = self._works.get(id(value))
        if work is None:
            node = value.node
            if id(value) in self.schedule.placed or node is None or not _is_map(node):
                leaf = frozenset((id(value),))
                work = _Work(leaf, 0.0, leaf if node is not None and is_reduction(node) else frozenset())
            else:
                parts = [self._work_of(x) for x in node.inputs]
                cost = self.schedule.policy.cost(node.prim.name) + sum(p.cost for p in parts)
                reads = frozenset[int]().union(*(p.reads for p in parts))
                reductions = frozenset[int]().union(*(p.reductions for p in parts))
                work = _Work(reads, cost, reductions)
            self._works[id(value)] = work
        return work

    def keep_expensive(self, node: Node) -> None:
        """Store values that would otherwise be computed many times.

        These are expensive inputs of overlapping windows, broadcasts and scatters, and values with several users that
        read many arrays.
        """
        name, policy = node.prim.name, self.schedule.policy
        if name in ("window", "broadcast"):
            x, out = node.inputs[0], node.outputs[0]
            size = numel(x.shape)
            if size >= policy.repeated and numel(out.shape) >= policy.repeats * size:
                work = self._work_of(x)
                if name == "broadcast" and _is_spread(x):
                    self._keep(x)
                elif work.cost >= policy.expensive and not work.reductions and not self._is_to_spread(out):
                    self._keep(x)
                elif work.cost >= policy.expensive_reduction and work.reductions and self._from_columns(x):
                    self._keep(x)
            if size > 1 and numel(out.shape) >= policy.repeated * size:
                work = self._work_of(x)
                # Rows that are divided by their norm, say, and then read for each column of a result.
                if work.cost >= policy.expensive and work.reductions and work.reductions < work.reads:
                    self._keep(x)
        if node.prim.lower[0] == "scatter":  # it computes its operands element by element, without vectors
            for x in node.inputs[1:]:
                while (
                    x.node is not None
                    and x.node.prim.name in ("broadcast", "reshape")
                    and id(x) not in self.schedule.placed
                ):
                    x = x.node.inputs[0]
                work = self._work_of(x)
                if numel(x.shape) >= policy.repeated and work.cost >= policy.expensive and not work.reductions:
                    self._keep(x)
        if len(self.schedule.graph.nodes) > policy.small_graph and _is_map(node):
            value = node.outputs[0]
            if self.schedule.uses.get(id(value), 0) >= 2 and len(self._work_of(value).reads) > policy.max_reads:
                self._keep(value)

    def _is_to_spread(self, value: Value) -> bool:
        """Whether a value has one user, a broadcast, which stores it."""
        return self.schedule.uses.get(id(value)) == 1 and self.schedule.users[id(value)].prim.name == "broadcast"

    def _from_columns(self, value: Value) -> bool:
        """Whether all reductions that a value needs are read from memory, because their groups reduce columns (see
        `Grouper.reduces_columns`).
        """
        todo, seen = [value], set[int]()
        while todo:
            v = todo.pop()
            if id(v) in seen or id(v) in self.schedule.placed:
                continue
            seen.add(id(v))
            home = self.schedule.homes.get(id(v))
            if home is not None:
                group = self.schedule.groups[home]
                if not isinstance(group, Group) or not self.grouper.reduces_columns(group):
                    return False
            elif v.node is not None:
                todo.extend(v.node.inputs)
        return True

    def _keep(self, value: Value) -> None:
        if id(value) in self.schedule.placed:
            return
        self.grouper.store(value, self.schedule.new_temporary(value))
        self._works.clear()
        self.schedule.notes.append(f"keeps {name_of(value)}, which would be computed many times")


def _conjugated(node: Node) -> tuple[tuple[bool, ...], Sequence[Value]]:
    """Which operands of a product are conjugates, and the operands without their conjugation."""
    conjugated = tuple(x.node is not None and x.node.prim.name == "conj" for x in node.inputs)
    pairs = zip(node.inputs, conjugated, strict=True)
    return conjugated, [x.node.inputs[0] if c and x.node is not None else x for x, c in pairs]


def _is_spread(value: Value) -> bool:
    """Whether a value is a broadcast, over a few neighbours (see `interleaved`)."""
    return value.node is not None and value.node.prim.name == "broadcast"


def _is_map(node: Node) -> bool:
    """Whether each element follows from elements of the inputs, without a loop."""
    return node.prim.lower[0] in ("scalar", "index", "gather", "index_read", "identity") and not is_reduction(node)
