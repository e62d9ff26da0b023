"""Groups: parts of a graph that become one kernel each, as stages over common rows.

A group has a row variable (pointwise groups have none) and stages. A stage is a set of loops inside the row that
accumulate reductions and store values. Softmax has three stages: the maximum, the sum, and the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rushlight._schedule.costs import Facts
from rushlight._schedule.expressions import Builder, Expr, Item, Store, substitute
from rushlight._schedule.indexing import ZERO, Data, Div, Ix, Mod, Var, delinearize, linearize
from rushlight._schedule.inline import REDUCTIONS, Inliner, Location, index_before, unwindow_element
from rushlight._types.dtype import INT64
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Node, Value
    from rushlight._schedule.policy import Policy

__all__ = ["Group", "FusionError", "Stage", "items_of", "mixed_radix", "refine"]


class FusionError(Exception):
    """A value does not fit into a group."""


class Stage:
    """Loops inside the row, with the reductions and the stores that they do."""

    __slots__ = ("items", "loops", "stores")

    def __init__(self, loops: list[Var]) -> None:
        self.loops = loops
        self.items: list[Item] = []
        self.stores: list[Store] = []

    @property
    def work(self) -> int:
        return numel([v.size for v in self.loops])


def items_of(x: Expr) -> list[Item]:
    """The reductions that an expression needs directly."""
    return [v for v in x.vars if type(v) is Item]


class Group:
    """A kernel under construction.  `locate(value)` gives a value's `Location`, or the number and dtype of an
    argument, or None.
    """

    def __init__(self, locate: Callable[[Value], Any], policy: Policy) -> None:
        self.builder = Builder()
        self.locate, self.policy = locate, policy
        self.row: Var | None = None
        self.rows = 1
        self.shape: tuple[int, ...] | None = None
        self.stages: list[Stage] = []
        self.reductions: dict[int, Item] = {}
        self.values: list[Value] = []
        self.probe: list[Ix] | None = None
        self.inliner = Inliner(self.builder, self.resolve)
        self.reads: set[int] = set()
        self.closed = False  # whether it takes nothing but values of its rows
        self.near = (
            0  # whether the elements of a row are neighbours (1), or those of a column (-1); 0 where neither is known
        )

    # ***** values as this group reads them *****

    def resolve(self, value: Value, index: Sequence[Ix], guard: Expr | None) -> Expr | None:
        """The expression of a value that is not computed from its node: a load, an argument, or a reduction of this
        group; else None.
        """
        item = self.reductions.get(id(value))
        if item is not None:
            place = linearize(index, value.shape)
            if self.probe is not None:
                self.probe.append(place)
            elif place != self.row_ix:
                raise FusionError("a reduction is wanted in another row than the one at hand")
            return self.builder.ref(item)
        location = self.locate(value)
        if location is None:
            return None
        self.reads.add(id(value))
        if isinstance(location, Location):
            return self.builder.load(location.buffer, location.offset(index), guard)
        number, dtype = location
        return self.builder.arg(number, dtype)

    @property
    def row_ix(self) -> Ix:
        return self.row.ix if self.row is not None else ZERO

    # ***** adding *****

    def add_reduction(self, node: Node, views: Sequence[Node] = ()) -> None:
        """Add a reducing node; FusionError where its rows are not those of this group.

        `views` are nodes that cut or reorder its elements, one after the other.  The rows are the remaining elements.
        """
        value = views[-1].outputs[0] if views else node.outputs[0]
        count = numel(value.shape)
        if not self.stages:
            self.rows = count
            self.row = Var(count, "row") if count != 1 else None
        elif count != self.rows:
            raise FusionError("another number of rows")
        index = delinearize(self.row_ix, value.shape)
        for move in reversed(views):
            index = index_before(move, index)
        sizes, element = reduction_body(node, index)
        loops = [Var(s, "r") for s in sizes if s != 1]
        x, position = element(self.inliner, loops)
        if self.rows * numel(sizes) > self.policy.large and self.direction() * direction(x, self.row, loops) < 0:
            raise FusionError("its rows are the others' columns")
        op = REDUCTIONS.get(node.prim.name, "add")
        item = Item(op, x, x.dtype, position)
        near = 0
        if self.policy.alike_rows:
            item.lies = operand_place(node, index, loops) if whole_access(x, self.row, loops) is None else None
            near = nearer(item, self.row, loops)
            self.check_rows(numel(sizes), near, item.rounds)
        first = self.after(x)
        found = loops
        loops, item.value, item.position, stage = self.stage_with(loops, x, position, first)
        if item.lies is not None:
            item.lies = operand_place(node, index, loops)
        self.near = self.near or near
        if self.policy.places:
            item.place = linearize([v.ix for v in loops], [v.size for v in found])
        stage.items.append(item)
        self.reductions[id(value)] = item
        self.values.append(value)

    def check_rows(self, work: int, near: int, rounds: bool) -> None:
        """FusionError where a stage with rows of this length, with neighbours along them (1) or across them (-1), would change
        the order of a sum: see `Policy.alike_rows`.
        """
        stages = [s for s in self.stages if s.loops]
        if not stages or work == 1 or not (rounds or any(i.rounds for s in stages for i in s.items)):
            return
        if any(s.work != work for s in stages):
            raise FusionError("its rows have another length, and sums would be taken in another order")
        if near * self.near < 0:
            raise FusionError("its rows are the others' columns, and sums would be taken in another order")

    @property
    def joins(self) -> bool:
        """Whether it stores a concatenation, with one stage for each operand."""
        return self.shape == (-1,)

    def direction(self) -> int:
        """The direction in which its reductions read memory; see `direction`."""
        return sum(direction(i.value, self.row, s.loops) for s in self.stages for i in s.items)

    def after(self, x: Expr) -> int:
        """The number of the first stage that may use `x`: behind all reductions that it needs."""
        needed = set(map(id, items_of(x)))
        return max((k + 1 for k, s in enumerate(self.stages) if any(id(i) in needed for i in s.items)), default=0)

    def stage_with(
        self, loops: list[Var], x: Expr, position: Expr | None, first: int
    ) -> tuple[list[Var], Expr, Expr | None, Stage]:
        """A stage from number `first` on with loops of these sizes, and the expressions in its variables."""
        sizes = [v.size for v in loops]
        for stage in self.stages[first:]:
            if [v.size for v in stage.loops] == sizes and loops:
                _, sub = substitute(self.builder, {old: new.ix for old, new in zip(loops, stage.loops, strict=True)})
                return stage.loops, sub(x), sub(position) if position is not None else None, stage
        stage = Stage(loops)
        self.stages.append(stage)
        return loops, x, position, stage

    def add_store(self, value: Value, target: Location) -> None:
        """Add a store; FusionError where the value's elements do not follow the rows of this group."""
        if value.node is not None and value.node.prim.name == "cat" and not self.stages:
            self.store_regions(value.node, target)
            return
        if not value.shape or numel(value.shape) == 1:
            dims: list[Var | None] = [None] * len(value.shape)
        else:
            dims = [Var(s, "d") if s != 1 else None for s in value.shape]
        shared = self.shared_dims(dims)
        if shared is not None:
            dims = shared
        index = [d.ix if d is not None else ZERO for d in dims]
        if self.row is None and self.rows == 1 and not self.reductions:
            self.store_point(value, target, dims, index)
            return
        self.probe = []
        self.inliner._memo.clear()  # expressions from there would not show which reductions they read
        x = self.inliner.element(value, index)
        rows_read, self.probe = self.probe, None
        self.inliner._memo.clear()  # expressions of the probe may refer to reductions at other rows
        if not rows_read:
            raise FusionError("it uses no reduction of this group")
        place = target.offset(index)
        mapping, rest = self.match_rows([d for d in dims if d is not None], rows_read)
        sub_ix, sub = substitute(self.builder, mapping)
        x, place = sub(x), sub_ix(place)
        if numel(value.shape) > self.policy.large and interleaved(place, rest, self.policy.short_run):
            raise FusionError("its rows lie between each other")
        if rest:
            if self.policy.alike_rows:
                self.check_rows(numel([v.size for v in rest]), 0, False)
            _, x, at, stage = self.stage_with(rest, x, self.builder.index(place, INT64), self.after(x))
            assert at is not None
            place = at.value
        else:
            stage = Stage([])
            self.stages.append(stage)
        stage.stores.append(Store(target.buffer, place, x))
        self.values.append(value)

    def shared_dims(self, dims: list[Var | None]) -> list[Var | None] | None:
        """The loop variables of a pointwise group, for another value of the same shape; else None."""
        if self.row is None and not self.reductions and self.stages:
            loops = iter(self.stages[0].loops)
            return [next(loops) if d is not None else None for d in dims]
        return None

    def store_point(self, value: Value, target: Location, dims: list[Var | None], index: list[Ix]) -> None:
        loops = [d for d in dims if d is not None]
        if not self.stages:
            self.shape = tuple(v.size for v in loops)
            self.stages.append(Stage(loops))
        x = self.inliner.element(value, index)
        self.stages[0].stores.append(Store(target.buffer, target.offset(index), x))
        self.values.append(value)

    def store_regions(self, node: Node, target: Location) -> None:
        """Store a concatenation with one stage for each operand, so that no element is compared with the operands'
        bounds.
        """
        self.shape = (-1,)  # see `joins`: no other value fits
        self._store_regions(node, target, [0] * len(node.outputs[0].shape))
        self.values.append(node.outputs[0])

    def _store_regions(self, node: Node, target: Location, corner: Sequence[int]) -> None:
        """Store the operands of a concatenation that begins at `corner`, and those of concatenations among them."""
        start = list(corner)
        for x in node.inputs:
            if x.node is not None and x.node.prim.name == "cat" and self.locate(x) is None:
                self._store_regions(x.node, target, start)
            elif numel(x.shape):
                dims = [Var(s, "d") if s != 1 else None for s in x.shape]
                index = [d.ix if d is not None else ZERO for d in dims]
                stage = Stage([d for d in dims if d is not None])
                place = target.offset([i + first for i, first in zip(index, start, strict=True)])
                stage.stores.append(Store(target.buffer, place, self.inliner.element(x, index)))
                self.stages.append(stage)
            start[node.params["dim"]] += x.shape[node.params["dim"]]

    def match_rows(self, dims: list[Var], places: list[Ix]) -> tuple[dict[Var, Ix], list[Var]]:
        """The dims of a value in terms of the row, from the positions at which it reads reductions, and the dims that
        do not depend on the row.
        """
        if self.rows == 1:
            return {}, dims
        first = places[0]
        if any(p != first for p in places):
            raise FusionError("reductions are read at several rows at once")
        mapping, loops = refine([first], dims)
        place = first.rebuild(lambda a: mapping.get(a) if type(a) is Var else None) if mapping else first
        coefficients = mixed_radix(place, self.rows)
        if coefficients is None:
            raise FusionError("the rows are read in another order")
        row = self.row_ix
        solved = {v: row.floordiv(c).mod(v.size) for v, c in coefficients.items()}
        result = {v: v.ix.rebuild(_both(mapping, solved)) for v in dims}
        rest = [v for v in loops if v not in coefficients]
        return {v: i for v, i in result.items() if i != v.ix}, rest


def whole_access(x: Expr, row: Var | None, loops: Sequence[Var]) -> Ix | None:
    """Where the first of the loads of an expression reads that go through all rows and all of a row, at places that are no data."""
    facts, wanted = Facts(), {*loops, *(() if row is None else (row,))}
    facts.add(x)
    for _, ix, _ in facts.accesses:
        if wanted.issubset(v for a, _ in ix.terms if type(a) is not Data for v in variables(a)):
            return ix
    return None


def nearer(item: Item, row: Var | None, loops: Sequence[Var]) -> int:
    """1 where neighbouring elements of a reduction's operand are those of a row, -1 where of a column, 0 where neither is known."""
    place = whole_access(item.value, row, loops) or item.lies
    if row is None or place is None:
        return 0
    steps = [1 if a in loops else -1 for a, c in place.terms if c in (1, -1) and (a in loops or row in variables(a))]
    return steps[0] if len(steps) == 1 else 0


def operand_place(node: Node, index: Sequence[Ix], loops: Sequence[Var]) -> Ix | None:
    """The number of an element of a reduction's operand, row by row; None for one over windows."""
    if node.prim.name == "unwindow":
        return None
    x = node.inputs[0]
    dims = [node.params["dim"]] if "dim" in node.params else list(node.params["dims"])
    inner = dict(zip(dims, _spread([x.shape[d] for d in dims], list(loops)), strict=True))
    outer = iter(index)
    return linearize([inner[d] if d in inner else next(outer) for d in range(len(x.shape))], x.shape)


def direction(x: Expr, row: Var | None, loops: Sequence[Var]) -> int:
    """The number of loads that are contiguous along these loops, less the number that are contiguous from row to row."""
    votes, seen, todo = 0, set(), [x]
    while todo:
        e = todo.pop()
        if e in seen:
            continue
        seen.add(e)
        todo.extend(e.args)
        if e.kind == "load" and row in e.vars and any(v in e.vars for v in loops):
            for atom, c in e.value[1].terms:
                if c in (1, -1):
                    votes += 1 if atom in loops else -1 if row in variables(atom) else 0
    return votes


def interleaved(place: Ix, loops: Sequence[Var], short: int) -> bool:
    """Whether these loops go through memory in runs of less than `short` elements, with other elements between them."""
    run, steps = 1, sorted((c, a.size) for a, c in place.terms if a in loops)
    for step, size in steps:
        run = run * size if step == run else run
    return 1 < run < short and any(step > run for step, _ in steps)


def variables(atom: Any) -> Any:
    """The loop variables of an atom."""
    return (atom,) if type(atom) is Var else atom.vars


def _both(mapping: dict[Var, Ix], solved: dict[Var, Ix]) -> Callable[[Any], Ix | None]:
    """A function that replaces dims by the parts they were split into, and those by their solution in terms of the
    row.
    """

    def replace(a: Any) -> Ix | None:
        if type(a) is not Var:
            return None
        split = mapping.get(a)
        if split is None:
            return solved.get(a)
        return split.rebuild(lambda b: solved.get(b) if type(b) is Var else None)

    return replace


def mixed_radix(place: Ix, count: int) -> dict[Var, int] | None:
    """The coefficient of each variable where `place` numbers all their combinations from 0 to count - 1 once each;
    else None.
    """
    step, result = 1, {}
    if place.const:
        return None
    for atom, c in sorted(place.terms, key=lambda t: t[1]):
        if type(atom) is not Var or c != step:
            return None
        result[atom] = c
        step *= atom.size
    return result if step == count else None


def refine(places: Sequence[Ix], loops: Sequence[Var], limit: int = 16) -> tuple[dict[Var, Ix], list[Var]]:
    """Split loop variables so that divisions in `places` vanish where possible.

    Returns the old variables in terms of the new ones, and the new list of loops.
    """
    mapping: dict[Var, Ix] = {}
    current = list(places)
    loops = list(loops)
    for _ in range(limit):
        split = next((hit for ix in current for hit in [splittable(ix, loops)] if hit), None)
        if split is None:
            break
        var, inner = split
        outer_var, inner_var = Var(var.size // inner, var.name), Var(inner, var.name)
        new = outer_var.ix * inner + inner_var.ix
        one = {var: new}
        mapping = {v: i.rebuild(lambda a: one.get(a) if type(a) is Var else None) for v, i in mapping.items()}  # noqa: B023
        mapping[var] = new
        current = [i.rebuild(lambda a: one.get(a) if type(a) is Var else None) for i in current]  # noqa: B023
        at = loops.index(var)
        loops[at : at + 1] = [outer_var, inner_var]
    return mapping, loops


def splittable(ix: Ix, loops: Sequence[Var]) -> tuple[Var, int] | None:
    """A loop variable whose splitting would simplify a division in `ix`, and the size of its inner part."""
    for atom, _ in ix.terms:
        if type(atom) is not Div and type(atom) is not Mod:
            continue
        inner = splittable(atom.ix, loops)
        if inner is not None:
            return inner
        for v, c in atom.ix.terms:
            if type(v) is Var and c > 0 and atom.by % c == 0:
                size = atom.by // c
                if 1 < size < v.size and v.size % size == 0 and v in loops:
                    return v, size
    return None


def reduction_body(
    node: Node, index: Sequence[Ix]
) -> tuple[list[int], Callable[[Inliner, list[Var]], tuple[Expr, Expr | None]]]:
    """Sizes of the reduced dims of a node, and a function from the loop variables of those that are not 1 to value and
    position.
    """
    x = node.inputs[0]
    if node.prim.name == "unwindow":
        return list(node.params["size"]), lambda p, loops: (
            unwindow_element(p, node, index, _spread(node.params["size"], loops), None),
            None,
        )
    single = "dim" in node.params
    dims = [node.params["dim"]] if single else list(node.params["dims"])
    sizes = [x.shape[d] for d in dims]

    def element(p: Inliner, loops: list[Var]) -> tuple[Expr, Expr | None]:
        inner = dict(zip(dims, _spread(sizes, loops), strict=True))
        outer = iter(index)
        full = [inner[d] if d in inner else next(outer) for d in range(len(x.shape))]
        position = None
        if REDUCTIONS[node.prim.name] in ("argmax", "argmin"):
            position = p.builder.index(inner[dims[0]], INT64)
        return p.element(x, full), position

    return sizes, element


def _spread(sizes: Sequence[int], loops: list[Var]) -> list[Ix]:
    """One index for each size: a loop variable, or 0 where the size is 1."""
    it = iter(loops)
    return [ZERO if s == 1 else next(it).ix for s in sizes]
