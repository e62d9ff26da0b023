"""The loop nest of a group: dims are split and merged, loops ordered, lanes and pieces chosen.

All choices depend on sizes and strides alone, never on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._codegen.loops import Loop, Reduce, Section, Split, Tile
from rushlight._schedule.costs import Facts, facts_of
from rushlight._schedule.expressions import Buffer, Builder, Expr, Item, Store, substitute
from rushlight._schedule.groups import Group, Stage, refine
from rushlight._schedule.indexing import Data, Div, Ix, Mod, Var
from rushlight._schedule.policy import Policy, Target
from rushlight._types.layout import numel
from rushlight._types.symbols import truncated

__all__ = ["Nest"]


class Nest:
    """Turns one group into sections of a kernel."""

    def __init__(self, group: Group, target: Target) -> None:
        self.builder: Builder = group.builder
        self.target, self.policy = target, target.policy
        self.stages = [s for s in group.stages if s.items or s.stores]
        self.outer: list[Var] = [group.row] if group.row is not None else []
        self.group = group

    def shadow(self) -> Nest:
        """A copy for trying transformations."""
        other = Nest(self.group, self.target)
        other.stages = []
        for stage in self.stages:
            twin = Stage(list(stage.loops))
            twin.items = [Item(i.op, i.value, i.dtype, i.position) for i in stage.items]
            for item, own in zip(twin.items, stage.items, strict=True):
                item.lies = own.lies
            twin.stores = [Store(s.buffer, s.ix, s.value, s.combine, s.guard) for s in stage.stores]
            other.stages.append(twin)
        return other

    # ***** shaping *****

    def all_loops(self) -> list[Var]:
        return [*self.outer, *(v for s in self.stages for v in s.loops)]

    def apply(self, mapping: dict[Var, Ix], places: dict[Var, Ix] | None = None) -> None:
        """Replace variables in all expressions; `places` is the mapping for places of items, where it is another."""
        if not mapping:
            return
        if places is not None:
            into, _ = substitute(self.builder, places)
            for item in (i for stage in self.stages for i in stage.items):
                item.place = into(item.place) if item.place is not None else None
        ix, x = substitute(self.builder, mapping)
        for stage in self.stages:
            for item in stage.items:
                item.value = x(item.value)
                item.position = x(item.position) if item.position is not None else None
                if item.place is not None and places is None:
                    item.place = ix(item.place)
                item.lies = ix(item.lies) if item.lies is not None else None
            for store in stage.stores:
                store.ix, store.value = ix(store.ix), x(store.value)
                store.guard = x(store.guard) if store.guard is not None else None

    def share_values(self) -> None:
        """Store expensive values that two passes over a row need: the first pass puts them where the second will put
        its result.
        """
        for at, early in enumerate(self.stages):
            if not early.items or not early.loops:
                continue
            for late in self.stages[at + 1 :]:
                if [v.size for v in late.loops] == [v.size for v in early.loops]:
                    for store in late.stores:
                        self.share_value(early, late, store)

    def share_value(self, early: Stage, late: Stage, store: Store) -> None:
        """Share the most expensive part of a late store with an early stage."""
        taken = [s.buffer for stage in self.stages if stage is not late for s in stage.stores]
        if store.buffer.role != "output" or any(b is store.buffer for b in taken):
            return  # a result has room for one value
        ix, x = substitute(self.builder, {b: a.ix for a, b in zip(early.loops, late.loops, strict=True)})
        known = facts_of([early]).seen
        part = expensive_part(store.value, store.buffer.dtype, lambda e: x(e) in known, self.policy)
        if part is None:
            return
        early.stores.append(Store(store.buffer, ix(store.ix), x(part)))
        store.value = replace_part(self.builder, store.value, part, self.builder.load(store.buffer, store.ix))

    def split_dims(self) -> None:
        """Split loops so that divisions in index expressions vanish."""
        facts = facts_of(self.stages)
        if not any(type(a) is Div or type(a) is Mod for ix in facts.indices for a, _ in ix.terms):
            return
        loops = self.all_loops()
        mapping, _ = refine(list(facts.indices), loops)
        if not mapping:
            return
        parts = {v: sorted(i.terms, key=lambda t: -t[1]) for v, i in mapping.items()}

        def expand(loops: list[Var]) -> list[Var]:
            return [p for v in loops for p in ([a for a, _ in parts[v]] if v in parts else [v])]

        self.outer = expand(self.outer)
        for stage in self.stages:
            stage.loops = expand(stage.loops)
        self.apply(mapping)

    def order_dims(self) -> None:
        """Put loops over dims with large steps first."""
        for stage in self.stages:
            stage.loops = self.ordered(stage.loops, facts_of([stage]))
        if self.outer:
            self.outer = self.ordered(self.outer, facts_of(self.stages))

    def ordered(self, loops: list[Var], facts: Facts) -> list[Var]:
        """Loops sorted by the steps of the first store that they move, else of the largest load."""
        if len(loops) < 2:
            return loops
        best: dict[Var, int] | None = None
        most = -1.0
        for buffer, ix, weight in facts.accesses:
            steps = {a: abs(c) for a, c in ix.terms if type(a) is Var}
            covered = [v for v in loops if v in steps]
            score = weight * numel([v.size for v in covered]) * (1 + 0.5 * (weight > 1))
            if covered and score > most:
                best, most = steps, score
            del buffer
        if best is None:
            return loops
        known = [v for v in loops if v in best]
        known.sort(key=lambda v: -best[v])
        unknown = [v for v in loops if v not in best]
        return [*unknown, *known]

    def merge_dims(self) -> None:
        """Merge neighbouring loops through which all index expressions step evenly."""
        places = list(facts_of(self.stages).indices)
        mapping: dict[Var, Ix] = {}
        exact: dict[Var, Ix] | None = {} if self.policy.places else None
        self.outer = merge(self.outer, places, mapping)
        # A concatenation has as many stages as parts: each looks at its own places alone
        reading: dict[Var, list[Ix]] = {}
        for ix in places:
            for var in ix.vars:
                reading.setdefault(var, []).append(ix)
        for stage in self.stages:
            own: dict[Var, Ix] = {}
            stage.loops = merge(
                stage.loops, list(dict.fromkeys(ix for v in stage.loops for ix in reading.get(v, ()))), own, exact
            )
            mapping.update(own)
        self.apply(mapping, exact)

    # ***** choosing *****

    def votes(self, loops: Sequence[Var], facts: Facts) -> dict[Var, float]:
        """For each variable, the memory traffic that is contiguous when it runs through the lanes."""
        result = dict.fromkeys(loops, 0.0)
        rows = numel([v.size for v in self.outer])
        for (buffer, ix, weight), runs in zip(facts.accesses, facts.runs, strict=True):
            size = numel([a.size for a, _ in ix.terms if type(a) is Var])
            traffic = (size + rows * runs) * weight
            for a, c in ix.terms:
                if a in result:
                    result[a] += traffic * (
                        1
                        if c in (1, -1)
                        else 0.5
                        if c == 2
                        else -0.5
                        if abs(c) * buffer.dtype.itemsize >= self.policy.line_bytes // 2
                        else 0
                    )
                elif type(a) is Data:  # indices from data are fetched lane by lane
                    for v in result.keys() & a.vars:
                        result[v] -= 0.5 * traffic
        for v in result:
            if v.size < 8 and result[v] > 0:
                result[v] *= v.size / 8
        return result

    def best_lane(self, loops: list[Var], facts: Facts) -> Var:
        """The variable for the lanes: the one with the most contiguous traffic, of equals the innermost."""
        votes = self.votes(loops, facts)
        if any(v.size >= 16 for v in loops):  # few lanes are used only where all other variables step far
            large = [v for v in loops if v.size >= 8]
            if any(votes[v] > 0 for v in large) or not any(votes[v] > 0 and v.size >= 4 for v in loops):
                loops = large
            else:
                return max(loops, key=lambda v: votes[v])
        best = loops[-1]
        for v in reversed(loops):
            enough = min(v.size, 16) / min(best.size, 16)
            if votes[v] > votes[best] and (votes[best] <= 0 or enough >= 0.5):
                best = v
        return best

    def lanes_over_rows(self, facts: Facts | None = None) -> bool:
        """Whether the lanes run over rows, each reducing its own row, rather than along a row; `facts` say what counts."""
        if not self.outer:
            return False
        inner = [v for s in self.stages for v in s.loops]
        if not inner:
            return True
        facts = facts or facts_of(self.stages)
        longest = max(s.work for s in self.stages)
        rows = numel([v.size for v in self.outer])
        if longest <= 16 and rows >= 64:
            return True
        width = self.lane_count(facts)
        if self.rows_are_nearer(facts):
            lane = self.best_lane(self.outer, facts)
            return lane.size >= width // 2 or longest < width
        return False

    def rows_are_nearer(self, facts: Facts) -> bool:
        """Whether neighbouring rows lie side by side in memory, rather than the elements of a row."""
        inner = [v for s in self.stages for v in s.loops]
        votes = self.votes([*self.outer, *inner], facts)
        return not inner or max(votes[v] for v in self.outer) > max(votes[v] for v in inner)

    def lane_count(self, facts: Facts) -> int:
        """Lanes of a vector of the widest dtype."""
        return self.lanes_of(facts.widest)

    def lanes_of(self, nbytes: int) -> int:
        """Lanes of a vector of numbers of so many bytes."""
        return max(2, self.target.vector_bytes // max(nbytes, 2))

    # ***** building *****

    def sections(self) -> list[Section]:
        """The loop nests of the group, one for each section of its kernel."""
        self.share_values()
        self.split_dims()
        self.order_dims()
        self.merge_dims()
        if self.group.row is None and not self.group.reductions:
            return side_by_side([self.pointwise(s) for s in self.stages])
        return [self.rows()]

    def shape_of_lanes(
        self, facts: Facts, light_unroll: int = 4, lane: Var | None = None, stages: Sequence[Stage] = ()
    ) -> tuple[int, int]:
        """Lanes of a vector, and vectors in a step of the main loop, where `lane` of `stages` runs through the lanes."""
        width = self.lane_count(facts) if lane is None else self.lanes_of(facts.widest_along(lane, stages))
        cost = facts.cost(self.policy)
        if facts.operations > 60 or cost > 60:
            return width, 1
        if cost > 8 or facts.operations > 16:
            return width, 2
        return width, light_unroll

    def pointwise(self, stage: Stage) -> Section:
        """The loop nest of a pointwise stage."""
        facts = facts_of([stage])
        loops = list(stage.loops)
        if not loops:
            return Section(list(stage.stores), None, 1, 1)
        lane = self.best_lane(loops, facts)
        loops.remove(lane)
        loops.append(lane)
        width, unroll = self.shape_of_lanes(facts, lane=lane, stages=[stage])
        unroll = fitting(unroll, width, lane.size)
        elements = numel([v.size for v in loops])
        cost = facts.cost(self.policy) - (0 if facts.loads else 0.5)  # a kernel that only writes moves half as much
        work = cost * elements * min(facts.widest, 4) / 4  # four bytes take as long as one float
        body: list[Any] = [Loop(lane, list(stage.stores), lanes=True, ahead=rows_ahead(facts, lane, self.policy))]
        transposed = self.transposed(stage, lane, loops[:-1], width)
        if transposed:
            across = transposed[0]
            loops.remove(across)
            loops.insert(-1, across)
            body = [Tile(across, lane, list(stage.stores), transposed[1])]
            width = self.side_of_tiles(stage, loops, width)
            split = self.cut(loops[:-1], 2 * work, elements, 4 * width, across)
            loops = loops[:-1]
        else:
            if jumps(facts, lane):
                unroll = 1
            split = self.cut(loops, work, elements, width * unroll, lane)
            self.stream(stage, loops, width * unroll)
        for v in reversed(loops[:-1]):
            body = [Loop(v, body)]
        return Section(body, split, width, unroll)

    def side_of_tiles(self, stage: Stage, loops: Sequence[Var], width: int) -> int:
        """The side of the square tiles of the last two loops.

        Tiles as wide as a cache line let large results bypass the caches, which is worth their registers where vectors
        are narrower.
        """
        sides, least = (loops[-1].size, loops[-2].size), self.policy.least_tile
        line = tile_width(
            max(width, self.policy.line_bytes // min(s.buffer.dtype.itemsize for s in stage.stores)), least, *sides
        )
        self.stream(stage, loops, line)
        return line if any(s.stream for s in stage.stores) else tile_width(width, least, *sides)

    def stream(self, stage: Stage, loops: Sequence[Var], step: int, others: Sequence[Stage] = ()) -> None:
        """Mark stores of large results that bypass the caches, so that their lines are not read before they are
        written.

        Such stores must be aligned. Outputs begin at a line; their rows must be whole lines, and pieces begin at whole
        steps. Memory of inputs may begin anywhere: a single loop over it first stores the elements before the first
        line. `others` are stages that must not read the result.
        """
        lane, read = loops[-1], {x.value[0] for x in facts_of([stage, *others]).loads}
        for s in stage.stores:
            size, steps = s.buffer.dtype.itemsize, dict(s.ix.terms)
            if (
                s.buffer.dtype.kind == "c"
                or s.combine
                or s.guard is not None
                or s.buffer in read
                or step * size % 64
                or lane.size < step
            ):
                continue
            if any(type(a) is not Var for a in steps) or steps.get(lane) != 1:
                continue
            if len(loops) == 1 and s.buffer.role == "input" and not s.ix.const and len(stage.stores) == 1:
                s.stream = lane.size * size > self.target.l3_bytes // 2
            whole = all(c * size % 64 == 0 for a, c in s.ix.terms if a is not lane) and s.ix.const * size % 64 == 0
            if whole and s.buffer.role == "output":
                s.stream = numel([v.size for v in loops]) * size > self.target.l3_bytes // 2

    def transposed(self, stage: Stage, lane: Var, others: list[Var], width: int) -> tuple[Var, list[Expr]] | None:
        """A loop along which some loads are contiguous while the lanes step far, and these loads: they are transposed
        in tiles.
        """
        if lane.size < self.policy.least_tile:
            return None
        by_var: dict[Var, list[Expr]] = {}
        for x in facts_of([stage]).loads:
            buffer, ix = x.value
            steps = {a: c for a, c in ix.terms if type(a) is Var}
            if x.args or buffer.dtype.kind == "c" or len(steps) != len(ix.terms) or steps.get(lane, 0) <= 1:
                continue
            # Lanes in the same lines are fetched fast enough
            shares = lane.size >= width and steps[lane] * buffer.dtype.itemsize < self.policy.line_bytes
            for v in others:
                if steps.get(v) == 1 and v.size >= (width // 2 if shares else self.policy.least_tile):
                    by_var.setdefault(v, []).append(x)
        if not by_var:
            return None
        best = max(by_var, key=lambda v: len(by_var[v]))
        return best, by_var[best]

    def cut(self, loops: list[Var], work: float, elements: int, step: int, lane: Var | None) -> Split | None:
        """The loop that is cut into pieces, and the length of a piece."""
        if not loops:
            return None
        wanted = truncated(
            max(min(work // self.policy.piece, elements // self.policy.least_piece, self.policy.max_pieces), 1)
        )
        var = next((v for v in loops if v.size >= min(wanted, 16)), None) or max(loops, key=lambda v: v.size)
        pieces = min(wanted, var.size)
        chunk = -(-var.size // pieces)
        if var is lane:
            chunk = -(-chunk // step) * step
        return Split(var, max(1, min(chunk, var.size)))

    def rows(self) -> Section:
        """The loop nest of stages over common rows."""
        facts = facts_of(self.stages)
        over_rows = self.lanes_over_rows()
        width, unroll = self.shape_of_lanes(facts)
        elements = sum(s.work for s in self.stages) * numel([v.size for v in self.outer])
        outer = list(self.outer)
        lane: Var | None = None
        if not over_rows and self.policy.lanes is not None:
            width, unroll = self.policy.lanes
        if over_rows:
            lane = self.best_lane(outer, facts)
            outer.remove(lane)
            outer.append(lane)
            width, unroll = self.shape_of_lanes(facts, lane=lane, stages=self.stages)
            unroll = self.wide_columns(facts, unroll, width, numel([v.size for v in outer]))
            unroll = self.whole_lines(facts, unroll, width, lane)
            unroll = fitting(unroll, width, lane.size)
        body = [self.stage_statement(s, not over_rows) for s in self.stages]
        if not over_rows:
            self.stream_rows(width * unroll)
        flat = [statement for part in body for statement in part]
        split = self.cut(outer, facts.cost(self.policy) * elements, elements, width * max(unroll, 1), lane)
        for v in reversed(outer):
            flat = [Loop(v, flat, lanes=v is lane)]
        return Section(flat, split, width, unroll)

    def stream_rows(self, step: int) -> None:
        """Mark results stored row by row that bypass the caches (see `stream`)."""
        for stage in self.stages:
            if stage.loops and not stage.items:
                lane = self.best_lane(stage.loops, facts_of([stage]))
                self.stream(stage, [*self.outer, *(v for v in stage.loops if v is not lane), lane], step, self.stages)

    def wide_columns(self, facts: Facts, unroll: int, width: int, rows: int) -> int:
        """Vectors in a step over columns: long columns are read in wide stripes, several lines of each row at a time."""
        items = sum(len(s.items) for s in self.stages)
        longest = max(s.work for s in self.stages)
        if facts.cost(self.policy) > 4 or items > 2 or longest < 64 or self.target.vector_bytes < 64:
            return unroll
        wide = 16 // max(items, 1)
        while wide > unroll and rows < 16 * width * wide:
            wide //= 2
        return max(wide, unroll)

    def whole_lines(self, facts: Facts, unroll: int, width: int, lane: Var) -> int:
        """Vectors in a step over columns of bytes: each row's part of it is a line of memory."""
        if unroll < 2 or all(x.dtype.itemsize > 1 or lane not in x.value[1].vars for x in facts.loads):
            return unroll
        return max(unroll, min(4, self.policy.line_bytes // width))

    def stage_statement(self, stage: Stage, along: bool) -> list[Any]:
        """The statements of one stage.  `along`: the lanes run along the row."""
        loops = list(stage.loops)
        if not loops:
            for item in stage.items:
                raise AssertionError(f"item {item} reduces over no loop")
            return list(stage.stores)
        if along:
            lane = self.best_lane(loops, facts_of([stage]))
            loops.remove(lane)
            loops.append(lane)
        if stage.items:
            pair_items(stage.items, loops)
            return [Reduce(loops, stage.items, along, stage.stores)]
        body: list[Any] = list(stage.stores)
        for v in reversed(loops):
            body = [Loop(v, body, lanes=along and v is loops[-1])]
        return body


def side_by_side(sections: list[Section]) -> list[Section]:
    """Sections over equally many rows, cut alike, so that one thread writes neighbouring elements."""
    splits = []
    for s in sections:
        outermost = s.body[0]
        if s.split is not None and isinstance(outermost, Loop) and not outermost.lanes and s.split.var is outermost.var:
            splits.append(s.split)
    if 1 < len(sections) == len(splits) and len({s.var.size for s in splits}) == 1:
        chunk = min(s.chunk for s in splits)
        for split in splits:
            split.chunk = chunk
    return sections


def jumps(facts: Facts, lane: Var) -> bool:
    """Whether some loads fetch lane by lane: that code grows with the lanes, so unrolling gains nothing."""
    return any(
        a is not lane and lane in _variables(a) or (a is lane and c not in (1, -1))
        for _, ix, _ in facts.accesses
        for a, c in ix.terms
    )


def tile_width(width: int, least: int, *sides: int) -> int:
    """The side of square tiles that cover most of a rectangle.  The rest is fetched element by element."""
    while width > least and any(4 * (side // width * width) < 3 * side for side in sides):
        width //= 2
    return width


def rows_ahead(facts: Facts, lane: Var, policy: Policy) -> list[tuple[Buffer, Ix, int]]:
    """Rows whose elements the lanes pick in an order from data: (buffer, index of the next row, lanes for each line of
    it) to prefetch.

    A row longer than `row_ahead_bytes` would displace the current one from the nearest cache. Short rows are
    prefetched by the processor.
    """
    most = policy.row_ahead_bytes
    rows: dict[tuple[Buffer, Ix], int] = {}
    for buffer, ix, weight in facts.accesses:
        picked = [a for a, c in ix.terms if type(a) is Data and c == 1 and lane in a.vars]
        plain = [(a, c) for a, c in ix.terms if type(a) is Var]
        if (
            weight != 1
            or len(picked) != 1
            or len(plain) + 1 != len(ix.terms)
            or not plain
            or any(a is lane for a, _ in plain)
        ):
            continue
        size = picked[0].size * buffer.dtype.itemsize
        lines = -(-size // policy.line_bytes)
        if most // 8 <= size <= most and lane.size >= 2 * lines:
            each = next(n for n in (8, 4, 2) if lane.size >= n * lines)
            rows[buffer, Ix(tuple(plain), ix.const + min(c for _, c in plain))] = each
    return [(buffer, ix, each) for (buffer, ix), each in rows.items()]


def pair_items(items: Sequence[Item], loops: Sequence[Var]) -> None:
    """Link maxima and minima to items that also find the position, and mark items whose positions rise."""
    for item in items:
        if item.short:
            steps, reach, item.rising = dict(item.position.value.terms), 1, True  # type: ignore[union-attr]
            for v in reversed(loops):
                item.rising &= steps.get(v, 0) >= reach
                reach = steps.get(v, 0) * v.size
        op = {"maximum": "argmax", "minimum": "argmin"}.get(item.op)
        item.twin = next((i for i in items if i.op == op and i.value is item.value), None) if op else None


def _variables(atom: Any) -> Any:
    """The loop variables inside an atom; none for a plain variable."""
    return () if type(atom) is Var else atom.vars


def fitting(unroll: int, width: int, size: int) -> int:
    """Vectors in a step, so that a short loop fills them."""
    while unroll > 1 and width * unroll > size and size > width:
        unroll //= 2
    return unroll


def expensive_part(x: Expr, dtype: Any, shared: Callable[[Expr], bool], policy: Policy) -> Expr | None:
    """The largest part of `x` of this dtype that `shared` accepts and that costs more to compute again than to store;
    else None.
    """
    if x.dtype is dtype and x.kind == "op" and shared(x):
        facts = Facts()
        facts.add(x)
        return x if facts.cost(policy) >= policy.expensive else None
    for a in x.args if x.kind == "op" else ():
        part = expensive_part(a, dtype, shared, policy)
        if part is not None:
            return part
    return None


def replace_part(builder: Builder, x: Expr, old: Expr, new: Expr) -> Expr:
    """`x` with one of its parts replaced."""
    if x is old:
        return new
    if x.kind != "op":
        return x
    args = [replace_part(builder, a, old, new) for a in x.args]
    if all(a is b for a, b in zip(args, x.args, strict=True)):
        return x
    prim, params = x.value
    return builder.op(prim, args, x.dtype, params)


def merge(
    loops: list[Var], places: Sequence[Ix], mapping: dict[Var, Ix], exact: dict[Var, Ix] | None = None
) -> list[Var]:
    """Merge neighbouring loops.

    `mapping` receives the old variables in terms of the new ones, for expressions through which they step evenly;
    `exact` for any.
    """
    result: list[Var] = []
    current = list(places)
    for var in loops:
        if result and all(even(ix, result[-1], var) for ix in current):
            outer = result.pop()
            new = Var(outer.size * var.size, var.name)
            one = {outer: Ix((), 0), var: new.ix}

            def replace(a: Any, one: dict[Var, Ix] = one) -> Ix | None:
                return one.get(a) if type(a) is Var else None

            for v, ix in mapping.items():
                mapping[v] = ix.rebuild(replace)
            mapping[outer], mapping[var] = Ix((), 0), new.ix
            if exact is not None:
                parts = {outer: new.ix.floordiv(var.size), var: new.ix.mod(var.size)}

                def divided(a: Any, parts: dict[Var, Ix] = parts) -> Ix | None:
                    return parts.get(a) if type(a) is Var else None

                for v, ix in exact.items():
                    exact[v] = ix.rebuild(divided)
                exact |= parts
            current = [ix.rebuild(replace) for ix in current]
            result.append(new)
        else:
            result.append(var)
    return result


def even(ix: Ix, outer: Var, inner: Var) -> bool:
    """Whether a step of `outer` moves `ix` as far as all steps of `inner` together, inside divisions too."""
    a = b = 0
    for atom, c in ix.terms:
        if atom is outer:
            a = c
        elif atom is inner:
            b = c
        elif type(atom) is not Var and type(atom) is not Data and not even(atom.ix, outer, inner):
            return False
    return a == b * inner.size
