"""Which loops of several products warpgroups can do (`wgmma`, sm_90a), where one product's result becomes an operand of another.

Attention is such a loop: scores are the product of a tile that the loop does not change and a tile of keys; what pointwise work
and sums along rows make of them is, from registers, the left operand of a product with a tile of values.

A turn has *first* products, whose operands are tiles of arrays alone, and *last* ones, whose left operands are made of the
results of the first.  Where nothing but the accumulators of the last depends on what they gave a turn before, they may be
multiplied while the next turn's pointwise work is done: such a loop *overlaps*.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from rushlight._codegen.blocks import Kernel, Op, Region
from rushlight._codegen.blocks import Value as TileValue
from rushlight._codegen.blocks.tiles import TILE_LOADS, TileAccess, WindowAccess
from rushlight._types.dtype import INT32

from ..choose import PURE
from ..layout import Layout
from .find_products import (
    GROUP,
    MOST_BOX_ROWS,
    MOST_COLUMNS,
    ROWS,
    GroupForm,
    TileSource,
    accumulators,
    form_for,
    goes_before,
    shares_of,
    source_of,
)

__all__ = ["Chain", "ChainLoop", "ChainProduct", "find_chain"]

_WITHIN = PURE | {"reduce", "load", "scan", "split"}  # what those that multiply may do in a turn
_RENUMBERED = ("reshape", "permute")
_MOST_REGISTERS = 184  # of a thread, for accumulators and left operands, so that a loop that overlaps does not spill


@dataclass(frozen=True)
class ChainProduct:
    """One product of a turn; `a` is None where the left operand comes from registers."""

    dot: Op
    form: GroupForm
    a: TileSource | None
    b: TileSource

    @property
    def is_last(self) -> bool:
        return self.a is None

    @property
    def columns(self) -> int:
        """Columns of one instruction."""
        return min(MOST_COLUMNS, self.b.outer)

    @property
    def depth(self) -> int:
        return self.b.depth

    def tiles(self) -> list[Op]:
        """The loads of its operands."""
        return [s.access.op for s in (self.a, self.b) if s is not None]

    @property
    def registers(self) -> int:
        """Of a thread, for 64 rows: accumulators, and the left operand where it is held, too."""
        held = self.depth * self.form.a.itemsize // 8 if self.is_last else 0
        return self.b.outer // 2 + held


@dataclass(frozen=True)
class ChainLoop:
    """A loop: its products in order, and the tiles that it loads, in the order in which they are needed; `height` is how many
    times 64 rows a warpgroup has.
    """

    loop: Op
    products: tuple[ChainProduct, ...]
    tiles: tuple[TileSource, ...]
    height: int

    @property
    def region(self) -> Region:
        return self.loop.regions[0]

    @cached_property
    def first(self) -> list[ChainProduct]:
        return [p for p in self.products if not p.is_last]

    @cached_property
    def last(self) -> list[ChainProduct]:
        return [p for p in self.products if p.is_last]

    def param(self, product: ChainProduct) -> TileValue | None:
        """The carried value that a product's result becomes."""
        for param, value in zip(self.region.params[1:], self.region.yielded, strict=True):
            if value is product.dot.result:
                return param
        return None

    @cached_property
    def others(self) -> list[Op]:
        """Operations besides products and what brings their tiles."""
        ops = self.region.ops[:-1]
        return [op for op in ops if op.kind != "dot" and not (len(op.results) == 1 and tile_of(op.result))]

    @cached_property
    def beside(self) -> list[Op]:
        """Operations that need no product of the turn, nor what waits for the last ones of the turn before."""
        made = [x.dot.result for x in self.products] + [p for x in self.last if (p := self.param(x)) is not None]
        later = set(_dependent(self.region, made))
        return [op for op in self.others if op not in later]

    @cached_property
    def behind(self) -> list[Op]:
        """Operations that depend on the results of the last products."""
        return _dependent(self.region, [x.dot.result for x in self.last])

    @cached_property
    def waiting(self) -> list[Op]:
        """Operations, besides products, that depend on what the last products gave a turn before."""
        return _dependent(self.region, [p for x in self.last if (p := self.param(x)) is not None])

    @cached_property
    def overlaps(self) -> bool:
        params = [self.param(x) for x in self.last]
        if not self.last or None in params:
            return False
        behind = {v for op in self.waiting for v in op.results} | {p for p in params if p is not None}
        results = {x.dot.result for x in self.last}
        others = [v for v in self.region.yielded if v not in results]
        read = [v for x in self.products for v in (x.dot.operands if not x.is_last else x.dot.operands[:1])]
        used = {v for op in self.region.ops[:-1] for v in op.operands}
        return not behind.intersection(others + read) and not results & used and self._fits()

    def _fits(self) -> bool:
        return sum(p.registers for p in self.products) * self.height <= _MOST_REGISTERS


@dataclass(frozen=True)
class Chain:
    """Loops one behind the other that share a ring, and tiles that they do not change."""

    loops: tuple[ChainLoop, ...]
    held: tuple[TileSource, ...]
    rows: int
    group_rows: tuple[int, ...]

    def layout(self, shape: tuple[int, ...]) -> Layout:
        """The layout of accumulators of a shape, and of left operands in registers: warpgroups share out rows."""
        return accumulators(shape, self.group_rows, (0,) * len(self.group_rows))

    def layouts(self) -> dict[Op, Layout]:
        """The layouts of all accumulators."""
        return {p.dot: self.layout(p.dot.result.shape) for loop in self.loops for p in loop.products}

    def loads(self) -> list[Op]:
        """The loads of tiles that bulk copies do."""
        return [s.access.op for s in (*self.held, *(t for loop in self.loops for t in loop.tiles))]

    def brought(self, kernel: Kernel) -> set[Op]:
        """Those loads, and what renumbers their tiles."""
        loads = self.loads()
        return {op for op in kernel.body.walk() if len(op.results) == 1 and tile_of(op.result) in loads}

    def set_up(self, kernel: Kernel) -> list[Op]:
        """Operations before the loops that move tiles, and what follows from them: those that multiply do them, and no others."""
        ops = kernel.body.ops[: kernel.body.ops.index(self.loops[0].loop)]
        brought, found, made = self.brought(kernel), list[Op](), set[TileValue]()
        for op in ops:
            moves = op.kind not in PURE and any(v.type.numel > 1 for v in op.results) and op not in brought
            if moves or made.intersection(op.operands):
                found.append(op)
                made.update(op.results)
        return found


def find_chain(kernel: Kernel) -> Chain | None:
    """The loops of a kernel that warpgroups can do; operations between them are arithmetic on what is known before."""
    loops: list[ChainLoop] = []
    held: dict[Op, TileSource] = {}
    made: set[TileValue] = set()
    for op in kernel.body.ops:
        if op.kind == "for":
            new = dict(held)
            found = _loop(kernel, op, new)
            if found is not None and (not loops or _alike(loops[0], found)):
                loops.append(found)
                held = new
                made.update(op.results)
                continue
        if loops and (op.kind not in PURE or made.intersection(op.operands)):
            break
        if not loops and not goes_before(op) and op.kind not in TILE_LOADS:
            return None
    products = [p for loop in loops for p in loop.products]
    if not loops or not all(_used_by(kernel.body, op, {p.dot for p in products}) for op in held):
        return None
    rows = products[0].dot.result.shape[0]
    shares = [shares_of(kernel.warps, *p.dot.result.shape) for p in products]
    if any(s is None or any(s[1]) for s in shares) or any(p.dot.result.shape[0] != rows for p in products):
        return None
    assert shares[0] is not None
    return Chain(tuple(loops), tuple(held.values()), rows, shares[0][0])


def _alike(one: ChainLoop, other: ChainLoop) -> bool:
    """Whether two loops may share a ring: they copy tiles of the same arrays in the same order."""

    def told(loop: ChainLoop) -> list[object]:
        return [(t.access.pointer, t.access.op.result.shape, t.order, t.boxes) for t in loop.tiles]

    firsts = [[t.access.op in {o for p in loop.first for o in p.tiles()} for t in loop.tiles] for loop in (one, other)]
    return told(one) == told(other) and firsts[0] == firsts[1]


def _loop(kernel: Kernel, loop: Op, held: dict[Op, TileSource]) -> ChainLoop | None:
    """A loop that qualifies; tiles that it reads and does not load go to `held`."""
    (body,) = loop.regions
    if (
        any(op.kind not in (*_WITHIN, *TILE_LOADS, "dot") for op in body.ops[:-1])
        or loop.operands[0].dtype is not INT32
    ):
        return None
    products: list[ChainProduct] = []
    new: dict[Op, TileSource] = {}
    for dot in body.ops:
        if dot.kind == "dot":
            made = _product(kernel, body, dot, new)
            if made is None:
                return None
            products.append(made)
    if not any(p.is_last for p in products):
        return None
    ordered = [
        s for group in (False, True) for p in products if p.is_last is group for s in (p.a, p.b) if s is not None
    ]
    tiles: dict[Op, TileSource] = {}
    for source in ordered:
        if source.access.op in body.ops:
            tiles.setdefault(source.access.op, source)
    height = max(1, products[0].dot.result.shape[0] * GROUP // (ROWS * kernel.warps))
    found = ChainLoop(loop, tuple(products), tuple(tiles.values()), height)
    loads = [op for op in body.ops if op.kind in TILE_LOADS]
    dots = {p.dot for p in products}
    if set(loads) != set(tiles) or not all(_used_by(body, op, dots) for op in loads):
        return None
    if not all(_follows_index(body, op) for op in loads) or not _in_two_steps(found):
        return None
    held.update(new)
    return found


def _product(kernel: Kernel, body: Region, dot: Op, held: dict[Op, TileSource]) -> ChainProduct | None:
    form = form_for(dot)
    if form is None or form.a.itemsize != 2 or len(dot.result.shape) != 2:
        return None
    left, right = (_tile(kernel, body, dot.operands[outer], outer, held) for outer in (0, 1))
    if right is None or (left is None and tile_of(dot.operands[0]) is not None):
        return None
    if any(s is not None and (s.depth % form.k or s.box_rows > MOST_BOX_ROWS) for s in (left, right)):
        return None
    return ChainProduct(dot, form, left, right)


def tile_of(x: TileValue) -> Op | None:
    """The load of a tile of an array, that is renumbered at most."""
    while x.op is not None and x.op.kind in _RENUMBERED:
        x = x.op.operands[0]
    return x.op if x.op is not None and x.op.kind in TILE_LOADS else None


def _tile(kernel: Kernel, body: Region, x: TileValue, outer: int, held: dict[Op, TileSource]) -> TileSource | None:
    """Where an operand comes from: a tile of the turn, or one that is loaded before all loops."""
    found = source_of(kernel, x, outer, body)
    if found is None:
        found = source_of(kernel, x, outer, kernel.body)
        if found is not None:
            held.setdefault(found.access.op, found)
    return found


def _used_by(region: Region, load: Op, dots: Container[Op]) -> bool:
    """Whether nothing but the operands of these products reads a tile."""
    values = {load.result}
    for op in region.walk():
        if values.intersection(op.operands):
            if op.kind in _RENUMBERED:
                values.update(op.results)
            elif op not in dots or op.operands[2] in values:
                return False
    return True


def _follows_index(body: Region, load: Op) -> bool:
    """Whether where a tile begins follows from the loop's index, and from what is known before the loop."""
    access = WindowAccess(load) if load.kind == "load_windows" else TileAccess(load)
    assert access.op is load
    inside = {v for op in body.ops for v in op.results}
    open_values = list(load.operands)
    while open_values:
        value = open_values.pop()
        if value in body.params[1:]:
            return False
        if value in inside:
            if value.op is None or value.op.kind not in PURE:
                return False
            open_values += value.op.operands
    return True


def _in_two_steps(loop: ChainLoop) -> bool:
    """Whether accumulators of the first products are known at a turn's begin, and no last product needs another."""
    body = loop.region
    made = {x.dot.result for x in loop.products}
    behind = {v for op in _dependent(body, made) for v in op.results} | made
    if any(x.dot.operands[2] in behind for x in loop.first):
        return False
    results = {x.dot.result for x in loop.last}
    after = {v for op in _dependent(body, results) for v in op.results} | results
    return not any(v in after for x in loop.last for v in (x.dot.operands[0], x.dot.operands[2]))


def _dependent(body: Region, values: Iterable[TileValue]) -> list[Op]:
    """Operations of a body, besides products, that depend on values without a product between."""
    known, found = set(values), []
    for op in body.ops[:-1]:
        inner: Sequence[TileValue] = [v for region in op.regions for o in region.walk() for v in o.operands]
        if op.kind != "dot" and known.intersection((*op.operands, *inner)):
            found.append(op)
            known.update(op.results)
    return found
