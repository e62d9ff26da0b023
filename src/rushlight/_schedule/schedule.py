"""Scheduling: a graph becomes groups, each of them one or two kernels, and library calls between them.

Values that follow from an index are computed where they are read and not stored. Stored are outputs, operands of
library calls, results of scans and scatters, and reductions that other groups read. Nodes are taken in the order of
the graph; each reduction and each stored value joins the latest group that it fits into, or starts one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rushlight._schedule.attached import fuse_epilogues, fuse_prologues
from rushlight._schedule.grouping import Grouping
from rushlight._schedule.groups import Group
from rushlight._schedule.hazards import copy_temporaries, find_hazards
from rushlight._schedule.inline import Location
from rushlight._schedule.placing import LibraryCall, Sequential, is_reduction, name_of
from rushlight._schedule.scans import prepare
from rushlight._schedule.updates import Place, layout_of
from rushlight._types.layout import channels_last_strides, contiguous_strides, is_contiguous, numel, view_strides

if TYPE_CHECKING:
    from rushlight._graph.core import Node, Value

__all__ = ["Schedule"]


class Schedule(Grouping):
    """The groups of a graph in the order they run."""

    # ***** the walk *****

    def run(self) -> Schedule:
        """Form the groups, resolve conflicts of memory, and move pointwise work into library calls."""
        self._works: dict[int, tuple[frozenset[int], float, bool]] = {}
        for value in self.graph.inputs:
            self._store_outputs(value)
        for node in self.graph.nodes:
            self._take_node(node)
            for value in node.outputs:
                self._store_outputs(value)
        hazards = find_hazards(self)
        if hazards:
            temporaries = (*self.temporaries, *hazards)
            return type(self)(*self._arguments, temporaries=temporaries).run()
        copy_temporaries(self)
        fuse_epilogues(self)
        fuse_prologues(self)
        return self

    def _store_outputs(self, value: Value) -> None:
        for i in self.output_numbers.get(id(value), ()):
            target = self.targets[i]
            if numel(value.shape) == 0:
                continue
            placed = self.placed.get(id(value))
            if placed is not None and placed[0] is target:
                continue
            self._store(value, target)

    def _take_node(self, node: Node) -> None:
        kind = node.prim.lower[0]
        if all(numel(v.shape) == 0 for v in node.outputs):
            return
        self._keep_expensive(node)
        if kind == "extern":
            self._extern(node)
        elif kind in ("scan", "scatter", "index_write"):
            self._sequential(node)
        elif is_reduction(node):
            self._reduce(node, self._views_after(node))

    # ***** values that are stored rather than computed again *****

    def _work_of(self, value: Value) -> tuple[frozenset[int], float, bool]:
        """The work of computing one element of `value`: values in memory that it reads, its cost, whether it needs a
        reduction.
        """
        work = self._works.get(id(value))
        if work is None:
            node = value.node
            if id(value) in self.placed or node is None or not _is_map(node):
                work = frozenset((id(value),)), 0.0, node is not None and is_reduction(node)
            else:
                parts = [self._work_of(x) for x in node.inputs]
                cost = self.policy.cost(node.prim.name) + sum(p[1] for p in parts)
                work = frozenset[int]().union(*(p[0] for p in parts)), cost, any(p[2] for p in parts)
            self._works[id(value)] = work
        return work

    def _keep_expensive(self, node: Node) -> None:
        """Store values that would otherwise be computed many times.

        These are expensive inputs of overlapping windows, broadcasts and scatters, and values with several users that
        read many arrays.
        """
        name, policy = node.prim.name, self.policy
        if name in ("window", "broadcast"):
            x, out = node.inputs[0], node.outputs[0]
            size = numel(x.shape)
            if size >= policy.repeated and numel(out.shape) >= policy.repeats * size:
                _, cost, reduces = self._work_of(x)
                if name == "broadcast" and _is_spread(x):
                    self._keep(x)
                elif cost >= policy.expensive and not reduces and not self._is_to_spread(out):
                    self._keep(x)
                elif cost >= policy.expensive_reduction and reduces and self._from_columns(x):
                    self._keep(x)
        if node.prim.lower[0] == "scatter":  # it computes its operands element by element, without vectors
            for x in node.inputs[1:]:
                while x.node is not None and x.node.prim.name in ("broadcast", "reshape") and id(x) not in self.placed:
                    x = x.node.inputs[0]
                _, cost, reduces = self._work_of(x)
                if numel(x.shape) >= policy.repeated and cost >= policy.expensive and not reduces:
                    self._keep(x)
        if len(self.graph.nodes) > policy.small_graph and _is_map(node):
            value = node.outputs[0]
            if self.uses.get(id(value), 0) >= 2 and len(self._work_of(value)[0]) > policy.max_reads:
                self._keep(value)

    def _is_to_spread(self, value: Value) -> bool:
        """Whether a value has one user, a broadcast, which stores it."""
        return self.uses.get(id(value)) == 1 and self.users[id(value)].prim.name == "broadcast"

    def _from_columns(self, value: Value) -> bool:
        """Whether all reductions that a value needs are read from memory, because their groups reduce columns (see
        `_reduces_columns`).
        """
        todo, seen = [value], set[int]()
        while todo:
            v = todo.pop()
            if id(v) in seen or id(v) in self.placed:
                continue
            seen.add(id(v))
            home = self.homes.get(id(v))
            if home is not None:
                group = self.groups[home]
                if not isinstance(group, Group) or not self._reduces_columns(group):
                    return False
            elif v.node is not None:
                todo.extend(v.node.inputs)
        return True

    def _keep(self, value: Value) -> None:
        if id(value) in self.placed:
            return
        self._store(value, self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary"))
        self._works.clear()
        self.notes.append(f"keeps {name_of(value)}, which would be computed many times")

    # ***** scans, scatters and library calls *****

    def _sequential(self, node: Node) -> None:
        number = len(self.groups)
        self._begin()
        group = Group(self.locator(number), self.policy)
        targets = []
        values = [self._rounded(value) for value in node.outputs]
        for value in values:
            targets.append(
                self._output_location(value) or self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary")
            )
        own = self._own_memory(node)
        sequential = Sequential(node, group, [own] if own is not None else targets, own is not None)
        targets = sequential.targets
        prepare(sequential)
        self.groups.append(sequential)
        self._commit()
        for value, target in zip(values, targets, strict=True):
            self._place_all(value, target, number)
        self.notes.append(f"group {number}: {node.prim.name}")

    def _own_memory(self, node: Node) -> Location | None:
        """The memory of a scatter's first operand, where the result is written there and has no other reader."""
        x, value = node.inputs[0], node.outputs[0]
        if node.prim.lower[0] == "scan":
            return None
        for i in self.output_numbers.get(id(value), ()):
            k = self.aliases.get(i, -1)
            written = k >= 0 and i not in self.temporaries and not self.overlaps.get(i)
            if written and self._is_alone(x, k, i):
                return self.targets[i]
        return None

    def _is_alone(self, x: Value, k: int, i: int) -> bool:
        """Whether `x` is what lies where output `i` is written in the memory of input `k`, and nobody else reads that."""
        memory, strides = self.graph.inputs[k], self.sources[k].strides  # type: ignore[union-attr]
        found = layout_of(x, memory, strides)
        if found is None or found[1] != self.places.get(i, Place(strides, 0)):
            return False
        while self.uses.get(id(x)) == 1 and id(x) not in self.output_numbers:
            if x is memory:
                return True
            x = x.node.inputs[0]  # type: ignore[union-attr]
        return False

    def _rounded(self, value: Value) -> Value:
        """A scan's result, or the conversion of it where that is its only use."""
        if (
            value.node is None
            or value.node.prim.lower[0] != "scan"
            or id(value) in self.output_numbers
            or self.uses.get(id(value)) != 1
        ):
            return value
        for node in self.graph.nodes:
            if node.prim.name == "convert" and node.inputs[0] is value:
                return node.outputs[0]
        return value

    def _extern(self, node: Node) -> None:
        form = self.target.library.form(node)
        conjugated, operands = _conjugated(node) if form.conjugates else ((), node.inputs)
        inputs = [self.as_source(x, not form.strided or k in form.dense) for k, x in enumerate(operands)]
        outputs = []
        number = len(self.groups)
        for k, value in enumerate(node.outputs):
            placed = k in form.placed
            last = form.keeps_layout and len(value.shape) == 4 and value.shape[1] > 1 and inputs[0].strides[1] == 1
            home = self._output_location_through_views(value, number, last) if placed else self._output_location(value)
            anywhere = placed or form.strided_results
            if home is not None and home.strides != contiguous_strides(value.shape) and not anywhere:
                home = None
            dense = None if placed else contiguous_strides(value.shape)
            strides = channels_last_strides(value.shape) if last else dense
            outputs.append(home or self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary", strides))
        self.groups.append(LibraryCall(node, inputs, outputs, {"conjugated": conjugated} if any(conjugated) else {}))
        for value, target in zip(node.outputs, outputs, strict=True):
            self._place_all(value, target, number)
        self.notes.append(f"group {number}: calls {node.prim.name}")

    def _output_location(self, value: Value) -> Location | None:
        """The memory of a new output that is this value or a reshape of it."""
        for v in self._reshaped(value):
            for i in self.output_numbers.get(id(v), ()):
                target = self.targets[i]
                if i in self.aliases:
                    continue
                if v is value:
                    return target
                if is_contiguous(v.shape, target.strides):
                    return Location(target.buffer, contiguous_strides(value.shape))
        return None

    def _output_location_through_views(self, value: Value, number: int, last: bool = False) -> Location | None:
        """The memory of a new output that is this value seen through reshapes and transposes, for a routine that
        writes any strides.

        `number` is the routine's group.  `last`: only memory whose channels (dim 1) are neighbours will do.
        """
        views: list[Node] = []
        v = value
        while True:
            for i in self.output_numbers.get(id(v), ()):
                strides: Sequence[int] | None = self.targets[i].strides if i not in self.aliases else None
                for view in reversed(views):
                    strides = _strides_before(view, strides)
                if strides is not None and not (last and strides[1] != 1):
                    if views:
                        self.placed[id(v)] = (self.targets[i], number)
                        return Location(self.targets[i].buffer, strides)
                    return self.targets[i]
            user = self.users.get(id(v))
            if user is None or self.uses.get(id(v)) != 1 or user.prim.name not in ("reshape", "transpose"):
                return None
            views.append(user)
            v = user.outputs[0]

    def _reshaped(self, value: Value) -> list[Value]:
        """A value and the chain of its reshapes, as long as each has one user."""
        chain = [value]
        while self.uses.get(id(chain[-1]), 0) == 1:
            user = self.users[id(chain[-1])]
            if user.prim.name != "reshape":
                break
            chain.append(user.outputs[0])
        return chain

    def _place_all(self, value: Value, target: Location, number: int) -> None:
        """Record the location of a value, also for reshapes of it that are outputs."""
        self.placed[id(value)] = (target, number)
        for v in self._reshaped(value)[1:]:
            for i in self.output_numbers.get(id(v), ()):
                if self.targets[i].buffer is target.buffer:
                    self.placed[id(v)] = (self.targets[i], number)


def _conjugated(node: Node) -> tuple[tuple[bool, ...], Sequence[Value]]:
    """Which operands of a product are conjugates, and the operands without their conjugation."""
    conjugated = tuple(x.node is not None and x.node.prim.name == "conj" for x in node.inputs)
    pairs = zip(node.inputs, conjugated, strict=True)
    return conjugated, [x.node.inputs[0] if c and x.node is not None else x for x, c in pairs]


def _strides_before(node: Node, strides: Sequence[int] | None) -> Sequence[int] | None:
    """The strides of a view's input whose result has `strides`; None where there are none."""
    if strides is None:
        return None
    x, out = node.inputs[0], node.outputs[0]
    if node.prim.name == "transpose":
        return [strides[node.params["perm"].index(d)] for d in range(len(strides))]
    return view_strides(out.shape, strides, x.shape)


def _is_spread(value: Value) -> bool:
    """Whether a value is a broadcast, over a few neighbours (see `interleaved`)."""
    return value.node is not None and value.node.prim.name == "broadcast"


def _is_map(node: Node) -> bool:
    """Whether each element follows from elements of the inputs, without a loop."""
    return node.prim.lower[0] in ("scalar", "index", "gather", "index_read") and not is_reduction(node)
