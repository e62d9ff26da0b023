"""Groups of sinks as loops: one pass over the elements of a tile that stores, keeps and reduces.

The loop over the lanes is over the dim along which most accesses are to neighbours; a reduced dim is innermost.  All
operands of a chunk are computed before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import gcd
from typing import Any

from rushlight._codegen.scalar import Val
from rushlight._types.dtype import DType

from ..commuting import commutes, single_primitive
from ..ir import Op, Value
from ..types import Element
from .function import Found, Scope, splat_to
from .memory import Buffer, element_bytes, register_type
from .plan import ELEMENTWISE, Plan, conflict
from .values import ZERO, Dim, Index, Values

__all__ = ["Group", "Groups", "leaves"]

Places = tuple[int | None, ...]  # for each dim of a tile, the dim of the group that runs along it
_HEAVY = 60  # of what a chunk costs, above which it is one vector wide


class Keep:
    """A tile, or what `of` makes of its elements, written to a buffer."""

    def __init__(self, value: Value, buffer: Buffer, convert: Callable[[Found], Found] | None = None) -> None:
        self.value, self.buffer, self.convert = value, buffer, convert


class Group:
    """Sinks over tiles of one shape."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self.axis: int | None = None
        self.keeps: list[Keep] = []
        self.stores: list[Op] = []
        self.reduces: list[Op] = []
        self.loads: set[Op] = set()
        self.pending: set[Value] = set()  # what is known only when the group is written

    def operands(self) -> Iterator[Value]:
        """All tiles that the sinks want."""
        yield from (k.value for k in self.keeps)
        for op in (*self.stores, *self.reduces):
            yield from op.operands


def leaves(
    value: Value, places: Places, kept: Callable[[Value], bool], first: bool = True
) -> Iterator[tuple[Value, Places]]:
    """Inputs of a tile: loads, and tiles in memory, with the dims that run along theirs.  A kept
    tile is a leaf, but where the walk begins.
    """
    op = value.op
    if not value.shape:
        return
    if op is None or kept(value) and not first:
        yield value, places
        return
    if op.kind == "load":
        yield value, places
    if op.kind in ELEMENTWISE:
        for operand in op.operands:
            yield from leaves(operand, places, kept, False)
        return
    inner = _inner(op, places)
    if inner is None:
        yield value, places
        return
    for operand in op.operands:
        if operand.shape:
            yield from leaves(operand, inner, kept, False)


def _inner(op: Op, places: Places) -> Places | None:
    """The dims along an operand's; None for operations that are no forms of their operand."""
    if op.kind == "expand_dims":
        axis = op.attributes["axis"]
        return (*places[:axis], *places[axis + 1 :])
    if op.kind == "broadcast":
        return tuple(None if n == 1 else p for p, n in zip(places, op.operands[0].shape, strict=True))
    if op.kind == "permute":
        back = dict(zip(op.attributes["order"], places, strict=True))
        return tuple(back[d] for d in range(len(places)))
    if op.kind == "reshape":
        old = op.operands[0].shape
        same = bool(old) and bool(places) and old[-1] == op.result.shape[-1]
        return (*[None] * (len(old) - 1), places[-1] if same else None) if old else ()
    if op.kind == "join":
        return places[:-1]
    if op.kind == "split":
        return (*places, None)
    if op.kind in ("splat", "arange"):
        return ()
    return None


class Groups:
    """Writes groups."""

    def __init__(self, values: Values, plan: Plan, costs: Mapping[Value, int]) -> None:
        self.values, self.plan, self.fn, self.costs = values, plan, values.fn, costs

    # ***** which sinks share a loop *****

    def joins(
        self, group: Group, shape: tuple[int, ...], operands: Sequence[Value], op: Op | None, after: set[Op]
    ) -> bool:
        """Whether a sink may be added to a group; `after` are the loads that stand behind a store of the group."""
        if group.shape != shape:
            return False
        if op is not None and op.kind == "reduce" and group.axis not in (None, op.attributes["axis"]):
            return False
        here = tuple(range(len(shape)))
        for operand in operands:
            if not operand.shape:
                if operand in group.pending:
                    return False
                continue
            for leaf, places in self.leaves(operand, here, op is None):
                if leaf in group.pending and (places != here or leaf.op is None or leaf.op.kind == "reduce"):
                    return False
                if leaf.op is not None and leaf.op in after and any(self.behind(leaf.op, s) for s in group.stores):
                    return False
        if self.scalars(operands) & group.pending:
            return False
        if op is None or op.kind != "store":
            return True
        return not any(conflict(other, op, self.plan.roots) for other in (*group.loads, *group.stores))

    def behind(self, load: Op, store: Op) -> bool:
        """Whether a load behind a store may read what it wrote."""
        return load.operands[0] is store.operands[0] or conflict(load, store, self.plan.roots)

    def leaves(self, value: Value, places: Places, within: bool = False) -> list[tuple[Value, Places]]:
        """Inputs of a tile; with `within` also where the tile itself is kept."""
        return list(leaves(value, places, lambda v: v in self.plan.kept or v in self.values.buffers, within))

    def scalars(self, operands: Sequence[Value]) -> set[Value]:
        """The scalars, and the tiles in memory, that tiles are computed from."""
        seen: set[Value] = set()
        stack = list(operands)
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if value.shape and value.op is not None and value not in self.values.buffers:
                stack += value.op.operands
        return {v for v in seen if not v.shape}

    # ***** the loops *****

    def write(self, group: Group) -> None:
        """The loops of a group; what it was to make is known afterwards."""
        fn, values = self.fn, self.values
        parent = fn.scopes[-1]
        scope = Scope(parent.label)
        fn.scopes.append(scope)
        floor, values.floor = values.floor, fn.here
        values.memo.clear()
        lane = self.lane_dim(group)
        width = values.width = self.lanes(group, lane)
        outer = [d for d in range(len(group.shape)) if d not in (lane, group.axis) and group.shape[d] > 1]
        index: list[Dim] = [ZERO] * len(group.shape)
        results: dict[Value, Any] = {}

        def nest(k: int) -> None:
            if k < len(outer):
                self.dim_loop(index, outer[k], group.shape[outer[k]], 1, lambda: nest(k + 1))
            elif group.axis is None:
                self.dim_loop(index, lane, group.shape[lane], width, lambda: self.chunk(group, tuple(index)), width > 1)
            elif group.axis == lane:
                self.reduced(group, index, lane, width, results)
            else:
                inner = lambda: self.reduced(group, index, group.axis, 1, results)
                self.dim_loop(index, lane, group.shape[lane], width, inner, width > 1)

        nest(0)
        fn.scopes.pop()
        parent.lines.extend(scope.lines)
        parent.label = scope.label
        values.floor = floor
        values.memo.clear()
        for keep in group.keeps:
            if keep.convert is None:
                values.buffers[keep.value] = keep.buffer
        for value, result in results.items():
            values.scalars[value] = Found(result, fn.here)

    def dim_loop(
        self, index: list[Dim], dim: int, size: int, step: int, body: Callable[[], Any], run: bool = False
    ) -> None:
        """A loop over a dim of the index."""
        fn = self.fn

        def turn(place: str | int, _: list[str]) -> list[str]:
            index[dim] = Dim(place, 0 if isinstance(place, int) else fn.here, run)
            body()
            return []

        fn.loop(0, size, step, (), turn)
        index[dim] = ZERO

    def chunk(self, group: Group, index: Index) -> list[list[Any]]:
        """All sinks for one chunk; for each reduction the values to combine."""
        values, fn, width = self.values, self.fn, self.values.width
        kept = []
        for keep in group.keeps:
            found = values.at(keep.value, index)
            kept.append(found if keep.convert is None else keep.convert(found))
        writes = [self.prepared(op, index) for op in group.stores]
        given = [[splat_to(fn, values.at(v, index), width) for v in op.operands] for op in group.reduces]
        for keep, found in zip(group.keeps, kept, strict=True):
            self.keep(keep.buffer, index, found)
        for write in writes:
            write()
        return given

    # ***** writing *****

    def keep(self, buffer: Buffer, index: Index, found: Found) -> None:
        """Put elements into a tile in memory."""
        fn, values, size = self.fn, self.values, element_bytes(buffer.element)
        place = values.linear(index, buffer.strides)
        if place.vector is None:
            width = values.width if place.run else 1
            value = splat_to(fn, found, width)
            fn.write(
                fn.here,
                lambda: values.memory.write(values.moved(buffer.pointer, place, size), value, buffer.element, width),
            )
            return
        width = values.width
        value, offsets, em = splat_to(fn, found, width), place.vector, fn.emitter(width)

        def emit() -> None:
            moved = offsets * size
            pointers = em.emit(f"getelementptr i8, ptr {buffer.pointer}, {moved.vt} {moved}", "ptr")
            values.memory.scatter(pointers, value, buffer.element, None)

        fn.write(fn.here, emit)

    def prepared(self, op: Op, index: Index) -> Callable[[], None]:
        """Compute what a store needs; the result writes it."""
        fn, values, width = self.fn, self.values, self.values.width
        pointer, value, *rest = op.operands
        element = value.type.element
        found = values.at(value, index)
        mask = values.at(rest[0], index) if rest else None
        known, runs = values.known.get(pointer), [k for k, d in enumerate(index) if d.run]
        near = known is not None and len(runs) == 1 and known.contiguous[runs[0]] % width == 0
        places = values.at(pointer, tuple(d.first() if near else d for d in index))
        if not near and runs:
            pointers = splat_to(fn, places, width)
            wide, m = splat_to(fn, found, width), None if mask is None else splat_to(fn, mask, width)
            if values.check is not None:
                values.check(op, pointers, places, mask, width)
            return lambda: fn.write(fn.here, lambda: values.memory.scatter(pointers, wide, element, m))
        count = width if runs else 1
        wide, m = splat_to(fn, found, count), None if mask is None else splat_to(fn, mask, count)
        if values.check is not None:
            values.check(op, None, places, mask, count)
        return lambda: fn.write(fn.here, lambda: values.memory.write(str(places.value), wide, element, count, m))

    # ***** reductions *****

    def reduced(self, group: Group, index: list[Dim], dim: int, step: int, results: dict[Value, Any]) -> None:
        """The loop over a reduced dim, with what its reductions carry."""
        fn, size, width = self.fn, group.shape[dim], self.values.width
        over_lanes = step > 1
        plans = [_Reduction(self, op, width, over_lanes, size // step) for op in group.reduces]
        carries = [c for plan in plans for c in plan.carries()]

        def turn(place: str | int, carried: list[str]) -> list[str]:
            index[dim] = Dim(place, 0 if isinstance(place, int) else fn.here, over_lanes)
            given = self.chunk(group, tuple(index))
            names, at = [], 0
            for plan, chunk in zip(plans, given, strict=True):
                count = len(plan.carries())
                names += plan.turn(carried[at : at + count], chunk, place)
                at += count
            return names

        names = fn.loop(0, size, step, carries, turn)
        index[dim] = ZERO
        at = 0
        for plan in plans:
            count = len(plan.carries())
            totals = plan.finish(names[at : at + count])
            at += count
            self.result(plan.op, index, dim, totals, results)

    def result(self, op: Op, index: list[Dim], dim: int, totals: list[Any], results: dict[Value, Any]) -> None:
        """Store the results of a reduction at one index."""
        place = tuple(d for k, d in enumerate(index) if k != dim)
        for value, total in zip(op.results, totals, strict=True):
            if not value.shape:
                results[value] = total
                continue
            self.keep(self.buffer(value), place, Found(total, self.fn.here))

    def buffer(self, value: Value) -> Buffer:
        """The memory of a tile, made when it is first asked for."""
        found = self.values.buffers.get(value)
        if found is None:
            found = self.values.buffers[value] = self.allocate(value.type.element, value.shape)
        return found

    def allocate(self, element: Element, shape: Sequence[int], last: int | None = None) -> Buffer:
        """Memory for a tile in row-major order, or with another dim innermost."""
        order = list(range(len(shape)))
        if last is not None:
            order.remove(last)
            order.append(last)
        strides, step = [0] * len(shape), 1
        for d in reversed(order):
            strides[d] = step
            step *= shape[d]
        return Buffer(self.fn.scratch(step * element_bytes(element)), element, tuple(strides))

    # ***** lanes *****

    def accesses(self, group: Group) -> list[tuple[Value, Places]]:
        """The tiles of pointers that a group's loads and stores go through."""
        here: Places = tuple(range(len(group.shape)))
        kept = {keep.value for keep in group.keeps}
        pointers = [(op.operands[0], here) for op in group.stores]
        for operand in set(group.operands()):
            for leaf, places in self.leaves(operand, here, operand in kept):
                if leaf.op is not None and leaf.op.kind == "load" and leaf not in self.values.buffers:
                    pointers.append((leaf.op.operands[0], places))
        return pointers

    def lane_dim(self, group: Group) -> int:
        """The dim that lanes run along: where most accesses are to neighbours, or the last that is long enough."""
        shape = group.shape
        scores = [0.0] * len(shape)
        here: Places = tuple(range(len(shape)))
        kept = {keep.value for keep in group.keeps}
        for operand in set(group.operands()):
            for leaf, places in self.leaves(operand, here, operand in kept):
                if (buffer := self.values.buffers.get(leaf)) is not None:
                    for d, stride in enumerate(buffer.strides):
                        if stride == 1 and (place := places[d] if d < len(places) else None) is not None:
                            scores[place] += 3 * _weight(places, shape)
        for keep in group.keeps:
            for d, stride in enumerate(keep.buffer.strides):
                scores[d] += 2 * (stride == 1)
        for pointer, places in self.accesses(group):
            known = self.values.known.get(pointer)
            for d, place in enumerate(places):
                if known is not None and place is not None and known.contiguous[d] >= 4:
                    scores[place] += 4 * _weight(places, shape)
        scores = [s + (d + 1) / 16 if n > 1 else -1 for d, (s, n) in enumerate(zip(scores, shape, strict=True))]
        longest = max(shape)
        scores = [s - 8 if n < min(longest, 4) else s for s, n in zip(scores, shape, strict=True)]
        return scores.index(max(scores))

    def near_dim(self, value: Value) -> int:
        """The dim along which what a tile is computed from lies in memory."""
        group = Group(value.shape)
        group.keeps.append(Keep(value, Buffer("", value.type.element, (0,) * len(value.shape))))
        return self.lane_dim(group)

    def lanes(self, group: Group, lane: int) -> int:
        """How many lanes a chunk has."""
        base = max(self.fn.machine.vector_bytes // 4, 4)
        cost = sum(self.costs.get(v, 1) for v in set(group.operands()))
        times = 1 if cost > _HEAVY else 4 if group.axis == lane else 2
        return self.within_runs(group, lane, base * times)

    def within_runs(self, group: Group, lane: int, most: int) -> int:
        """At most so many lanes, of which every chunk is a run of neighbours where accesses have long ones."""
        size = group.shape[lane]
        width = gcd(size & -size, most)
        for pointer, places in self.accesses(group):
            known = self.values.known.get(pointer)
            for d, place in enumerate(places):
                if known is not None and place == lane and (run := known.contiguous[d]) >= 4:
                    width = gcd(width, run) if run % width and run >= width // 4 else width
        return width


def _weight(places: Places, shape: tuple[int, ...]) -> float:
    """How much an access counts where lanes are chosen: one that is the same along a dim is a number for lanes along that
    dim, and costs nothing there, where a whole tile would be gathered.
    """
    return 1.0 if all(d in places for d, n in enumerate(shape) if n > 1) else 1 / 8


def _identity(prim: str, dtype: DType) -> Any:
    if prim in ("add", "bitwise_or", "bitwise_xor"):
        return -0.0 if dtype.kind in "fc" else 0
    if prim == "mul":
        return 1
    if prim == "bitwise_and":
        return 1 if dtype.kind == "b" else -1
    low = prim == "maximum"
    if dtype.kind == "b":
        return 0 if low else 1
    if dtype.kind == "f":
        return float("-inf") if low else float("inf")
    bits = 8 * dtype.itemsize
    bounds = (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.is_signed else (0, (1 << bits) - 1)
    return bounds[0 if low else 1]


class _Reduction:
    """One reduction in a loop: what it carries from turn to turn.

    Where the order does not matter, lanes are combined one by one, and with each other at last.  Any other region
    combines neighbours, so that the order stays: over lanes each chunk is combined to one element first.
    """

    def __init__(self, groups: Groups, op: Op, width: int, over_lanes: bool, turns: int) -> None:
        self.groups, self.op, self.over_lanes, self.turns = groups, op, over_lanes, turns
        self.region = op.regions[0]
        self.prim = single_primitive(self.region)
        self.commutes = bool(self.prim) or commutes(self.region)
        self.lanes = width
        self.width = 1 if over_lanes and not self.commutes else width
        self.elements = [v.type.element for v in op.operands]

    def carries(self) -> list[tuple[str, str]]:
        em = self.groups.fn.emitter(self.width)
        result = []
        for element in self.elements:
            type = em.vt(register_type(element))
            complex_ = isinstance(element, DType) and element.kind == "c"
            if self.prim:
                assert isinstance(element, DType)
                number = em.number(_identity(self.prim, element), element)
                parts = number if isinstance(number, tuple) else (number,)
                result += [(type, str(part)) for part in parts]
            else:
                result += [(type, "zeroinitializer" if type.startswith("<") else _zero(type))] * (1 + complex_)
        return result

    def values(self, names: Sequence[str]) -> list[Any]:
        out: list[Any] = []
        em, at = self.groups.fn.emitter(self.width), 0
        for element in self.elements:
            type = register_type(element)
            if isinstance(element, DType) and element.kind == "c":
                out.append((em.val(names[at], type), em.val(names[at + 1], type)))
                at += 2
            else:
                out.append(em.val(names[at], type))
                at += 1
        return out

    def turn(self, names: Sequence[str], chunk: list[Any], place: str | int) -> list[str]:
        """The names carried on, after a chunk."""
        fn, values = self.groups.fn, self.groups.values
        if self.width < self.lanes:
            chunk = self.neighbours(chunk)
        if self.turns == 1:
            return _names(chunk)
        carried = self.values(names)
        made = values.combine(self.region, carried, chunk, self.width, fn.here)
        if not self.prim:
            if place == 0:
                made = chunk
            elif not isinstance(place, int):
                first = fn.scalar(f"icmp eq i64 {place}, 0", "i1", fn.here)
                condition = splat_to(fn, Found(fn.one.val(first, "i1"), fn.here), self.width)
                made = [fn.write(fn.here, partial(_select, condition, a, b)) for a, b in zip(chunk, made, strict=True)]
        return _names(made)

    def neighbours(self, chunk: list[Any]) -> list[Any]:
        """Lanes combined two by two, in order, to one."""
        fn, width = self.groups.fn, self.lanes
        while width > 1:
            width //= 2
            sides = [[self.pick(x, range(start, 2 * width, 2)) for x in chunk] for start in (0, 1)]
            chunk = self.groups.values.combine(self.region, sides[0], sides[1], width, fn.here)
        return chunk

    def pick(self, x: Any, lanes: range) -> Any:
        """Some lanes of a value."""
        if isinstance(x, tuple):
            return tuple(self.pick(part, lanes) for part in x)
        em = x.em.at(len(lanes))

        def emit() -> Val:
            if len(lanes) == 1:
                return em.emit(f"extractelement {x.vt} {x}, i64 {lanes[0]}", x.type)
            mask = f"<{len(lanes)} x i32> <{', '.join(f'i32 {k}' for k in lanes)}>"
            return em.emit(f"shufflevector {x.vt} {x}, {x.vt} poison, {mask}", x.type)

        return self.groups.fn.write(self.groups.fn.here, emit)

    def finish(self, names: Sequence[str]) -> list[Any]:
        """The results."""
        totals, width = self.values(names), self.width
        while self.over_lanes and width > 1:
            width //= 2
            sides = [[self.pick(x, range(start, start + width)) for x in totals] for start in (0, width)]
            totals = self.groups.values.combine(self.region, sides[0], sides[1], width, self.groups.fn.here)
        return totals


def _zero(type: str) -> str:
    return {"float": "0.0", "double": "0.0", "half": "0xH0000", "ptr": "null", "i1": "false"}.get(type, "0")


def _names(values: Sequence[Any]) -> list[str]:
    return [str(part) for v in values for part in (v if isinstance(v, tuple) else (v,))]


def _select(condition: Val, x: Any, y: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(_select(condition, a, b) for a, b in zip(x, y, strict=True))
    return condition.em.select(condition, x, y)
