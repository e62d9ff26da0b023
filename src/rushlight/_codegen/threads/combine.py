"""Reductions and scans: within the registers of a thread, then between lanes by shuffles, then between warps through
shared memory, always in the same order.

Where the order of operands makes no difference, registers come first, because they need no exchange.  Other
combinations take neighbours first (bits of an element's number from low to high), so that only what lies side by side is
combined, the smaller indices on the left.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._codegen.blocks import Op
from rushlight._codegen.blocks import Value as TileValue
from rushlight._types.dtype import BOOL

from .choose import PURE, commutes
from .exchange import exchange
from .form import Value
from .layout import NONE, Layout, axis_bits, without_bits
from .lower import HANDLERS, Lowering

__all__: list[str] = []


class _Combiner:
    """The region of a reduction or scan, applied to registers of equal counts."""

    def __init__(self, lo: Lowering, op: Op) -> None:
        self.lo, self.op, (self.region,) = lo, op, op.regions
        for inner in self.region.ops[:-1]:
            if inner.kind not in PURE:
                raise lo.refused(op, f"{inner.kind!r} within the combination of a {op.kind}; arithmetic can be there")

    def __call__(self, left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        known: dict[TileValue, Value] = dict(zip(self.region.params, [*left, *right], strict=True))
        lo = self.lo
        for op in self.region.ops[:-1]:
            operands = [known[v] if v in known else lo.uniform(v) for v in op.operands]
            known[op.result] = lo._same(op, operands) if operands else lo._one(op)
        count = left[0].count
        return [lo.b.spread(known[v] if v in known else lo.uniform(v), count) for v in self.region.yielded]


def _swapped(
    lo: Lowering, combine: _Combiner, mine: list[Value], other: list[Value], first: Value | None
) -> list[Value]:
    """Mine and the other's in order: mine is left where `first` (one register) says so; any order where it is None."""
    if first is None:
        return combine(mine, other)
    first = lo.b.spread(first, mine[0].count)
    left = [lo.b.pointwise("select", first, m, o, dtype=m.dtype) for m, o in zip(mine, other, strict=True)]
    right = [lo.b.pointwise("select", first, o, m, dtype=m.dtype) for m, o in zip(mine, other, strict=True)]
    return combine(left, right)


def _shuffled(lo: Lowering, xs: Sequence[Value], lane_bit: int) -> list[Value]:
    return [lo.b.emit("shuffle", [x], [x.type], xor=1 << lane_bit).result for x in xs]


def _warp_zero(lo: Lowering, bit: int) -> Value:
    found = lo.b.only_where_zero(0, 1 << bit)
    assert found is not None
    return found


def _lane_zero(lo: Lowering, bit: int) -> Value:
    found = lo.b.only_where_zero(1 << bit, 0)
    assert found is not None
    return found


class _Held:
    """Tiles in a layout from which bits go one by one."""

    def __init__(self, lo: Lowering, xs: list[Value], layout: Layout) -> None:
        self.lo, self.xs, self.layout = lo, xs, layout

    def halves(self, place: int) -> tuple[list[Value], list[Value]]:
        """The registers whose bit at `place` is 0, and those where it is 1."""
        count = self.xs[0].count
        low, high = ([(0, r) for r in range(count) if r >> place & 1 == k] for k in (0, 1))
        return [self.lo.b.pick([x], low) for x in self.xs], [self.lo.b.pick([x], high) for x in self.xs]

    def registers(self, bit: int, combine: _Combiner) -> None:
        place = self.layout.registers.index(bit)
        self.xs = combine(*self.halves(place))
        kept = tuple(b for b in self.layout.registers if b != bit)
        self.layout = Layout(kept, self.layout.lanes, self.layout.warps)

    def lanes(self, bit: int, combine: _Combiner, ordered: bool) -> None:
        place = self.layout.lanes.index(bit)
        first = _lane_zero(self.lo, place) if ordered else None
        self.xs = _swapped(self.lo, combine, self.xs, _shuffled(self.lo, self.xs, place), first)
        lanes = tuple(NONE if b == bit else b for b in self.layout.lanes)
        self.layout = Layout(self.layout.registers, lanes, self.layout.warps)

    def warps(self, bits: Sequence[int], combine: _Combiner) -> None:
        """The warps' bits among `bits`, all at once, through shared memory; every warp reads all parts."""
        lay = self.layout
        gone = [b for b in lay.warps if b in bits]
        aside = Layout((*lay.registers, *gone), lay.lanes, tuple(NONE if b in bits else b for b in lay.warps))
        self.xs = [self._spread(x, aside) for x in self.xs]
        self.layout = aside
        for bit in sorted(gone):
            self.registers(bit, combine)

    def _spread(self, x: Value, target: Layout) -> Value:
        return exchange(self.lo.b, x, self.layout, target)


def _reduce(lo: Lowering, op: Op) -> None:
    layout = lo.layouts.reduced(op)
    bits = axis_bits(op.operands[0].shape, op.attributes["axis"])
    combine = _Combiner(lo, op)
    xs = [lo.b.spread(lo.value(v, layout), layout.size) for v in op.operands]
    held = _Held(lo, xs, layout)
    if commutes(op.regions[0]):
        for bit in [b for b in bits if b in layout.registers]:
            held.registers(bit, combine)
        for bit in [b for b in bits if b in layout.lanes]:
            held.lanes(bit, combine, ordered=False)
        if any(b in bits for b in layout.warps):
            held.warps(bits, combine)
    else:
        _in_order(held, bits, combine)
    result = without_bits(held.layout, bits)
    for value, x in zip(op.results, held.xs, strict=True):
        lo.give(value, x, result)


def _in_order(held: _Held, bits: range, combine: _Combiner) -> None:
    for bit in bits:
        if bit in held.layout.registers:
            held.registers(bit, combine)
        elif bit in held.layout.lanes:
            held.lanes(bit, combine, ordered=True)
        else:
            held.warps([bit], combine)


# ***** scans *****


def _scan(lo: Lowering, op: Op) -> None:
    """Prefixes of runs of 1, 2, 4, ... neighbours: the upper half of a run adds the total of the lower half."""
    layout = lo.layouts.anchor(op.operands)
    bits = axis_bits(op.operands[0].shape, op.attributes["axis"])
    reverse = bool(op.attributes.get("reverse"))
    combine = _Combiner(lo, op)
    prefix = [lo.b.spread(lo.value(v, layout), layout.size) for v in op.operands]
    total = list(prefix)
    for bit in bits:
        prefix, total = _scan_step(lo, layout, combine, prefix, total, bit, reverse)
    for value, x in zip(op.results, prefix, strict=True):
        lo.give(value, x, layout)


def _scan_step(
    lo: Lowering, layout: Layout, combine: _Combiner, prefix: list[Value], total: list[Value], bit: int, reverse: bool
) -> tuple[list[Value], list[Value]]:
    """Prefixes and totals of runs twice as long; `total` is that of a thread's own run, for each register."""
    other, upper = _partner(lo, layout, total, bit)
    if reverse:
        upper = lo.b.pointwise("bitwise_xor", upper, lo.b.number(True, BOOL))
    with_other = combine(other, prefix)  # from the end, what lies behind stands on the left
    prefix = [lo.b.pointwise("select", upper, w, p, dtype=p.dtype) for w, p in zip(with_other, prefix, strict=True)]
    is_low = lo.b.pointwise("bitwise_xor", upper, lo.b.number(True, BOOL))  # this run's total stands on the left
    left = [lo.b.pointwise("select", is_low, t, o, dtype=t.dtype) for t, o in zip(total, other, strict=True)]
    right = [lo.b.pointwise("select", is_low, o, t, dtype=t.dtype) for t, o in zip(total, other, strict=True)]
    return prefix, combine(left, right)


def _partner(lo: Lowering, layout: Layout, total: list[Value], bit: int) -> tuple[list[Value], Value]:
    """The totals of the neighbouring runs, and whether this run is the upper one (a register for each)."""
    count = layout.size
    if bit in layout.registers:
        place = layout.registers.index(bit)
        other = [lo.b.pick([t], [(0, r ^ 1 << place) for r in range(count)]) for t in total]
    elif bit in layout.lanes:
        other = _shuffled(lo, total, layout.lanes.index(bit))
    else:
        # the partner warp's totals: both halves as registers, of which the other one is chosen
        place = layout.warps.index(bit)
        warps = tuple(NONE if b == bit else b for b in layout.warps)
        wide = Layout((*layout.registers, bit), layout.lanes, warps)
        other = []
        zero = lo.b.spread(_warp_zero(lo, place), count)
        for t in total:
            both = exchange(lo.b, t, layout, wide)
            low, high = (lo.b.pick([both], [(0, r + k * count) for r in range(count)]) for k in (0, 1))
            other.append(lo.b.pointwise("select", zero, high, low, dtype=t.dtype))
    return other, _upper(lo, layout, bit)


def _upper(lo: Lowering, layout: Layout, bit: int) -> Value:
    """Whether an element's number has a bit set: a register for each."""
    from_registers = [0] * layout.size
    if bit in layout.registers:
        place = layout.registers.index(bit)
        from_registers = [r >> place & 1 for r in range(layout.size)]
    lanes, warps = ([int(b == bit) for b in side] for side in (layout.lanes, layout.warps))
    index = lo.b.index(from_registers, lanes, warps)
    return lo.b.pointwise("ne", index, lo.b.number(0, index.dtype), dtype=BOOL)


HANDLERS.update({"reduce": _reduce, "scan": _scan})
