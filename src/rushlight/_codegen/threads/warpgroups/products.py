"""Products by warpgroups (`wgmma`, sm_90a): operands come by bulk copies (TMA) into a ring in shared memory.

Further warps copy: they wait until a slot is free, say how many bytes will come, and start the copies.  The other warps wait for
the bytes, multiply in the background, and free the slot of the turn before when its products are done (their own, where there is
but one).

Where a program walks from tile to tile, both go on through the ring: the copies for the next tile begin while the others store
the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rushlight._codegen.blocks import Op, Region
from rushlight._codegen.blocks.tiles import TileAccess
from rushlight._types.dtype import BOOL, INT32

from ..choose import PURE
from ..form import Body, Buffer, Registers, ThreadBuilder, Value
from ..layout import Layout, bits_of
from ..lower import HANDLERS, MOST_SHARED_BYTES, Lowering
from .find_products import GROUP, ROW_BYTES, GroupProduct, TileSource, is_zero, tile_map

__all__ = ["MOST_SHARED", "copy_tile", "following", "multiplied", "plus", "times"]

MOST_SHARED = MOST_SHARED_BYTES - 1024  # bytes of a block, less what barriers take


class _Ring:
    """Slots for the tiles of some turns, and two barriers for each: the bytes are there; the slot is free."""

    def __init__(self, lo: Lowering, product: GroupProduct) -> None:
        self.lo, self.product = lo, product
        self.slot_bytes = product.a.nbytes + product.b.nbytes
        self.stages = max(1, min(lo.stages, MOST_SHARED // self.slot_bytes))
        self.buffer = Buffer(self.stages * self.slot_bytes, 1024)
        self.barriers = Buffer(16 * self.stages)
        self.from_zeros = is_zero(product.loop.operands[3])
        self.maps = [tile_map(lo.source, s) for s in (product.a, product.b)]

    def start(self) -> None:
        arrivals = (1,) * self.stages + (self.lo.warps,) * self.stages
        self.lo.b.emit("mbarrier_init", [], [], buffer=self.barriers, arrivals=arrivals, ring=True)
        if any(i.kind == "shared_store" for i in self.lo.b.bodies[0].walk()):
            self.lo.b.emit("proxy_fence", [], [])  # bytes that moved tiles are written by copies now
        self.lo.b.emit("barrier", [], [])

    def barrier(self, slot: Value, free: bool) -> Value:
        place = times(self.lo, slot, 8)
        return plus(self.lo, place, 8 * self.stages) if free else place

    def at(self, slot: Value) -> Value:
        return times(self.lo, slot, self.slot_bytes)

    # ***** the warps that copy *****

    def produce(self, index: Value, slot: Value, parity: Value) -> list[Value]:
        b, region = self.lo.b, self.product.loop.regions[0]
        free, full = self.barrier(slot, True), self.barrier(slot, False)
        one = b.pointwise("bitwise_xor", parity, b.number(1, INT32))
        b.emit("mbarrier_wait", [free, one], [], buffer=self.barriers, ring=True)
        b.emit("mbarrier_expect", [full], [], buffer=self.barriers, bytes=self.slot_bytes, ring=True)
        with self.lo.scope():
            self.lo.put(region.params[0], index)
            at = self.at(slot)
            for number, source in enumerate((self.product.a, self.product.b)):
                place = plus(self.lo, at, self.product.a.nbytes if number else 0)
                copy_tile(self.lo, source, number, place, full, (self.buffer, self.barriers))
        return list(following(self.lo, self.stages, slot, parity))

    # ***** the warps that multiply *****

    def consume(self, index: Value, low: Value, held: Value, slot: Value, parity: Value, last: Value) -> list[Value]:
        b = self.lo.b
        b.emit("mbarrier_wait", [self.barrier(slot, False), parity], [], buffer=self.barriers, ring=True)
        b.emit("wgmma_fence", [], [])
        begun = b.pointwise("ne", index, low, dtype=BOOL)
        held = self.multiply(held, self.at(slot), begun)
        b.emit("wgmma_commit", [], [])
        if self.stages == 1:  # the next turn needs this one's slot
            held = self.wait(held, 0)
            self.free(slot, b.number(True, BOOL))
        else:
            held = self.wait(held, 1)
            self.free(last, begun)
        return [held, *following(self.lo, self.stages, slot, parity), slot]

    def free(self, slot: Value, when: Value) -> None:
        """Tell the warps that copy that a slot's products are done, where a condition holds."""
        self.lo.b.emit("mbarrier_arrive", [self.barrier(slot, True), when], [], buffer=self.barriers, ring=True)

    def wait(self, held: Value, pending: int) -> Value:
        return self.lo.b.emit("wgmma_wait", [held], [held.type], pending=pending).result

    def multiply(self, held: Value, at: Value, begun: Value) -> Value:
        """All instructions of a turn.  The first of a loop that starts from zeros takes no accumulators, because registers that
        others write would hold the instructions up.
        """
        b, product = self.lo.b, self.product

        def one(part: Value, row: int, column: int, k: int) -> Value:
            left = product.a.side(0, row, k, product.group_rows)
            right = product.b.side(product.a.nbytes, column, k, product.group_columns)
            more = [begun] if self.from_zeros and k == 0 else []
            return b.emit(
                "wgmma", [at, part, *more], [part.type], form=product.form.kinds, n=product.columns, a=left, b=right,
                buffer=self.buffer, ring=True,
            ).result  # fmt: skip

        steps = range(0, product.a.depth, product.form.k)
        return multiplied(b, held, product.layout(), (product.dot.result.shape[1], product.columns), steps, one)


# ***** what loops of one product and of several share *****


def times(lo: Lowering, x: Value, by: int) -> Value:
    return lo.b.pointwise("mul", x, lo.b.number(by, INT32))


def plus(lo: Lowering, x: Value, by: int) -> Value:
    return lo.b.pointwise("add", x, lo.b.number(by, INT32)) if by else x


def following(lo: Lowering, stages: int, slot: Value, parity: Value) -> tuple[Value, Value]:
    """Slot and parity of the next turn."""
    b = lo.b
    wraps = b.pointwise("eq", slot, b.number(stages - 1, INT32), dtype=BOOL)
    after = b.pointwise("select", wraps, b.number(0, INT32), plus(lo, slot, 1), dtype=INT32)
    turned = b.pointwise("bitwise_xor", parity, b.number(1, INT32))
    return after, b.pointwise("select", wraps, turned, parity, dtype=INT32)


def copy_tile(
    lo: Lowering, source: TileSource, number: int, at: Value, full: Value, buffers: tuple[Buffer, Buffer]
) -> None:
    """Start the copies of a tile's boxes to a place in the first buffer; `full` is the barrier in the second."""
    starts, offsets = _places(lo, source)
    for box in range(source.boxes):
        place = plus(lo, at, box * source.box_rows * ROW_BYTES)
        along = plus(lo, starts[0], box * (ROW_BYTES // source.dtype.itemsize))
        lo.b.emit(
            "tile_copy", [place, full, along, *starts[1:], *offsets], [], offsets=len(offsets), buffer=buffers[0],
            barriers=buffers[1], map=number, bytes=source.box_rows * ROW_BYTES, ring=True,
        )  # fmt: skip


def _places(lo: Lowering, source: TileSource) -> tuple[list[Value], list[Value]]:
    """Where a tile begins in its array, the dim with neighbours in memory first; for windows also what is added to places."""
    access, b = source.access, lo.b
    if isinstance(access, TileAccess):
        return [_int32(lo, lo.uniform(access.starts[d])) for d in source.order], []
    image, *places = (_int32(lo, lo.uniform(x)) for x in access.starts)
    begins = [
        plus(lo, b.pointwise("mul", x, b.number(step, INT32)), -low)
        for x, step, low in zip(places, access.stride, access.lo, strict=True)
    ]
    offsets = [_int32(lo, lo.uniform(x)) for x in access.offsets]
    return [_int32(lo, lo.uniform(access.channel)), *begins[::-1], image], offsets[::-1]


def _int32(lo: Lowering, x: Value) -> Value:
    return x if x.dtype is INT32 else lo.b.pointwise("convert", x, dtype=INT32, params={"dtype": INT32})


def multiplied(
    b: ThreadBuilder, held: Value, layout: Layout, widths: tuple[int, int], steps: Iterable[int],
    one: Callable[[Value, int, int, int], Value],
) -> Value:  # fmt: skip
    """All instructions of a product: over rows and columns of the accumulators, then over k in order.  `widths` are the columns
    of the accumulators and of an instruction, which `one` emits: (accumulators, row, column, k).
    """
    width, n = widths
    each, parts = n // 2, list[Value]()
    for registers, element in _fragments(layout, n, width):
        part = b.pick([held], [(0, r) for r in registers])
        for k in steps:
            part = one(part, *divmod(element, width), k)
        parts.append(part)
    chosen = [r for registers, _ in _fragments(layout, n, width) for r in registers]
    order = {r: i for i, r in enumerate(chosen)}
    return b.pick(parts, [divmod(order[r], each) for r in range(layout.size)])


def _fragments(layout: Layout, n: int, width: int) -> list[tuple[list[int], int]]:
    """The registers of each instruction's accumulators, by column and row of its fragment, and the first element of it."""
    found = []
    seen: set[int] = set()
    columns, row8 = bits_of(n), bits_of(width) + 3
    inner = [layout.registers.index(b) for b in (0, row8, *range(3, columns))]
    for first in range(layout.size):
        if first in seen:
            continue
        registers = [first | sum(1 << place for i, place in enumerate(inner) if r >> i & 1) for r in range(n // 2)]
        seen.update(registers)
        found.append((registers, layout.element(first)))
    return found


_COUNTER = Registers(INT32, 1, True)


def _grouped(lo: Lowering, product: GroupProduct) -> None:
    """The loop, by copying and by multiplying warps; its result is that of the loop as it was."""
    b, op, ring = lo.b, product.loop, _Ring(lo, product)
    low, high, step = (lo.uniform(v) for v in op.operands[:3])
    start, zero = _start(lo, ring), b.number(0, INT32)
    ring.start()
    with b.body([low.type, _COUNTER, _COUNTER]) as copying:
        copying.yielded = ring.produce(*copying.params)
    multiplying = _turns(ring, low, start)
    operands = [low, high, step, zero, zero, start, zero, zero, zero]
    made = b.emit("roles", operands, [v.type for v in multiplying.params[1:]], [copying, multiplying], carried=2)
    _give(lo, ring, low, high, made.results[0])
    b.emit("barrier", [], [])  # the ring's bytes are free


def _walking(lo: Lowering, product: GroupProduct) -> None:
    """The loop over tiles around such a loop: which slot comes next, and the parity of its barriers, go from tile to tile."""
    assert product.walk is not None
    b, ring, (tiles,) = lo.b, _Ring(lo, product), product.walk.regions
    bounds, zero = [lo.uniform(v) for v in product.walk.operands[:3]], b.number(0, INT32)
    before, behind = _around(tiles, product.loop)
    types = [bounds[0].type, _COUNTER, _COUNTER]
    ring.start()
    with b.body(types) as copying, lo.scope():
        lo.put(tiles.params[0], copying.params[0])
        for op in before:
            if op.kind in PURE and op.result.type.numel == 1:
                lo.uniform(op.result)
        turns = [lo.uniform(v) for v in product.loop.operands[:3]]
        with b.body([turns[0].type, _COUNTER, _COUNTER]) as body:
            body.yielded = ring.produce(*body.params)
        copying.yielded = b.emit("for", [*turns, *copying.params[1:]], [_COUNTER, _COUNTER], [body]).results
    with b.body(types) as multiplying, lo.scope():
        index, slot, parity = multiplying.params
        lo.put(tiles.params[0], index)
        lo.ops(Region((), before))
        low, high, step = (lo.uniform(v) for v in product.loop.operands[:3])
        start = _start(lo, ring)
        body = _turns(ring, low, start)
        operands = [low, high, step, start, slot, parity, zero]
        made = b.emit("for", operands, [v.type for v in body.params[1:]], [body])
        held, *following, last = made.results
        held = _give(lo, ring, low, high, held)
        if ring.stages > 1:
            ring.free(last, b.pointwise("lt", low, high, dtype=BOOL))
        lo.ops(Region((), behind))
        multiplying.yielded = following
    b.emit("roles", [*bounds, zero, zero, zero, zero], [_COUNTER, _COUNTER], [copying, multiplying], carried=2)


def _around(region: Region, loop: Op) -> tuple[list[Op], list[Op]]:
    """The operations of a region before and behind a loop."""
    at = region.ops.index(loop)
    return region.ops[:at], region.ops[at + 1 : -1]


def _start(lo: Lowering, ring: _Ring) -> Value:
    """The accumulators before the first turn."""
    loop = ring.product.loop
    (param,) = loop.regions[0].params[1:]
    layout = lo.layouts.of[param]
    if ring.from_zeros:
        return lo.b.emit("undefined", [], [Registers(ring.product.form.result, layout.size)]).result
    (start,) = (lo.b.spread(v, layout.size) for v in lo.carried(loop.operands[3:], [param]))
    return start


def _turns(ring: _Ring, low: Value, start: Value) -> Body:
    """The loop's body, of the warps that multiply."""
    with ring.lo.b.body([low.type, start.type, _COUNTER, _COUNTER, _COUNTER]) as body:
        index, *rest = body.params
        body.yielded = ring.consume(index, low, *rest)
    return body


def _give(lo: Lowering, ring: _Ring, low: Value, high: Value, held: Value) -> Value:
    """Wait for all products, and say what the loop's result is."""
    b, product = lo.b, ring.product
    held = ring.wait(held, 0)
    if ring.from_zeros:  # a loop without a turn
        none = b.pointwise("lt", low, high, dtype=BOOL)
        held = b.pointwise("select", none, held, b.number(0, held.dtype), dtype=held.dtype)
    lo.maps += ring.maps
    lo.copiers = GROUP
    lo.put(product.loop.results[0], held, lo.layouts.of[product.loop.regions[0].params[1]])
    return held


def _for(lo: Lowering, op: Op) -> None:
    found = lo.products.get(op)
    if found is not None:
        (_grouped if found.walk is None else _walking)(lo, found)
    else:
        _other_for(lo, op)


_other_for = HANDLERS["for"]
HANDLERS["for"] = _for
