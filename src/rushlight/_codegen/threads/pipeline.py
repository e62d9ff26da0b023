"""Loops whose matrix operands are copied to shared memory ahead of time, in the background.

A load qualifies if it feeds a product, and if its addresses and mask can be computed without anything that the loop
multiplies.  Then the addresses of a later turn are computed from values carried along beside those of the loop, and a
ring of `stages` tiles in shared memory holds what was copied.  Where addresses come from a table (pages of a pool) and
the loop writes nothing, each thread loads what it needs of the table for the later turn.  Each turn waits for its tile,
passes a barrier (all threads are done with the tile of the turn before, and see the copies of the others), and begins
the copies of the turn `stages - 1` ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rushlight._codegen.blocks import Op, Region
from rushlight._codegen.blocks import Value as TileValue
from rushlight._types.dtype import BOOL, INT32

from .choose import PURE, required
from .exchange import Swizzle, access_width, best_swizzle, offsets, write_shared
from .form import Buffer, Registers, Value
from .layout import Layout, after_permute, bits_of
from .lower import HANDLERS, Lowering
from .matrices.layouts import form_of
from .matrices.load import matrix_load_of

__all__ = ["Staged", "pipelined", "staged_loads"]

LEAST_CAPABILITY, MOST_SHARED = 80, 96 << 10
MOST_REGISTERS = 16  # of an operand that a loop does not change
_SPREAD = frozenset({"splat", "broadcast", "expand_dims"})


@dataclass(frozen=True, slots=True)
class Staged:
    """A tile in shared memory, where it lies as in memory: `order` has the dims, the fastest last.

    The tiles of a load come through a ring of `stages`; one stage is a tile that is written before the loop.
    """

    load: Op
    order: tuple[int, ...]
    layout: Layout  # in which threads copy
    vector: int
    swizzle: Swizzle
    buffer: Buffer
    stages: int

    @property
    def slot_bytes(self) -> int:
        return self.buffer.size // self.stages

    def laid(self, layout: Layout) -> Layout:
        """A layout of the tile, for the numbers of its elements in a slot."""
        return after_permute(layout, self.load.result.shape, self.order)

    def read(self, lo: Lowering, slot: Value, layout: Layout) -> Value:
        """The tile of a slot, in a layout."""
        dtype, layout = self.load.result.dtype, self.laid(layout)
        start = lo.b.pointwise("mul", slot, lo.b.number(self.slot_bytes, INT32))
        rows = matrix_load_of(lo, layout, dtype.itemsize)
        if rows is not None and rows.fits(self.swizzle):
            place = lo.b.pointwise("add", rows.offsets(lo.b, self.swizzle), start)
            return rows.read(lo.b, place, self.buffer, Registers(dtype, layout.size), ring=self.stages > 1)
        place = lo.b.pointwise("add", offsets(lo.b, layout, self.swizzle, dtype.itemsize), start)
        vector = min(access_width(layout, dtype.itemsize), 1 << self.swizzle.keep)
        return lo.b.emit(
            "shared_load",
            [place],
            [Registers(dtype, layout.size)],
            buffer=self.buffer,
            dtype=dtype,
            vector=vector,
            ring=self.stages > 1,
        ).result


# ***** which loads *****


class Ahead(NamedTuple):
    """Values that the addresses of later iterations need: carried ones, and those of the body that depend on loads of
    tables.
    """

    carried: list[TileValue]
    tabled: set[TileValue]


def staged_loads(lo: Lowering, op: Op) -> tuple[list[Staged], Ahead]:
    """The loads of a `for` that are copied ahead, and what their addresses need."""
    (body,) = op.regions
    stages = lo.source.stages
    if stages < 2 or lo.layouts.capability < LEAST_CAPABILITY:
        return [], Ahead([], set())
    found: list[tuple[Op, list[Layout]]] = []
    needed: set[TileValue] = set()
    tabled: set[TileValue] = set()
    reads_alone = all(inner.kind not in _WRITES for inner in body.walk())
    for load in body.ops:
        if load.kind == "load" and load.result.type.numel > 1 and load.result.type.element is not BOOL:
            reads = _reads(lo, body, load)
            addresses = _slice(body, [*load.operands[:2]], reads_alone)
            if reads and addresses is not None and _copies(lo, load):
                found.append((load, reads))
                needed |= addresses[0]
                tabled |= addresses[1]
    ordered = [p for p in body.params[1:] if p in needed]
    total = sum(load.result.type.numel * load.result.dtype.itemsize for load, _ in found)
    while stages > 2 and stages * total > MOST_SHARED:
        stages -= 1
    if not found or stages * total > MOST_SHARED:
        return [], Ahead([], set())
    made = []
    for load, reads in found:
        layout = lo.layouts.access(load)
        made.append(_staged(lo, load, layout, lo.layouts.vector(load, layout), reads, stages))
    return made, Ahead(ordered, tabled)


def _copies(lo: Lowering, load: Op) -> bool:
    """Whether threads can copy it: at least 4 bytes at once, zeros where the mask is false."""
    layout = lo.layouts.access(load)
    if lo.layouts.vector(load, layout) * load.result.dtype.itemsize < 4 or any(layout.idle()):
        return False
    if len(load.operands) < 3:
        return True
    other = load.operands[2]
    while other.op is not None and (other.op.kind in _SPREAD or other.op.attributes.get("prim") == "convert"):
        other = other.op.operands[0]
    return other.op is not None and other.op.kind == "constant" and other.op.attributes["value"] == 0


def _reads(lo: Lowering, body: Region, load: Op) -> list[Layout]:
    """How products read a load's tile; none where it feeds no product by `mma`."""
    found = []
    for op in body.ops:
        found += [layout for operand, layout in _factors(lo, op) if operand is load.result]
    return found


def _factors(lo: Lowering, op: Op) -> list[tuple[TileValue, Layout]]:
    """The tiles that a product by `mma` multiplies, before they were renumbered, and their layouts."""
    form = form_of(op, lo.layouts.capability) if op.kind == "dot" else None
    found = []
    for operand, layout in zip(op.operands, lo.layouts.factors(op, form) if form else (), strict=False):
        while operand.op is not None and operand.op.kind in ("permute", "reshape", "expand_dims"):
            back = required(operand.op, layout)
            assert back is not None
            operand, layout = operand.op.operands[0], back
        found.append((operand, layout))
    return found


_WRITES = frozenset({"store", "atomic", "atomic_cas"})


def _slice(body: Region, wanted: Sequence[TileValue], tables: bool) -> tuple[set[TileValue], set[TileValue]] | None:
    """The carried values that values of the body depend on, and those on the way that depend on a load, which `tables`
    allows; None where they depend on more than that and arithmetic.
    """
    inside = {v for op in body.ops for v in op.results}
    carried: set[TileValue] = set()
    open_values, seen = list(wanted), set()
    while open_values:
        value = open_values.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in body.params[1:]:
            carried.add(value)
            open_values.append(body.yielded[body.params.index(value) - 1])
        elif value in inside:
            if value.op is None or not (value.op.kind in PURE or (tables and _is_table(value.op))):
                return None
            open_values += value.op.operands
    tabled: set[TileValue] = set()
    for op in body.ops:
        if any(v in seen for v in op.results) and (op.kind == "load" or any(v in tabled for v in op.operands)):
            tabled.update(op.results)
    if carried & tabled or any(body.yielded[body.params.index(p) - 1] in tabled for p in carried):
        return None  # what one turn reads decides where the next one reads
    return carried, tabled


def _is_table(op: Op) -> bool:
    return op.kind == "load" and not op.attributes.get("volatile")


def _staged(lo: Lowering, load: Op, layout: Layout, vector: int, reads: Sequence[Layout], stages: int) -> Staged:
    """`layout` and `vector`: how the tile is written."""
    itemsize, shape = load.result.dtype.itemsize, load.result.shape
    order = tuple(reversed(lo.layouts.order(load))) if load.kind == "load" else tuple(range(len(shape)))
    accesses = [(after_permute(layout, shape, order), vector)]
    for read in reads:
        laid = after_permute(read, shape, order)
        rows = matrix_load_of(lo, laid, itemsize)
        accesses.append((laid, access_width(laid, itemsize)) if rows is None else rows.access)
    swizzle = best_swizzle(accesses, itemsize, bits_of(load.result.type.numel))
    return Staged(load, order, layout, vector, swizzle, Buffer(stages * load.result.type.numel * itemsize), stages)


# ***** what a loop does not change *****


def keep(lo: Lowering, op: Op) -> None:
    """Operands of products in a `for` that are made before it: where they take many registers they stay in shared
    memory, from where each turn reads them.  Others move to registers before the loop.
    """
    (body,) = op.regions
    inside = {v for inner in body.walk() for v in (*inner.results, *(p for r in inner.regions for p in r.params))}
    inside.update(body.params)
    wanted: dict[TileValue, list[Layout]] = {}
    for inner in body.walk():
        for operand, layout in _factors(lo, inner):
            if operand not in inside and operand.op is not None and operand.op.kind not in PURE:
                wanted.setdefault(operand, []).append(layout)
    for value, layouts in wanted.items():
        if value in lo.staged:
            continue
        words = sum(layout.size for layout in set(layouts)) * value.dtype.itemsize // 4
        if words > MOST_REGISTERS and lo.layouts.capability >= LEAST_CAPABILITY:
            _keep_shared(lo, value, layouts)


def _keep_shared(lo: Lowering, value: TileValue, reads: Sequence[Layout]) -> None:
    assert value.op is not None
    layout = lo.layouts.of[value]
    one = _staged(lo, value.op, layout, access_width(layout, value.dtype.itemsize), reads, 1)
    made = lo.b.spread(lo.value(value, layout), layout.size)
    write_shared(lo.b, made, one.laid(layout), one.buffer, one.swizzle, min(one.vector, 1 << one.swizzle.keep))
    lo.b.emit("barrier", [], [])  # here, not in each turn
    lo.staged[value] = (one, lo.b.number(0, INT32))


# ***** the loop *****


def _issue(lo: Lowering, staged: Sequence[Staged], slot: Value, inside: Value) -> None:
    """Begin the copies of a turn; `inside` says whether there is such a turn."""
    b = lo.b
    for one in staged:
        itemsize = one.load.result.dtype.itemsize
        first = range(0, one.layout.size, one.vector)
        address = b.spread(lo.value(one.load.operands[0], one.layout), one.layout.size)
        address = b.pick([address], [(0, r) for r in first])
        mask: Value = inside
        if len(one.load.operands) > 1:
            own = b.spread(lo.value(one.load.operands[1], one.layout), one.layout.size)
            both = b.both(b.pick([own], [(0, r) for r in first]), inside)
            assert both is not None
            mask = both
        place = offsets(b, one.laid(one.layout), one.swizzle, itemsize)
        place = b.pick([place], [(0, r) for r in first])
        place = b.pointwise("add", place, b.pointwise("mul", slot, b.number(one.slot_bytes, INT32)))
        b.emit(
            "copy_async",
            [place, address, b.spread(mask, len(first))],
            [],
            buffer=one.buffer,
            bytes=one.vector * itemsize,
            ring=True,
        )
    b.emit("copy_commit", [], [])


def _ahead(
    lo: Lowering, region: Region, ahead: Ahead, values: Sequence[Value], index: Value, high: Value,
    staged: Sequence[Staged], slot: Value,
) -> list[Value]:  # fmt: skip
    """Begin the copies of the turn with these carried values; gives the values of the turn after it."""
    with lo.scope():
        lo.put(region.params[0], index)
        for param, value in zip(ahead.carried, values, strict=True):
            lo.put(param, value, lo.layouts.of[param] if param.type.numel > 1 else None)
        inside = lo.b.pointwise("lt", index, high, dtype=BOOL)
        with lo.made_anew(ahead.tabled, inside):
            _issue(lo, staged, slot, inside)
        following = [region.yielded[region.params.index(param) - 1] for param in ahead.carried]
        return lo.carried(following, ahead.carried)


def pipelined(lo: Lowering, op: Op, staged: Sequence[Staged], ahead: Ahead) -> None:
    """A `for` whose loads are staged; its results are those of the loop as it was."""
    (region,) = op.regions
    b, params, stages = lo.b, region.params[1:], staged[0].stages
    low, high, step = (lo.uniform(v) for v in op.operands[:3])
    start = lo.carried(op.operands[3:], params)
    held = [start[params.index(p)] for p in ahead.carried]
    b.emit("barrier", [], [])  # whoever used these bytes before is done with them
    index = low
    for slot in range(stages - 1):
        held = _ahead(lo, region, ahead, held, index, high, staged, b.number(slot, INT32))
        index = b.pointwise("add", index, step)
    types = [lo._type(p) for p in (*region.params, *ahead.carried)]
    with b.body([*types, Registers(INT32, 1, True)]) as body, lo.scope():
        for param, value in zip(region.params, body.params, strict=False):
            lo.put(param, value, lo.layouts.of[param] if param.type.numel > 1 else None)
        slot = body.params[-1]
        b.emit("copy_wait", [], [], pending=stages - 2)
        b.emit("barrier", [], [])
        index = b.pointwise("add", body.params[0], _times(lo, step, stages - 1))
        behind = b.pointwise("eq", slot, b.number(0, INT32), dtype=BOOL)
        last = b.pointwise("select", behind, b.number(stages - 1, INT32), _plus(lo, slot, -1), dtype=INT32)
        given = body.params[1 + len(params) : -1]
        following = _ahead(lo, region, ahead, given, index, high, staged, last)
        for one in staged:
            lo.staged[one.load.result] = (one, slot)
        lo.ops(Region((), _remaining(region, [one.load for one in staged])))
        carried = lo.carried(region.yielded, params)
        wraps = b.pointwise("eq", slot, b.number(stages - 1, INT32), dtype=BOOL)
        turned = b.pointwise("select", wraps, b.number(0, INT32), _plus(lo, slot, 1), dtype=INT32)
        body.yielded = [*carried, *following, turned]
    operands = [low, high, step, *start, *held, b.number(0, INT32)]
    made = b.emit("for", operands, [v.type for v in body.params[1:]], [body])
    b.emit("copy_wait", [], [], pending=0)
    b.emit("barrier", [], [])  # the ring's bytes are free
    for value, result in zip(op.results, made.results, strict=False):
        lo.put(value, result, lo.layouts.of[value] if value.type.numel > 1 else None)


def _remaining(region: Region, staged: Sequence[Op]) -> list[Op]:
    """Operations of the loop other than the copies; tables that nothing else reads are not loaded again."""
    needed, kept = set(region.yielded), []
    for op in reversed(region.ops[:-1]):
        if op not in staged and (op.kind != "load" or op.attributes.get("volatile") or needed.intersection(op.results)):
            kept.append(op)
            needed.update(v for inner in (op, *(o for r in op.regions for o in r.walk())) for v in inner.operands)
    return kept[::-1]


def _times(lo: Lowering, x: Value, by: int) -> Value:
    return x if by == 1 else lo.b.pointwise("mul", x, lo.b.number(by, x.dtype))


def _plus(lo: Lowering, x: Value, by: int) -> Value:
    return lo.b.pointwise("add", x, lo.b.number(by, INT32))


def _for(lo: Lowering, op: Op) -> None:
    keep(lo, op)
    staged, ahead = staged_loads(lo, op)
    if staged:
        pipelined(lo, op, staged, ahead)
    else:
        _plain_for(lo, op)


_plain_for = HANDLERS["for"]
HANDLERS["for"] = _for
