"""Loops of several products by warpgroups (`wgmma`, sm_90a), as those of attention: see `find_chains` for which.

Tiles that the loops do not change are copied once; each tile of a turn has a ring of its own.  Further warps copy, the others
multiply: the first products of a turn from shared memory alone, the last with what pointwise work has made of the results, from
registers.  In a loop that overlaps, the last products of a turn are multiplied together with the first of the next one, and go on
while the pointwise work of that one is done.

Who frees a slot, and which products are open, follows from the order of instructions alone; so do all sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rushlight._codegen.blocks import Op, Region
from rushlight._codegen.blocks import Value as TileValue
from rushlight._types.dtype import BOOL, INT32

from ..choose import PURE
from ..form import WARP, Body, Buffer, Registers, Value
from ..layout import Layout
from ..lower import HANDLERS, Lowering
from ..tile_maps import TileMap
from .find_chains import Chain, ChainLoop, ChainProduct
from .find_products import GROUP, TileSource, is_zero, tile_map
from .products import MOST_SHARED, copy_tile, following, multiplied, plus, times

__all__: list[str] = []

_COUNTER = Registers(INT32, 1, True)


class _Slots(NamedTuple):
    """A tile in shared memory: where its slots begin, how many there are, its barriers (bytes there; slot free), its map."""

    start: int
    stages: int
    full: int
    free: int
    map: int


class _State(NamedTuple):
    """Where the rings are: for each tile of a turn the slot and the parity of its next use, and the slot of its last one."""

    slots: tuple[Value, ...]
    parities: tuple[Value, ...]
    before: tuple[Value, ...]

    def flat(self) -> list[Value]:
        return [*self.slots, *self.parities, *self.before]

    @staticmethod
    def of(values: Sequence[Value]) -> _State:
        n = len(values) // 3
        return _State(tuple(values[:n]), tuple(values[n : 2 * n]), tuple(values[2 * n :]))


class _Rings:
    """Places of all tiles in one buffer, and of their barriers in another."""

    def __init__(self, lo: Lowering, chain: Chain) -> None:
        self.lo, self.chain, self.maps = lo, chain, list[TileMap]()
        tiles = chain.loops[0].tiles
        kept, turn = (sum(s.nbytes for s in sources) for sources in (chain.held, tiles))
        self.stages = max(1, min(lo.stages, (MOST_SHARED - kept) // turn))
        self.held: dict[Op, _Slots] = {}
        at, self.held_barrier = 0, 0
        for source in chain.held:
            self.held[source.access.op] = _Slots(at, 1, 0, 0, self._map(source))
            at += source.nbytes
        self.tiles: list[_Slots] = []
        for n, source in enumerate(tiles):
            full = 8 + 16 * self.stages * n
            self.tiles.append(_Slots(at, self.stages, full, full + 8 * self.stages, self._map(source)))
            at += self.stages * source.nbytes
        self.buffer, self.barriers = Buffer(at, 1024), Buffer(8 + 16 * self.stages * len(tiles))

    def _map(self, source: TileSource) -> int:
        made = tile_map(self.lo.source, source)
        if made not in self.maps:
            self.maps.append(made)
        return self.maps.index(made)

    def start(self) -> None:
        arrivals = [1]
        for _ in self.tiles:
            arrivals += [1] * self.stages + [self.lo.warps] * self.stages
        b = self.lo.b
        b.emit("mbarrier_init", [], [], buffer=self.barriers, arrivals=tuple(arrivals), ring=True)
        b.emit("proxy_fence", [], [])  # bytes that moved tiles before are written by copies now
        b.emit("barrier", [], [])

    def begin(self) -> _State:
        zero = self.lo.b.number(0, INT32)
        zeros = (zero,) * len(self.tiles)
        return _State(zeros, zeros, zeros)

    def place(self, tile: int, slot: Value) -> Value:
        """The byte offset of a slot."""
        nbytes = self.chain.loops[0].tiles[tile].nbytes
        return plus(self.lo, times(self.lo, slot, nbytes), self.tiles[tile].start)

    def barrier(self, first: int, slot: Value) -> Value:
        return plus(self.lo, times(self.lo, slot, 8), first)

    # ***** the warps that copy *****

    def produce(self) -> Body:
        """All copies: tiles that stay, then loop after loop."""
        lo, b, buffers = self.lo, self.lo.b, (self.buffer, self.barriers)
        with b.body() as body, lo.scope():
            at = b.number(self.held_barrier, INT32)
            total = sum(s.nbytes for s in self.chain.held)
            if total:
                b.emit("mbarrier_expect", [at], [], buffer=self.barriers, bytes=total, ring=True)
            for source in self.chain.held:
                slots = self.held[source.access.op]
                copy_tile(lo, source, slots.map, b.number(slots.start, INT32), at, buffers)
            state = self.begin()
            for loop in self.chain.loops:
                bounds = [lo.uniform(v) for v in loop.loop.operands[:3]]
                carried = [*state.slots, *state.parities]
                with b.body([bounds[0].type, *(_COUNTER for _ in carried)]) as turn, lo.scope():
                    lo.put(loop.region.params[0], turn.params[0])
                    turn.yielded = self._copies(loop, turn.params[1:])
                made = b.emit("for", [*bounds, *carried], [v.type for v in carried], [turn]).results
                n = len(self.tiles)
                state = _State(tuple(made[:n]), tuple(made[n:]), state.before)
        return body

    def _copies(self, loop: ChainLoop, counters: Sequence[Value]) -> list[Value]:
        lo, b, n = self.lo, self.lo.b, len(self.tiles)
        slots, parities = list[Value](), list[Value]()
        for number, (source, ring) in enumerate(zip(loop.tiles, self.tiles, strict=True)):
            slot, parity = counters[number], counters[n + number]
            free, full = (self.barrier(first, slot) for first in (ring.free, ring.full))
            one = b.pointwise("bitwise_xor", parity, b.number(1, INT32))
            b.emit("mbarrier_wait", [free, one], [], buffer=self.barriers, ring=True)
            b.emit("mbarrier_expect", [full], [], buffer=self.barriers, bytes=source.nbytes, ring=True)
            copy_tile(lo, source, ring.map, self.place(number, slot), full, (self.buffer, self.barriers))
            slot, parity = following(lo, ring.stages, slot, parity)
            slots.append(slot)
            parities.append(parity)
        return [*slots, *parities]


class _Turns:
    """Lowers one loop for the warps that multiply; `state` goes from turn to turn."""

    def __init__(self, rings: _Rings, loop: ChainLoop, state: _State) -> None:
        self.rings, self.loop, self.lo, self.state = rings, loop, rings.lo, state
        self.number = {s.access.op: n for n, s in enumerate(loop.tiles)}
        self.early, self.late = (self._tiles(products) for products in (loop.first, loop.last))
        self.params = loop.region.params[1:]
        self.results = [loop.param(x) for x in loop.last]  # carried values that last products become

    def _tiles(self, products: Iterable[ChainProduct]) -> list[int]:
        """The numbers of a turn's tiles that products read."""
        return sorted({self.number[op] for p in products for op in p.tiles() if op in self.number})

    @property
    def least_stages(self) -> int:
        """Slots of a tile, so that turns may overlap: a slot is free only when the last products of the next turn are done, but the
        tiles of the turn after that, which come in the order of the loop, are waited for before.
        """
        return 3 if set(self.early).intersection(self.late) else 2

    # ***** barriers *****

    def arrive(self, tiles: Iterable[int], slots: Sequence[Value]) -> None:
        """Free the slots in which tiles are."""
        b, rings = self.lo.b, self.rings
        for n in tiles:
            free = rings.barrier(rings.tiles[n].free, slots[n])
            b.emit("mbarrier_arrive", [free, b.number(True, BOOL)], [], buffer=rings.barriers, ring=True)

    def _wait_for(self, tiles: Iterable[int]) -> None:
        """Until the bytes of the next turn's tiles are there."""
        b, rings = self.lo.b, self.rings
        for n in tiles:
            full = rings.barrier(rings.tiles[n].full, self.state.slots[n])
            b.emit("mbarrier_wait", [full, self.state.parities[n]], [], buffer=rings.barriers, ring=True)

    def _advance(self, tiles: Iterable[int]) -> None:
        """To the next turn of tiles, which are in the slots `state.before` then."""
        slots, parities, before = (list(part) for part in self.state)
        for n in tiles:
            before[n] = slots[n]
            slots[n], parities[n] = following(self.lo, self.rings.tiles[n].stages, slots[n], parities[n])
        self.state = _State(tuple(slots), tuple(parities), tuple(before))

    def await_tiles(self, tiles: Sequence[int]) -> None:
        self._wait_for(tiles)
        self._advance(tiles)

    def await_next(self, more: Value) -> None:
        """Wait for the first tiles of the next turn, if there is one.  The branch is also what keeps the assembler from waiting for
        products before the pointwise work that stands before it.
        """
        b = self.lo.b
        with b.body() as some, self.lo.scope():
            self._wait_for(self.early)
        with b.body() as none:
            pass
        b.emit("if", [more], [], [some, none])

    def wait(self, values: Sequence[Value], pending: int) -> list[Value]:
        return self.lo.b.emit("wgmma_wait", values, [v.type for v in values], pending=pending).results

    def fence(self, values: Sequence[Value]) -> list[Value]:
        """Registers that were written are ready for products."""
        return self.lo.b.emit("wgmma_fence", values, [v.type for v in values]).results

    # ***** products *****

    def begins(self, product: ChainProduct) -> Value:
        """Accumulators, as registers."""
        lo, layout = self.lo, self.lo.layouts.dots[product.dot]
        if _fresh(product):
            return lo.b.emit("undefined", [], [Registers(product.form.result, layout.size)]).result
        return lo.b.spread(lo.value(product.dot.operands[2], layout), layout.size)

    def left(self, product: ChainProduct) -> Value:
        """A left operand, as registers; they lie as accumulators do."""
        layout = self._layout_of_left(product)
        return self.lo.b.spread(self.lo.value(product.dot.operands[0], layout), layout.size)

    def _layout_of_left(self, product: ChainProduct) -> Layout:
        return self.rings.chain.layout(product.dot.operands[0].shape)

    def issue_first(self, held: Sequence[Value]) -> list[Value]:
        """Begin the first products, as one group."""
        made = [self._multiply(p, x, None, self.state.before) for p, x in zip(self.loop.first, held, strict=True)]
        self.lo.b.emit("wgmma_commit", [], [])
        return made

    def issue_last(self, held: Sequence[Value], left: Sequence[Value], slots: Sequence[Value]) -> list[Value]:
        """Begin the last products, as one group, of tiles in these slots."""
        made = [self._multiply(p, x, a, slots) for p, x, a in zip(self.loop.last, held, left, strict=True)]
        self.lo.b.emit("wgmma_commit", [], [])
        return made

    def _multiply(self, product: ChainProduct, held: Value, left: Value | None, slots: Sequence[Value]) -> Value:
        b, form, rows = self.lo.b, product.form, self.rings.chain.group_rows
        at, counts = self._at(product.b, slots), [b.number(n, BOOL) for n in (not _fresh(product), True)]
        first, none = self._at(product.a, slots) if product.a is not None else None, (0,) * len(rows)

        def one(part: Value, row: int, column: int, k: int) -> Value:
            right = product.b.side(0, column, k, none)
            side = None if product.a is None else product.a.side(0, row, k, rows)
            operand = self._fragment(product, left, row, k) if left is not None else first
            assert operand is not None
            return b.emit(
                "wgmma", [at, part, counts[k > 0], operand], [part.type], form=form.kinds, n=product.columns, a=side, b=right,
                buffer=self.rings.buffer, ring=True,
            ).result  # fmt: skip

        layout, widths = self.lo.layouts.dots[product.dot], (product.dot.result.shape[1], product.columns)
        return multiplied(b, held, layout, widths, range(0, product.depth, form.k), one)

    def _at(self, source: TileSource, slots: Sequence[Value]) -> Value:
        """Where a tile lies."""
        op = source.access.op
        if op in self.rings.held:
            return self.lo.b.number(self.rings.held[op].start, INT32)
        return self.rings.place(self.number[op], slots[self.number[op]])

    def _fragment(self, product: ChainProduct, left: Value, row: int, k: int) -> Value:
        """Registers of the left operand of one instruction."""
        first = self._layout_of_left(product).register_of(row * product.depth + k)
        return self.lo.b.pick([left], [(0, first + r) for r in range(64 * product.form.k // (GROUP * WARP))])

    def give(self, products: Iterable[ChainProduct], made: Iterable[Value]) -> None:
        for product, value in zip(products, made, strict=True):
            self.lo.give(product.dot.result, value, self.lo.layouts.dots[product.dot])

    # ***** turns *****

    def put(self, params: Sequence[TileValue], values: Sequence[Value]) -> None:
        for param, value in zip(params, values, strict=True):
            self.lo.put(param, value, self.lo.layouts.of[param] if param.type.numel > 1 else None)

    def lower(self, ops: Iterable[Op]) -> None:
        for op in ops:
            self.lo.b.line = op.line or self.lo.b.line
            self.lo.op(op)

    def carried(self, values: Sequence[TileValue], like: Sequence[TileValue]) -> list[Value]:
        """Values as registers, in the layouts of `like`."""
        made = self.lo.carried(values, like)
        return [x if p.type.numel == 1 else self.lo.b.spread(x, self.lo.layouts.of[p].size) for x, p in zip(made, like, strict=True)]  # fmt: skip

    def _first(self) -> list[Value]:
        """Begin the first products of a turn, whose tiles are there."""
        self._advance(self.early)
        starts = [self.begins(p) for p in self.loop.first]
        ready = iter(self.fence([x for p, x in zip(self.loop.first, starts, strict=True) if not _fresh(p)]))
        return self.issue_first([x if _fresh(p) else next(ready) for p, x in zip(self.loop.first, starts, strict=True)])

    def _last(self, held: Sequence[Value], left: Sequence[Value]) -> list[Value]:
        """The last products of a turn, from registers that are not fenced yet; their slots are free then."""
        self.await_tiles([n for n in self.late if n not in self.early])
        made = self.wait(self._issue(held, left, self.state.before), 0)
        self.arrive(self.late, self.state.before)
        return made

    def _issue(self, held: Sequence[Value], left: Sequence[Value], slots: Sequence[Value]) -> list[Value]:
        ready = self.fence([*held, *left])
        return self.issue_last(ready[: len(held)], ready[len(held) :], slots)

    def one_turn(self) -> list[Value]:
        """A turn by itself; gives the carried values of the next."""
        loop = self.loop
        self._wait_for(self.early)
        made = self._first()
        self.lower(loop.beside)
        made = self.wait(made, 0)
        self.arrive((n for n in self.early if n not in self.late), self.state.before)
        self.give(loop.first, made)
        self.lower(op for op in loop.others if op not in loop.behind and op not in loop.beside)
        made = self._last([self.begins(p) for p in loop.last], [self.left(p) for p in loop.last])
        self.give(loop.last, made)
        self.lower(loop.behind)
        return self.carried(loop.region.yielded, self.params)

    def plain(self) -> list[Value]:
        """The loop, turn by turn."""
        lo, b = self.lo, self.lo.b
        bounds = [lo.uniform(v) for v in self.loop.loop.operands[:3]]
        start, counters = self.carried(self.loop.loop.operands[3:], self.params), self.state.flat()
        with b.body([bounds[0].type, *(v.type for v in (*start, *counters))]) as body, lo.scope():
            self.put(self.loop.region.params, body.params[: 1 + len(start)])
            self.state = _State.of(body.params[1 + len(start) :])
            body.yielded = [*self.one_turn(), *self.state.flat()]
        made = b.emit("for", [*bounds, *start, *counters], [v.type for v in body.params[1:]], [body]).results
        self.state = _State.of(made[len(start) :])
        return made[: len(start)]

    # ***** turns that overlap *****

    def _pointwise(self, made: Sequence[Value], pending: int) -> list[Value]:
        """The pointwise work of a turn on the results of its first products: values for the next turn, and left operands.

        Work that needs the last products of the turn before is left out.
        """
        loop = self.loop
        self.lower(loop.beside)
        made = self.wait(made, pending)
        self.arrive((n for n in self.early if n not in self.late), self.state.before)
        self.give(loop.first, made)
        self.lower(op for op in loop.others if op not in loop.waiting and op not in loop.beside)
        kept = [(v, p) for v, p in zip(loop.region.yielded, self.params, strict=True) if p not in self.results]
        return [*self.carried([v for v, _ in kept], [p for _, p in kept]), *(self.left(p) for p in loop.last)]

    def _accumulated(self, values: Sequence[Value]) -> list[Value]:
        """The accumulators of a turn's last products, when those of the turn before are done."""
        self.put([p for p in self.results if p is not None], values)
        self.lower(self.loop.waiting)
        return [self.begins(p) for p in self.loop.last]

    def _overlapped_turn(self, held: Sequence[Value], left: Sequence[Value], more: Value) -> list[Value]:
        """The first products of a turn, the last of the turn before, and what a turn makes of both; `more`: another comes."""
        before = self.state.before
        first = self._first()
        self.await_tiles([n for n in self.late if n not in self.early])
        slots = [before[n] if n in self.early else x for n, x in enumerate(self.state.before)]
        last = self._issue(held, left, slots)
        given = self._pointwise(first, 1)
        self.await_next(more)
        last = self.wait(last, 0)
        self.arrive(self.late, slots)
        return [*given, *self._accumulated(last)]

    def overlapping(self) -> list[Value]:
        """The loop, the last products of each turn beside the next; as it was, where there is no turn."""
        lo, b = self.lo, self.lo.b
        low, high, step = (lo.uniform(v) for v in self.loop.loop.operands[:3])
        start, counters = self.carried(self.loop.loop.operands[3:], self.params), self.state.flat()
        kept = [n for n, p in enumerate(self.params) if p not in self.results]
        with b.body() as some, lo.scope():
            values = self._all_turns((low, high, step), start, kept)
            some.yielded = [*values, *self.state.flat()]
        with b.body() as none:
            none.yielded = [*start, *counters]
        types = [v.type for v in (*start, *counters)]
        made = b.emit("if", [b.pointwise("lt", low, high, dtype=BOOL)], types, [some, none]).results
        self.state = _State.of(made[len(start) :])
        return made[: len(start)]

    def _all_turns(
        self, bounds: tuple[Value, Value, Value], start: Sequence[Value], kept: Sequence[int]
    ) -> list[Value]:
        lo, b, count = self.lo, self.lo.b, len(self.loop.last)
        low, high, step = bounds
        results = [self.params.index(p) for p in self.results if p is not None]
        params = [self.params[n] for n in kept]
        with lo.scope():
            self.put([self.loop.region.params[0], *params], [low, *(start[n] for n in kept)])
            self._wait_for(self.early)
            given = self._pointwise(self._first(), 0)
            given += self._accumulated([start[n] for n in results])
        second = b.pointwise("add", low, step)
        self.await_next(b.pointwise("lt", second, high, dtype=BOOL))
        carried = [*given, *self.state.flat()]
        with b.body([low.type, *(v.type for v in carried)]) as body, lo.scope():
            self.put([self.loop.region.params[0], *params], body.params[: 1 + len(kept)])
            held = body.params[1 + len(kept) :]
            self.state = _State.of(held[2 * count :])
            more = b.pointwise("lt", b.pointwise("add", body.params[0], step), high, dtype=BOOL)
            made = self._overlapped_turn(held[count : 2 * count], held[:count], more)
            body.yielded = [*made, *self.state.flat()]
        made = b.emit("for", [second, high, step, *carried], [v.type for v in carried], [body]).results
        held = made[len(kept) :]
        self.state = _State.of(held[2 * count :])
        last = self._last(held[count : 2 * count], held[:count])
        found = dict(zip([*kept, *results], [*made[: len(kept)], *last], strict=True))
        return [found[n] for n in range(len(self.params))]


def _fresh(product: ChainProduct) -> bool:
    """Whether a product takes no accumulators."""
    return not product.is_last and is_zero(product.dot.operands[2])


def chained(lo: Lowering, chain: Chain) -> None:
    """All loops, by copying and by multiplying warps; their results are those of the loops as they were."""
    b, rings = lo.b, _Rings(lo, chain)
    ops = lo.source.body.ops
    for op in ops[ops.index(chain.loops[0].loop) : ops.index(chain.loops[-1].loop)]:
        if op.kind in PURE:
            lo.op(op)
    copying = rings.produce()
    first = chain.set_up(lo.source)
    wanted = _wanted(lo, [*first, *(loop.loop for loop in chain.loops)])
    with b.body() as multiplying, lo.scope():
        state = rings.begin()
        lo.skipped.difference_update(first)
        lo.ops(Region((), first))
        if chain.held:
            operands = [b.number(rings.held_barrier, INT32), b.number(0, INT32)]
            b.emit("mbarrier_wait", operands, [], buffer=rings.barriers, ring=True)
        for loop in chain.loops:
            turns = _Turns(rings, loop, state)
            made = turns.overlapping() if loop.overlaps and rings.stages >= turns.least_stages else turns.plain()
            turns.put(loop.loop.results, made)
            state = turns.state
        multiplying.yielded = [lo.value(v, lo.layouts.of[v]) if v.type.numel > 1 else lo.uniform(v) for v in wanted]
    rings.start()  # behind all that moved through the same bytes for the loops
    made = b.emit("roles", [], [lo._type(v) for v in wanted], [copying, multiplying]).results
    lo.maps += rings.maps
    lo.copiers = GROUP
    for value, result in zip(wanted, made, strict=True):
        lo.put(value, result, lo.layouts.of[value] if value.type.numel > 1 else None)
    lo.skipped.update(loop.loop for loop in chain.loops)
    b.emit("barrier", [], [])  # the ring's bytes are free


def _wanted(lo: Lowering, made: Sequence[Op]) -> list[TileValue]:
    """The results of operations that are used behind them."""
    ops = lo.source.body.ops
    behind = ops[ops.index(made[-1]) + 1 :]
    used = {v for op in behind for inner in (op, *(o for r in op.regions for o in r.walk())) for v in inner.operands}
    return [v for op in made for v in op.results if v in used]


def _for(lo: Lowering, op: Op) -> None:
    if lo.chain is not None and op is lo.chain.loops[0].loop:
        chained(lo, lo.chain)
    else:
        _other_for(lo, op)


_other_for = HANDLERS["for"]
HANDLERS["for"] = _for
