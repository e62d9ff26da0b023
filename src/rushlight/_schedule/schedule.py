"""What is fused with what: a graph becomes groups, each group a kernel (or two), and library calls between them.

Everything that can be computed from an index is recomputed where it is used, not stored.  What is stored: outputs, operands
of library calls, results of scans and scatters, and reductions that are wanted outside of their group.  Nodes are taken in
graph order; each reduction or stored value joins the latest group it fits into, or starts one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rushlight._schedule.attached import fuse_epilogues, fuse_prologues
from rushlight._schedule.grouping import Grouping
from rushlight._schedule.groups import Group
from rushlight._schedule.hazards import mend_hazards
from rushlight._schedule.inline import Location
from rushlight._schedule.placing import LibraryCall, Sequential, is_reduction, name_of
from rushlight._schedule.scans import prepare
from rushlight._types.layout import channels_last_strides, contiguous_strides, is_contiguous, numel, view_strides

if TYPE_CHECKING:
    from rushlight._graph.core import Node, Value

__all__ = ["Schedule"]


class Schedule(Grouping):
    """The groups of a graph in the order they run."""

    # ***** the walk *****

    def run(self) -> Schedule:
        """Form the groups."""
        output_numbers: dict[int, list[int]] = {}
        for i, value in enumerate(self.graph.outputs):
            output_numbers.setdefault(id(value), []).append(i)
        self._works: dict[int, tuple[frozenset[int], float, bool]] = {}
        for value in self.graph.inputs:
            self._store_outputs(value, output_numbers)
        for node in self.graph.nodes:
            self._take_node(node, output_numbers)
            for value in node.outputs:
                self._store_outputs(value, output_numbers)
        mend_hazards(self)
        fuse_epilogues(self)
        fuse_prologues(self)
        return self

    def _store_outputs(self, value: Value, output_numbers: dict[int, list[int]]) -> None:
        for i in output_numbers.get(id(value), ()):
            target = self.targets[i]
            if numel(value.shape) == 0:
                continue
            held = self.placed.get(id(value))
            if held is not None and held[0] is target:
                continue
            self._store(value, target)

    def _take_node(self, node: Node, output_numbers: dict[int, list[int]]) -> None:
        kind = node.prim.lower[0]
        if all(numel(v.shape) == 0 for v in node.outputs):
            return
        self._keep_expensive(node)
        if kind == "extern":
            self._extern(node, output_numbers)
        elif kind in ("scan", "scatter", "index_write"):
            self._sequential(node, output_numbers)
        elif is_reduction(node):
            self._reduce(node, self._views_after(node, output_numbers))

    # ***** what is better stored than computed again *****

    def _work_of(self, value: Value) -> tuple[frozenset[int], float, bool]:
        """What computing an element of `value` takes: the values in memory it reads, the cost, whether a reduction is in it."""
        found = self._works.get(id(value))
        if found is None:
            node = value.node
            if id(value) in self.placed or node is None or not _is_map(node):
                found = frozenset((id(value),)), 0.0, node is not None and is_reduction(node)
            else:
                parts = [self._work_of(x) for x in node.inputs]
                cost = self.policy.cost(node.prim.name) + sum(p[1] for p in parts)
                found = frozenset[int]().union(*(p[0] for p in parts)), cost, any(p[2] for p in parts)
            self._works[id(value)] = found
        return found

    def _keep_expensive(self, node: Node) -> None:
        """Store values that would else be computed many times over: inputs of overlapping windows, of broadcasts and of scatters,
        where they are dear, and values that several others use and that read many arrays."""
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
        if (
            node.prim.lower[0] == "scatter"
        ):  # which takes its elements one by one, and what it is told them by without vectors
            for x in node.inputs[1:]:
                while x.node is not None and x.node.prim.name in ("broadcast", "reshape") and id(x) not in self.placed:
                    x = x.node.inputs[0]
                _, cost, reduces = self._work_of(x)
                if numel(x.shape) >= policy.repeated and cost >= policy.expensive and not reduces:
                    self._keep(x)
        if len(self.graph.nodes) > 24 and _is_map(node):
            value = node.outputs[0]
            if self.uses.get(id(value), 0) >= 2 and len(self._work_of(value)[0]) > self.policy.max_reads:
                self._keep(value)

    def _is_to_spread(self, value: Value) -> bool:
        """Whether a value is read by a broadcast alone, which keeps it."""
        return self.uses.get(id(value)) == 1 and self.users[id(value)].prim.name == "broadcast"

    def _from_columns(self, value: Value) -> bool:
        """Whether all reductions that a value needs are of groups that are closed to others (see `_reduces_columns`), so that it will be read from memory."""
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
        self.notes.append(f"keeps {name_of(value)}, which would be computed again and again")

    # ***** special kernels and library calls *****

    def _sequential(self, node: Node, output_numbers: dict[int, list[int]]) -> None:
        number = len(self.groups)
        self._begin()
        group = Group(self.locator(number), self.policy)
        targets = []
        values = [self._rounded(value, output_numbers) for value in node.outputs]
        for value in values:
            targets.append(
                self._output_location(value, output_numbers)
                or self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary")
            )
        own = self._own_memory(node, output_numbers)
        sequential = Sequential(node, group, [own] if own is not None else targets, own is not None)
        targets = sequential.targets
        prepare(sequential)
        self.groups.append(sequential)
        self._commit()
        for value, target in zip(values, targets, strict=True):
            self._place_all(value, target, number, output_numbers)
        self.notes.append(f"group {number}: {node.prim.name}")

    def _own_memory(self, node: Node, output_numbers: dict[int, list[int]]) -> Location | None:
        """The memory of a scatter's first operand, where the result belongs there and nobody else reads it."""
        x, value = node.inputs[0], node.outputs[0]
        if node.prim.lower[0] == "scan" or self.uses.get(id(x)) != 1 or id(x) in output_numbers:
            return None
        for i in output_numbers.get(id(value), ()):
            k = self.aliases.get(i)
            if k is not None and self.graph.inputs[k] is x and not self.overlaps.get(i):
                return self.sources[k]
        return None

    def _rounded(self, value: Value, output_numbers: dict[int, list[int]]) -> Value:
        """A scan's result, or its converted form where that is all anyone wants of it."""
        if (
            value.node is None
            or value.node.prim.lower[0] != "scan"
            or id(value) in output_numbers
            or self.uses.get(id(value)) != 1
        ):
            return value
        for node in self.graph.nodes:
            if node.prim.name == "convert" and node.inputs[0] is value:
                return node.outputs[0]
        return value

    def _extern(self, node: Node, output_numbers: dict[int, list[int]]) -> None:
        form = self.target.library.form(node)
        conjugated, operands = _conjugated(node) if form.conjugates else ((), node.inputs)
        inputs = [self.as_source(x, not form.strided or k in form.dense) for k, x in enumerate(operands)]
        outputs = []
        number = len(self.groups)
        for k, value in enumerate(node.outputs):
            placed = k in form.placed
            last = form.keeps_layout and len(value.shape) == 4 and value.shape[1] > 1 and inputs[0].strides[1] == 1
            home = (
                self._output_location_through_views(value, output_numbers, number, last)
                if placed
                else self._output_location(value, output_numbers)
            )
            anywhere = placed or form.strided_results
            if home is not None and home.strides != contiguous_strides(value.shape) and not anywhere:
                home = None
            dense = None if placed else contiguous_strides(value.shape)
            strides = channels_last_strides(value.shape) if last else dense
            outputs.append(home or self.new_buffer(value, f"temporary{len(self.sizes)}", "temporary", strides))
        self.groups.append(LibraryCall(node, inputs, outputs, {"conjugated": conjugated} if any(conjugated) else {}))
        for value, target in zip(node.outputs, outputs, strict=True):
            self._place_all(value, target, number, output_numbers)
        self.notes.append(f"group {number}: calls {node.prim.name}")

    def _output_location(self, value: Value, output_numbers: dict[int, list[int]]) -> Location | None:
        """The memory of the new output that is this value, or that is this value in another shape."""
        for v in self._reshaped(value):
            for i in output_numbers.get(id(v), ()):
                target = self.targets[i]
                if i in self.aliases:
                    continue
                if v is value:
                    return target
                if is_contiguous(v.shape, target.strides):
                    return Location(target.buffer, contiguous_strides(value.shape))
        return None

    def _output_location_through_views(
        self, value: Value, output_numbers: dict[int, list[int]], number: int, last: bool = False
    ) -> Location | None:
        """The memory of the new output that is this value with its dims moved about, for what group `number` writes with any strides.

        With `last` only memory in which the channels (dim 1) lie together will do.
        """
        views: list[Node] = []
        v = value
        while True:
            for i in output_numbers.get(id(v), ()):
                strides: Sequence[int] | None = self.targets[i].strides if i not in self.aliases else None
                for move in reversed(views):
                    strides = _strides_before(move, strides)
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
        """A value and its reshapes, as far as each is used once."""
        chain = [value]
        while self.uses.get(id(chain[-1]), 0) == 1:
            user = self.users[id(chain[-1])]
            if user.prim.name != "reshape":
                break
            chain.append(user.outputs[0])
        return chain

    def _place_all(self, value: Value, target: Location, number: int, output_numbers: dict[int, list[int]]) -> None:
        """Note where a value lies, also under the shape in which it is an output."""
        self.placed[id(value)] = (target, number)
        for v in self._reshaped(value)[1:]:
            for i in output_numbers.get(id(v), ()):
                if self.targets[i].buffer is target.buffer:
                    self.placed[id(v)] = (self.targets[i], number)


def _conjugated(node: Node) -> tuple[tuple[bool, ...], Sequence[Value]]:
    """Which operands of a product are conjugates of others, which its routine reads in their place; and what it reads."""
    found = tuple(x.node is not None and x.node.prim.name == "conj" for x in node.inputs)
    return found, [x.node.inputs[0] if c and x.node is not None else x for x, c in zip(node.inputs, found, strict=True)]


def _strides_before(node: Node, strides: Sequence[int] | None) -> Sequence[int] | None:
    """The strides of what a node moves about, where its result has those; None where no strides do it."""
    if strides is None:
        return None
    x, out = node.inputs[0], node.outputs[0]
    if node.prim.name == "transpose":
        return [strides[node.params["perm"].index(d)] for d in range(len(strides))]
    return view_strides(out.shape, strides, x.shape)


def _is_spread(value: Value) -> bool:
    """Whether a value repeats another over a few neighbours (see `interleaved`)."""
    return value.node is not None and value.node.prim.name == "broadcast"


def _is_map(node: Node) -> bool:
    """Whether each element is computed from elements of the inputs alone."""
    return node.prim.lower[0] in ("scalar", "index", "gather", "index_read") and not is_reduction(node)
