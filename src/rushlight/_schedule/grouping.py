"""Assigns stores and reductions to groups, and memory to the operands of library calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._schedule.costs import Facts
from rushlight._schedule.groups import FusionError, Group, refine
from rushlight._schedule.indexing import Var
from rushlight._schedule.inline import Inliner, Location, reduced_sizes
from rushlight._schedule.schedule import Schedule, name_of
from rushlight._types.layout import contiguous_strides, is_contiguous, numel, restride

if TYPE_CHECKING:
    from rushlight._graph.core import Node, Value

__all__ = ["Grouper", "Operands", "laid_out"]


class Grouper:
    """Decides which stores and reductions join a group of a schedule, and which start a new one."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def store(self, value: Value, target: Location) -> None:
        """Have a group compute a value and store it."""
        size, policy = numel(value.shape), self.schedule.policy

        def fits(group: Group) -> bool:
            stores = sum(len(s.stores) for s in group.stages)
            if stores >= policy.max_stores or group.closed and size != group.rows:
                return False
            if group.reductions:
                wide = group.rows >= policy.many_rows and not self.reduces_columns(group)
                return wide or size <= policy.serial_work or size == group.rows
            return group.shape == tuple(s for s in value.shape if s != 1) and bool(self._shares(group, value))

        number = self._join(fits, lambda g: g.add_store(value, target), f"store {name_of(value)}")
        if id(value) not in self.schedule.placed:
            self.schedule.placed[id(value)] = (target, number)

    def _shares(self, group: Group, value: Value) -> bool:
        """Whether a value reads a value that the group reads or computes."""
        seen: set[int] = set()
        todo = [value]
        mine = set(map(id, group.values))
        while todo and len(seen) < 64:
            v = todo.pop()
            if id(v) in seen:
                continue
            seen.add(id(v))
            if id(v) in group.reads or id(v) in mine:
                return True
            if v.node is not None and id(v) not in self.schedule.placed:
                todo.extend(v.node.inputs)
        return False

    def _views_after(self, node: Node) -> list[Node]:
        """The views through which alone a reduction's results are read, up to the last slice: what is cut off is not
        computed.
        """
        views: list[Node] = []
        value = node.outputs[0]
        while id(value) not in self.schedule.output_numbers and self.schedule.uses.get(id(value)) == 1:
            user = self.schedule.users[id(value)]
            if user.prim.name not in ("slice", "reshape", "transpose", "flip"):
                break
            views.append(user)
            value = user.outputs[0]
        while views and views[-1].prim.name != "slice":
            views.pop()
        return views if numel(views[-1].outputs[0].shape if views else ()) else []

    def reduce(self, node: Node) -> None:
        """Have a group compute a reduction, as far as it is read."""
        views = self._views_after(node)
        value = views[-1].outputs[0] if views else node.outputs[0]
        rows, work, policy = numel(value.shape), numel(value.shape) * numel(reduced_sizes(node)), self.schedule.policy

        def fits(group: Group) -> bool:
            if not group.reductions or group.rows != rows or group.closed:
                return False
            if (rows >= policy.many_rows and not self.reduces_columns(group)) or work <= policy.serial_work:
                return True
            return not self._depends(node, group) and [v.size for v in group.stages[0].loops] == [
                s for s in reduced_sizes(node) if s != 1
            ]

        maker = node.inputs[0].node
        alone = maker is not None and maker.prim.name == "unfused"
        add, what = lambda g: g.add_reduction(node, views), f"{node.prim.name} {name_of(value)}"
        number = self._join((lambda g: False) if alone else fits, add, what)
        if alone:
            self.schedule.groups[number].closed = True  # type: ignore[union-attr]
        self.schedule.homes[id(value)] = number

    def reduces_columns(self, group: Group) -> bool:
        """Whether a group reduces long columns side by side that are too few to occupy the threads, or too many for a
        cache.

        Such columns are reduced in blocks of whole rows. Values that follow from the results are computed by other
        groups.
        """
        policy, work = self.schedule.policy, max(s.work for s in group.stages)
        size = max((i.dtype.itemsize for s in group.stages for i in s.items), default=4)
        if group.rows * work <= policy.serial_work or group.direction() >= 0:
            return False
        few = (
            work >= policy.long_column and group.rows * size < policy.many_rows * 4 * self.schedule.target.vector_bytes
        )
        return few or (work >= policy.tall_column and group.rows * work * size >= 4 * self.schedule.target.l2_bytes)

    def _depends(self, node: Node, group: Group) -> bool:
        """Whether a node depends on a reduction of the group."""
        seen: set[int] = set()
        todo = list(node.inputs)
        while todo:
            v = todo.pop()
            if id(v) in group.reductions:
                return True
            if id(v) not in seen and v.node is not None:
                seen.add(id(v))
                todo.extend(v.node.inputs)
        return False

    def _join(self, fits: Any, add: Any, what: str) -> int:
        """Add a value to the latest group that takes it, or to a new group.  Returns the group's number."""
        tried = 0
        for number in range(len(self.schedule.groups) - 1, -1, -1):
            group = self.schedule.groups[number]
            if not isinstance(group, Group) or not fits(group):
                continue
            tried += 1
            if tried > 3:
                break
            self.schedule.begin()
            before = len(group.stages)
            reads = set(group.reads)
            try:
                add(group)
            except FusionError as why:
                del group.stages[before:]
                group.probe = None
                group.reads = reads
                self.schedule.notes.append(f"group {number}: does not take {what}: {why}")
                continue
            self.schedule.commit()
            self.schedule.notes.append(f"group {number}: takes {what}")
            return number
        number = len(self.schedule.groups)
        self.schedule.begin()
        group = Group(self.schedule.locator(number), self.schedule.policy)
        add(group)
        self.schedule.groups.append(group)
        self.schedule.commit()
        self.schedule.notes.append(f"group {number}: starts with {what}")
        return number


class Operands:
    """Finds or makes the memory of operands of library calls."""

    def __init__(self, schedule: Schedule, grouper: Grouper) -> None:
        self.schedule, self.grouper = schedule, grouper

    def location(self, value: Value, dense: bool = False) -> Location:
        """The location of a value: where it is stored, or a strided view of stored memory, or a new buffer that is
        filled for the call.

        `dense` asks for row-major memory; a marked operand lies as its mark says.
        """
        laid = None if dense else laid_out(value)

        def fits(found: Location) -> bool:
            if laid is not None:
                return all(n == 1 or a == b for n, a, b in zip(value.shape, found.strides, laid, strict=True))
            return not dense or is_contiguous(value.shape, found.strides)

        placed = self.schedule.placed.get(id(value))
        if placed is not None and isinstance(placed[0], Location) and fits(placed[0]):
            return placed[0]
        if numel(value.shape) == 0:
            return self.schedule.new_temporary(value)
        view = self._as_view(value)
        if view is not None and fits(view):
            return view
        if not dense and value.node is not None and value.node.prim.name == "broadcast":
            return self._repeated(value.node)
        strides = laid or (contiguous_strides(value.shape) if dense else self._columns_first(value))
        target = self.schedule.new_temporary(value, strides)
        self.grouper.store(value, target)
        if placed is None:
            self.schedule.placed[id(value)] = (target, self.schedule.placed[id(value)][1])
        return target

    def _repeated(self, node: Node) -> Location:
        """A broadcast as a view with strides of 0 over its input."""
        x, shape = node.inputs[0], node.outputs[0].shape
        source, strides = self.location(x), [0] * len(shape)
        for size, stride, dim in zip(x.shape, source.strides, node.params["dims"], strict=True):
            strides[dim] = stride if size == shape[dim] else 0
        return Location(source.buffer, strides)

    def _columns_first(self, value: Value) -> Sequence[int] | None:
        """Strides with the last two dims exchanged, where the expressions of a matrix read along its columns; else
        None.
        """
        if len(value.shape) < 2 or value.shape[-2] < 2 or value.shape[-1] < 2:
            return None
        self.schedule.begin()
        group = Group(self.schedule.locator(len(self.schedule.groups)), self.schedule.policy)
        dims = [Var(s, "d") for s in value.shape]
        x = group.inliner.element(value, [d.ix for d in dims])
        self.schedule.begin()
        facts = Facts()
        facts.add(x)
        mapping, _ = refine(list(facts.indices), dims)
        accesses = [i for _, i, _ in facts.accesses]
        if self.schedule.policy.whole_accesses:
            accesses = [i for i in accesses if i.vars.issuperset(dims[-2:])] or accesses
        runs, slower, far = [], self.schedule.policy.stride_costs.get, self.schedule.policy.far_cost
        for dim in dims[-2:]:
            parts = mapping[dim].terms if dim in mapping else ((dim, 1),)
            inner = next((v for v, c in parts if c == 1), dim)
            places = [i.rebuild(lambda a: mapping.get(a) if type(a) is Var else None) for i in accesses]
            runs.append(
                max(
                    (
                        min(inner.size, self.schedule.policy.short_run) / slower(i.coefficient(inner) or 0, far)
                        for i in places
                    ),
                    default=1,
                )
            )
        if runs[0] <= runs[1]:
            return None
        strides = list(contiguous_strides(value.shape))
        strides[-2], strides[-1] = 1, value.shape[-2]
        return strides

    def _as_view(self, value: Value) -> Location | None:
        self.schedule.begin()
        group = Group(self.schedule.locator(len(self.schedule.groups)), self.schedule.policy)
        dims = [Var(s, "d") for s in value.shape]
        x = Inliner(group.builder, group.resolve).element(value, [d.ix for d in dims])
        if x.kind != "load" or x.args:
            self.schedule.begin()
            return None
        buffer, ix = x.value
        if ix.const or any(type(a) is not Var for a, _ in ix.terms):
            self.schedule.begin()
            return None
        self.schedule.commit()
        steps = dict(ix.terms)
        if any(c < 0 for c in steps.values()):
            return None
        return Location(buffer, [steps.get(d, 0) for d in dims])


def laid_out(value: Value) -> tuple[int, ...] | None:
    """Dense strides in the order that the mark of a library call's operand asks for; None where it has no mark."""
    views: list[Node] = []
    while value.node is not None and value.node.prim.layout is not None:
        views.append(value.node)
        value = value.node.inputs[0]
    if value.node is None or value.node.prim.name != "laid_out":
        return None
    layout: Any = (value.shape, value.node.params["strides"], 0)
    for node in reversed(views):
        layout = node.prim.layout(*layout, **node.params)  # type: ignore[misc]
        if layout is None:
            return None
    return restride(layout[0], layout[1])
