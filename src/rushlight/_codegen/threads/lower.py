"""From the block IR to the thread form: each operation on tiles becomes operations on the registers of a thread.

A tile may be wanted in several layouts.  `Lowering.value` gives it in one: as it was made, computed anew where it is
free, or moved between threads (`exchange`).  A tile of one element is a uniform value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight._codegen.blocks import Kernel, Op, Pointer, Region, Tile
from rushlight._codegen.blocks import Value as TileValue
from rushlight._codegen.blocks.passes import copied
from rushlight._codegen.blocks.tiles import TILE_LOADS, expand_tiles
from rushlight._types.dtype import BOOL, FLOAT64, INT32, INT64, DType

from .choose import PURE, RENUMBERED, SAME_SHAPE, Layouts, moved, required
from .exchange import exchange
from .form import Body, Registers, ThreadBuilder, ThreadKernel, Value
from .layout import Layout, bits_of
from .shared import place_shared
from .tile_maps import TileMap
from .warpgroups.find_chains import Chain, find_chain
from .warpgroups.find_products import GroupProduct, find_products

__all__ = ["MOST_SHARED_BYTES", "Lowering", "LoweringError", "lower"]

MOST_SHARED_BYTES = 232448  # of a block, on sm_90


class LoweringError(NotImplementedError):
    """A kernel that the thread form cannot express (yet), with the line of the program."""


def lower(kernel: Kernel, architecture: str = "sm_80") -> ThreadKernel:
    """The thread form of a block kernel: shared memory laid out, barriers placed.

    `architecture`, such as "sm_90a", decides which matrix instructions there are.  LoweringError for what has no form.
    """
    capability = capability_of(architecture)
    if not any(op.kind in TILE_LOADS for op in kernel.body.walk()):
        return _placed(Lowering(kernel, capability, {}, max(kernel.stages, 1)))
    given, grouped = kernel, architecture == "sm_90a"
    while True:
        kernel = copied(given)
        products = find_products(kernel) if grouped else {}
        chain = find_chain(kernel) if grouped and not products else None
        loads = [s.access.op for found in products.values() for s in (found.a, found.b)]
        expand_tiles(kernel.body, chain.loads() if chain else loads)
        for stages in range(max(kernel.stages, 1), 0, -1):
            made = _placed(Lowering(kernel, capability, products, stages, chain))
            # a ring that lives on from tile to tile leaves no bytes to what moves tiles
            if made.shared <= MOST_SHARED_BYTES or not (chain or any(p.walk for p in products.values())):
                return made
            if stages <= 2 and not chain:
                return made
        grouped = False  # what is kept beside the ring leaves no bytes to it


def _placed(lowering: Lowering) -> ThreadKernel:
    made = lowering.kernel()
    place_shared(made)
    return made


def capability_of(architecture: str) -> int:
    """The number of an architecture: 90 for "sm_90a"."""
    number = architecture.removeprefix("sm_").rstrip("af")
    if not architecture.startswith("sm_") or not number.isdigit():
        raise ValueError(f"an architecture is named like 'sm_90a', not {architecture!r}")
    return int(number)


def thread_dtype(tile: Tile) -> DType:
    """The dtype of a tile's registers."""
    return INT64 if isinstance(tile.element, Pointer) else tile.element


class Lowering:
    """The state of lowering one kernel.  `values` holds what is visible, one dictionary for each region."""

    def __init__(
        self,
        kernel: Kernel,
        capability: int,
        products: Mapping[Op, GroupProduct],
        stages: int,
        chain: Chain | None = None,
    ) -> None:
        self.source, self.products = kernel, products  # loops that warpgroups do: see `warpgroup`
        self.chain = chain  # loops of several products that they do: see `warpgroups.chains`
        # what needs nothing (more), or not yet
        self.skipped = set[Op]() if chain is None else {*chain.brought(kernel), *chain.set_up(kernel)}
        self.stages = stages  # most slots of their ring
        _check(kernel)
        accumulators = chain.layouts() if chain else {p.dot: p.layout() for p in products.values()}
        self.layouts = Layouts(kernel, capability, accumulators)
        self.maps: list[TileMap] = []
        self.copiers = 0
        self.warps = kernel.warps
        self.values: list[dict[tuple[TileValue, Layout | None], Value]] = [{}]
        self.depths = [1]  # for each of them how many bodies are open
        self.staged: dict[TileValue, tuple[Any, Value]] = {}  # tiles in shared memory: see `pipeline`
        self.anew: dict[TileValue, Value] = {}  # what is made in each layout that is asked for: see `made_anew`

    def kernel(self) -> ThreadKernel:
        kernel = self.source
        body = Body([Registers(thread_dtype(p.type), 1, True) for p in kernel.params])
        self.b = ThreadBuilder(body, kernel.warps)
        for param, value in zip(kernel.params, body.params, strict=True):
            self.values[0][param, None] = value
        self.ops(kernel.body)
        pointers = frozenset(i for i, p in enumerate(kernel.params) if isinstance(p.type.element, Pointer))
        made = ThreadKernel(kernel.name, body, pointers, kernel.divisible, kernel.warps, kernel.line)
        made.maps, made.copiers = self.maps, self.copiers
        return made

    def ops(self, region: Region) -> None:
        """Lower the operations of a region into the body that is open."""
        for op in region.ops:
            self.b.line = op.line or self.b.line
            self.op(op)

    def op(self, op: Op) -> None:
        if op in self.skipped:
            return
        if op.kind in PURE:
            value = op.result
            if op.kind in RENUMBERED and op.operands[0] in self.staged:
                return  # read in the layout that is asked for
            if value.type.numel > 1 and value in self.layouts.of:
                self.value(value, self.layouts.of[value])
            elif value.type.numel == 1:
                self.uniform(value)
            return
        handler = HANDLERS.get(op.kind)
        if handler is None:
            raise self.refused(op, f"the operation {op.kind!r} has no form for the threads of a GPU")
        handler(self, op)

    def refused(self, op: Op, what: str) -> LoweringError:
        where = f"{op.line[0]}:{op.line[1]}: " if op.line else ""
        return LoweringError(f"{where}kernel {self.source.name}: {what}")

    # ***** values *****

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values, and tiles in shared memory, that are seen within alone."""
        staged = dict(self.staged)
        self.values.append({})
        self.depths.append(len(self.b.bodies))
        try:
            yield
        finally:
            self.values.pop()
            self.depths.pop()
            self.staged = staged

    @contextmanager
    def _outside(self, value: TileValue, layout: Layout) -> Iterator[None]:
        """Where a tile was made, in a layout: before the loops that have begun since."""
        levels = next(n for n in range(len(self.values), 0, -1) if (value, layout) in self.values[n - 1])
        inner = self.values[levels:], self.depths[levels:]
        del self.values[levels:], self.depths[levels:]
        try:
            with self.b.outside(self.depths[-1]):
                yield
        finally:
            self.values += inner[0]
            self.depths += inner[1]

    def find(self, value: TileValue, layout: Layout | None) -> Value | None:
        for known in reversed(self.values):
            if (value, layout) in known:
                return known[value, layout]
        return None

    def put(self, value: TileValue, made: Value, layout: Layout | None = None) -> None:
        """Say what a tile is, in its layout; none for a uniform value."""
        self.values[-1][value, layout] = made

    def give(self, value: TileValue, made: Value, layout: Layout) -> None:
        """Say what the result of an operation is; one element becomes uniform, others go to the layout chosen for them."""
        if value.type.numel == 1:
            one = made if made.uniform else self.b.emit("uniform", [made], [Registers(made.dtype, 1, True)]).result
            self.put(value, one)
            return
        chosen = self.layouts.of.setdefault(value, layout)
        self.put(value, made, layout)
        if chosen != layout:
            self.put(value, exchange(self.b, made, layout, chosen), chosen)

    def uniform(self, value: TileValue) -> Value:
        """A tile of one element."""
        found = self.find(value, None)
        if found is None and value in self.anew:
            found = self._made_anew(value, None)
            self.put(value, found)
        if found is None:
            assert value.op is not None and value.op.kind in PURE, f"{value!r} was not lowered"
            found = self._one(value.op)
            self.put(value, found)
        return found

    def value(self, value: TileValue, layout: Layout) -> Value:
        """A tile in a layout (a uniform value where it has one element)."""
        if value.type.numel == 1:
            return self.uniform(value)
        found = self.find(value, layout)
        if found is None and value in self.anew:
            found = self._made_anew(value, layout)
            self.put(value, found, layout)
        if found is None and value in self.staged:
            one, slot = self.staged[value]
            found = one.read(self, slot, layout)
            self.put(value, found, layout)
        if found is None:
            made = self.layouts.of.get(value)
            if made is None or made == layout or self._renumbered(value, layout):
                assert value.op is not None and value.op.kind in PURE, f"{value!r} was not lowered"
                found = self._pure(value.op, layout)
            else:
                there = self.find(value, made)
                if there is None:
                    there = self.value(value, made)
                with self._outside(value, made):
                    found = exchange(self.b, there, made, layout)
                    self.put(value, found, layout)
                return found
            self.put(value, found, layout)
        return found

    def _renumbered(self, value: TileValue, layout: Layout) -> bool:
        """Whether a tile in a layout is best made of its operand: if anything moves, it is that, which is no larger."""
        op = value.op
        return op is not None and op.kind in RENUMBERED and required(op, layout) is not None

    def optional(self, values: Sequence[TileValue], layout: Layout) -> list[Value]:
        return [self.value(v, layout) for v in values]

    @contextmanager
    def made_anew(self, values: Iterable[TileValue], mask: Value) -> Iterator[None]:
        """Values that no thread gives to another: each loads and computes what it needs of them, where the mask is
        true.
        """
        before, self.anew = self.anew, dict.fromkeys(values, mask)
        try:
            yield
        finally:
            self.anew = before

    def _made_anew(self, value: TileValue, layout: Layout | None) -> Value:
        op, mask = value.op, self.anew[value]
        assert op is not None
        get = self.uniform if layout is None else lambda v: self.value(v, layout)
        if op.kind != "load":
            return self._one(op) if layout is None else self._pure(op, layout)
        address, *more = (get(v) for v in op.operands)
        both = self.b.both(more[0] if more else None, mask)
        assert both is not None
        size = 1 if layout is None else layout.size
        dtype = thread_dtype(value.type)
        kind = Registers(dtype, size, layout is None)
        operands = [address, both if layout is None else self.b.spread(both, size), *more[1:]]
        return self.b.emit("load", operands, [kind], dtype=dtype, vector=1).result

    # ***** operations without effects *****

    def _one(self, op: Op) -> Value:
        """An operation whose result has one element."""
        b, kind = self.b, op.kind
        if kind == "constant":
            return b.number(op.attributes["value"], op.attributes["dtype"])
        if kind in ("program_id", "num_programs"):
            return b.emit(kind, [], [Registers(INT32, 1, True)], axis=op.attributes["axis"]).result
        if kind == "arange":
            return b.number(op.attributes["start"], INT32)
        if kind == "choose":
            return self._chosen(op)
        operands = [self.uniform(v) for v in op.operands]
        return self._same(op, operands) if kind in SAME_SHAPE else operands[0]

    def _chosen(self, op: Op) -> Value:
        """One of parameters that stand at equal distances."""
        params = {p: i for i, p in enumerate(self.source.params)}
        places = [params.get(x, -1) for x in op.operands[1:]]
        step = places[1] - places[0] if len(places) > 1 else 1
        if places != [places[0] + k * step for k in range(len(places))] or places[0] < 0 or step < 1:
            raise self.refused(op, "choose is for parameters at equal distances")
        kind = Registers(thread_dtype(op.result.type), 1, True)
        return self.b.emit("argument", [self.uniform(op.operands[0])], [kind], first=places[0], step=step).result

    def _same(self, op: Op, operands: list[Value]) -> Value:
        """Lower a SAME_SHAPE operation to registers."""
        b, dtype = self.b, thread_dtype(op.results[0].type)
        if op.kind == "pointwise":
            given = op.attributes.get("params"), bool(op.attributes.get("approximate"))
            return b.pointwise(op.attributes["prim"], *operands, dtype=dtype, params=given[0], approximate=given[1])
        if op.kind == "multiply_high":
            result = Registers(dtype, max(x.count for x in operands), all(x.uniform for x in operands))
            return b.emit("multiply_high", operands, [result]).result
        if op.kind == "offset":
            element = op.operands[0].type.element
            assert isinstance(element, Pointer)
            by = b.wide(operands[1])
            if element.to.itemsize > 1:
                by = b.pointwise("mul", by, b.number(element.to.itemsize, INT64))
            return b.pointwise("add", operands[0], by)
        if op.kind == "address" and dtype is not INT64:
            return b.pointwise("bitcast", operands[0], dtype=dtype, params={"dtype": dtype})
        if op.kind == "pointer_cast" and operands[0].dtype is not INT64:
            return b.wide(operands[0])
        return operands[0]

    def _pure(self, op: Op, layout: Layout) -> Value:
        """The result, of several elements, made in a layout."""
        b, kind = self.b, op.kind
        if kind == "splat":
            return b.spread(self.uniform(op.operands[0]), layout.size)
        if kind == "arange":
            lanes, warps = layout.bases()
            index = b.index(layout.table(), lanes, warps)
            start = op.attributes["start"]
            return b.pointwise("add", index, b.number(start, INT32)) if start else index
        source = required(op, layout)
        if source is None:  # made as it can be, and moved
            own = moved(op, self.layouts.anchor(op.operands))
            if own is None:
                raise self.refused(op, f"{kind} of {op.operands[0].type!r} is not supported")
            return exchange(b, self._pure(op, own), own, layout)
        operands = [self.value(v, source) for v in op.operands]
        if kind in SAME_SHAPE:
            made = self._same(op, operands)
            return b.spread(made, layout.size)
        return self._arranged(op, operands, source, layout)

    def _arranged(self, op: Op, operands: list[Value], source: Layout, layout: Layout) -> Value:
        """Shape operations: which register of which operand each register of the result is."""
        kind, table = op.kind, layout.table()
        if op.operands[0].type.numel == 1 and kind == "broadcast":
            return self.b.spread(operands[0], layout.size)
        if kind in ("join", "cat"):
            bit = 0 if kind == "join" else bits_of(op.result.type.numel) - 1
            sources = []
            for element in table:
                rest = element >> 1 if kind == "join" else element & ~(1 << bit)
                sources.append((element >> bit & 1, source.register_of(rest)))
            return self.b.pick(_registers(self.b, operands, source.size), sources)
        if kind == "broadcast":
            kept = [i for i, b in enumerate(layout.registers) if before_register(op, layout, b)]
            sources = [(0, sum((r >> i & 1) << k for k, i in enumerate(kept))) for r in range(layout.size)]
            return self.b.pick(operands, sources)
        return operands[0]  # expand_dims, reshape, permute: the same registers

    # ***** control flow *****

    def carried(self, values: Sequence[TileValue], like: Sequence[TileValue]) -> list[Value]:
        """Values in the layouts that were chosen for `like`."""
        return [
            self.value(v, self.layouts.of[p]) if p.type.numel > 1 else self.uniform(v)
            for v, p in zip(values, like, strict=True)
        ]

    def body(
        self, region: Region, extra: Callable[[], None] | None = None, like: Sequence[TileValue] | None = None
    ) -> Body:
        """A region as a body; what it yields is in the layouts of `like`."""
        types = [self._type(p) for p in region.params]
        with self.b.body(types) as body, self.scope():
            for param, value in zip(region.params, body.params, strict=True):
                self.put(param, value, self.layouts.of[param] if param.type.numel > 1 else None)
            self.ops(Region((), region.ops[:-1]))
            body.yielded = self.carried(region.yielded, like if like is not None else region.yielded)
        return body

    def _type(self, value: TileValue) -> Registers:
        dtype = thread_dtype(value.type)
        return Registers(dtype, 1, True) if value.type.numel == 1 else Registers(dtype, self.layouts.of[value].size)

    def finish(self, op: Op, kind: str, operands: Sequence[Value], bodies: Sequence[Body]) -> None:
        """Emit control flow; its results are the operation's."""
        made = self.b.emit(kind, operands, [self._type(v) for v in op.results], bodies)
        for value, result in zip(op.results, made.results, strict=True):
            self.put(value, result, self.layouts.of[value] if value.type.numel > 1 else None)


def before_register(op: Op, layout: Layout, bit: int) -> bool:
    """Whether a bit of a broadcast's result counts elements of the operand."""
    low = 0
    for old, new in zip(reversed(op.operands[0].shape), reversed(op.result.shape), strict=True):
        width = bits_of(new)
        if low <= bit < low + width:
            return old == new
        low += width
    return True


def _registers(b: ThreadBuilder, operands: Sequence[Value], count: int) -> list[Value]:
    return [b.spread(x, count) for x in operands]


def _check(kernel: Kernel) -> None:
    """LoweringError for sizes that cannot be divided among threads."""
    if kernel.warps not in (1, 2, 4, 8, 16, 32):
        raise LoweringError(f"kernel {kernel.name}: {kernel.warps} warps; 1, 2, 4, 8, 16 and 32 can be")
    for op in kernel.body.walk():
        for value in op.results:
            for size in value.shape:
                if size & (size - 1):
                    where = f"{op.line[0]}:{op.line[1]}: " if op.line else ""
                    raise LoweringError(
                        f"{where}kernel {kernel.name}: {op.kind} gives {value.type!r}; sizes of tiles on a GPU are powers of two"
                    )


# ***** handlers of control flow and effects that need no file of their own *****


def _for(lo: Lowering, op: Op) -> None:
    (region,) = op.regions
    params = region.params[1:]
    bounds = [lo.uniform(v) for v in op.operands[:3]]
    start = lo.carried(op.operands[3:], params)
    lo.finish(op, "for", [*bounds, *start], [lo.body(region, like=params)])


def _while(lo: Lowering, op: Op) -> None:
    before, after = op.regions
    start = lo.carried(op.operands, before.params)
    first = lo.body(before, like=[before.yielded[0], *after.params])
    lo.finish(op, "while", start, [first, lo.body(after, like=before.params)])


def _if(lo: Lowering, op: Op) -> None:
    condition = lo.uniform(op.operands[0])
    lo.finish(op, "if", [condition], [lo.body(region, like=op.results) for region in op.regions])


def _assert(lo: Lowering, op: Op) -> None:
    value = op.operands[0]
    layout = lo.layouts.anchor([value]) if value.type.numel > 1 else None
    made = lo.value(value, layout) if layout is not None else lo.uniform(value)
    lo.b.emit("assert", [made], [], message=op.attributes.get("message", ""))


def _print(lo: Lowering, op: Op) -> None:
    """Each element by the first thread that holds it: its indices, then the number as int64 or float64."""
    for n, value in enumerate(op.operands):
        operand = f" (operand {n})" if len(op.operands) > 1 else ""
        _print_tile(lo, value, op.attributes.get("prefix", "") + operand, bool(op.attributes.get("hex")))
    if not op.operands:
        mask = lo.b.only_where_zero(31, lo.warps - 1)
        assert mask is not None
        lo.b.emit("print", [mask], [], prefix=op.attributes.get("prefix", ""), form="")


def _print_tile(lo: Lowering, value: TileValue, prefix: str, in_hex: bool) -> None:
    b, element = lo.b, value.type.element
    layout = lo.layouts.anchor([value]) if value.type.numel > 1 else Layout((), (-1,) * 5, (-1,) * bits_of(lo.warps))
    made = b.spread(lo.value(value, layout), layout.size)
    real = not isinstance(element, Pointer) and element.kind == "f"
    wide = FLOAT64 if real else INT64
    if made.dtype is not wide:
        made = b.pointwise("convert", made, dtype=wide, params={"dtype": wide})
    lanes, warps = layout.bases()
    flat = b.index(layout.table(), lanes, warps)
    places, low = [], bits_of(value.type.numel)
    for size in value.shape:
        low -= bits_of(size)
        part = b.pointwise("shift_right", flat, b.number(low, INT32))
        places.append(b.pointwise("bitwise_and", part, b.number(size - 1, INT32)))
    mask = b.only_where_zero(*layout.idle())
    every = b.spread(b.number(True, BOOL) if mask is None else mask, layout.size)
    form = "f" if real else "x" if in_hex or isinstance(element, Pointer) else "d"
    b.emit("print", [every, *places, made], [], prefix=prefix, form=form)


def _barrier(lo: Lowering, op: Op) -> None:
    lo.b.emit("barrier", [], [])


def _nothing(lo: Lowering, op: Op) -> None:
    """`assume`, and the end of a kernel."""


def _split(lo: Lowering, op: Op) -> None:
    (x,) = op.operands
    layout = lo.layouts.anchor([x])
    if 0 not in layout.registers:  # the halves of an element must lie in one thread
        layout = _with_register(layout, 0)
    made = lo.value(x, layout)
    place = layout.registers.index(0)
    half = required_half(layout)
    for k, result in enumerate(op.results):
        chosen = [(0, r) for r in range(layout.size) if r >> place & 1 == k]
        lo.give(result, lo.b.pick([made], chosen), half)


def required_half(layout: Layout) -> Layout:
    """The layout of what `split` gives."""
    return layout.mapped([-1, *range(64)])


def _with_register(layout: Layout, bit: int) -> Layout:
    """The layout with one bit moved to the registers, the first of which takes its place where there is one."""
    swap = layout.registers[0] if layout.registers else -1

    def changed(bits: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(swap if b == bit else b for b in bits)

    return Layout((bit, *layout.registers[1:]), changed(layout.lanes), changed(layout.warps))


Handler = Callable[[Lowering, Op], None]
HANDLERS: dict[str, Handler] = {
    "for": _for, "while": _while, "if": _if, "assert": _assert, "print": _print, "barrier": _barrier, "assume": _nothing, "yield": _nothing,
    "split": _split,
}  # fmt: skip
