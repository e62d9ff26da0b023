"""Reductions, scans and transposed tiles as LLVM text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._codegen.llvm_memory import row_align
from rushlight._codegen.llvm_scope import FunctionEmitter, Scope, Value, align_of
from rushlight._codegen.llvm_values import Values
from rushlight._codegen.loops import BLOCK, Reduce, Scan, Tile, blocked
from rushlight._codegen.scalar import Emitter, Val, mem_type, reg_type
from rushlight._schedule.expressions import Expr, Item, Store, identity
from rushlight._schedule.indexing import Ix, Var
from rushlight._types.dtype import DType

__all__ = ["Reductions"]

INT64_MAX = (1 << 63) - 1
INT32_MAX = (1 << 31) - 1


class Reductions:
    """Writes loops that carry values, and loops over tiles; `statements` writes the statements inside them."""

    __slots__ = ("fn", "indices", "statements", "values")

    def __init__(self, fn: FunctionEmitter, values: Values, statements: Callable[[Sequence[Any]], None]) -> None:
        self.fn, self.values, self.statements = fn, values, statements
        self.indices = values.indices

    def nested(self, body: Sequence[Any]) -> list[str]:
        """Statements inside a loop that carries nothing."""
        self.statements(body)
        return []

    def reduce(self, s: Reduce) -> None:
        """Write a reduction and bind its results."""
        section = self.fn.section
        assert section is not None
        if s.lanes and section.width > 1:
            widths = [section.width * max(section.unroll, 1), section.width]
        else:
            widths = [self.fn.lanes.width if self.fn.lanes is not None else 1]
        own = [item for item in s.items if item.twin is None]
        firsts = {item: self.first_position(s, item) for item in own if item.rising}
        accs = [Accumulator(self.values, item, w, first=firsts.get(item, "")) for w in widths for item in own]
        names = [n for acc in accs for n in acc.start()]
        finals = self.reduce_over(s, 0, accs, names)
        self.finish(s, own, accs, finals)
        for item in s.items:
            if item.twin is not None:
                value, width = self.fn.results[item.twin]
                self.fn.results[item], self.fn.depths[item] = (value[1], width), self.fn.depths[item.twin]

    def first_position(self, s: Reduce, item: Item) -> str:
        """The position of the first element that a reduction meets, as i32."""
        assert item.position is not None
        ix = item.position.value
        inside = [(a, c) for a, c in ix.terms if a in s.loops]
        total = self.indices.ix(Ix(tuple(t for t in ix.terms if t not in inside), ix.const))
        for var, c in inside:
            lo, here = self.fn.range_of(var)[0], self.fn.here()
            if lo != "0":
                step = lo if c == 1 else self.fn.scalar(f"mul nsw i64 {lo}, {self.fn.slot(c)}", "i64", here)
                total = self.fn.scalar(f"add nsw i64 {total}, {step}", "i64", here)
        return self.fn.scalar(f"trunc i64 {total} to i32", "i32", self.fn.here())

    def finish(self, s: Reduce, items: Sequence[Item], accs: list[Accumulator], names: list[str]) -> None:
        """Bind the results of a reduction, with its lanes combined in a fixed order."""
        parts = deal(accs, names)
        here, count = self.fn.here(), len(items)
        horizontal = s.lanes and len(accs) > count
        for k, item in enumerate(items):
            main = accs[k]
            value = main.wrap(parts[k])
            if horizontal:
                narrow = accs[count + k]
                value = main.narrow(here, value, narrow.width)
                value = narrow.merge(here, narrow.wrap(parts[count + k]), value)
                value = narrow.narrow(here, value, 1)
            width = 1 if horizontal else main.width
            if item.short:
                position = value[1]
                value = (value[0], self.fn.write(here, lambda: position.to("i64")))  # noqa: B023
            self.fn.results[item] = ((value[1], value[0]) if main.positioned else main.unpack(value), width)
            self.fn.depths[item] = here

    def reduce_over(self, s: Reduce, level: int, accs: list[Accumulator], names: list[str]) -> list[str]:
        """The loops of a reduction from `level` inward.  Takes and returns the names of the accumulators' values."""
        if level == len(s.loops):
            return self.accumulate(s, accs, names)
        var = s.loops[level]
        lo, hi = self.fn.range_of(var)
        if s.lanes and level == len(s.loops) - 1 and len(accs) > sum(i.twin is None for i in s.items):
            return self.reduce_lanes(s, var, lo, hi, accs, names)

        def run(lo: str, hi: str, names: list[str]) -> list[str]:
            types = [t for acc in accs for t in acc.types]
            return self.fn.loop(
                var,
                lo,
                hi,
                "1",
                list(zip(types, names, strict=True)),
                lambda iv, carried: self.reduce_over(s, level + 1, accs, carried),
            )

        if not blocked(var, s):
            return run(lo, hi, names)
        return self.in_blocks(lo, hi, BLOCK, accs, names, run)

    def in_blocks(
        self,
        lo: str,
        hi: str,
        block: int,
        accs: list[Accumulator],
        names: list[str],
        run: Callable[[str, str, list[str]], list[str]],
    ) -> list[str]:
        """Reduce blocks, each from the neutral element, and combine them: fewer rounding errors accumulate."""
        types = [t for acc in accs for t in acc.types]

        def one(iv: str, carried: list[str]) -> list[str]:
            here = self.fn.here()
            stop = self.fn.smaller(self.fn.scalar(f"add i64 {iv}, {block}", "i64", here), hi)
            start = [n for acc in accs for n in acc.start()]
            partial = run(iv, stop, start)
            result: list[str] = []
            for acc, old, new in zip(accs, deal(accs, carried), deal(accs, partial), strict=True):
                result.extend(str(v) for v in acc.merge(here, acc.wrap(old), acc.wrap(new)))
            return result

        return self.fn.loop(None, lo, hi, str(block), list(zip(types, names, strict=True)), one)

    def reduce_lanes(
        self, s: Reduce, var: Var, lo: str, hi: str, accs: list[Accumulator], names: list[str]
    ) -> list[str]:
        count = sum(i.twin is None for i in s.items)
        mains, tails = accs[:count], accs[count:]
        cut = sum(len(a.types) for a in mains)
        main_names, tail_names = names[:cut], names[cut:]
        wide = mains[0].width
        if self.fn.section is not None and self.fn.section.unroll:
            middle = self.fn.main_end(lo, hi, wide)

            def run(lo: str, hi: str, names: list[str]) -> list[str]:
                types = [t for acc in mains for t in acc.types]
                carries = list(zip(types, names, strict=True))
                return self.fn.over_lanes(
                    var, lo, hi, wide, False, carries, lambda carried: self.accumulate(s, mains, carried)
                )

            if blocked(var, s):
                main_names = self.in_blocks(lo, middle, BLOCK * wide, mains, main_names, run)
            else:
                main_names = run(lo, middle, main_names)
        else:
            middle = lo
        types = [t for acc in tails for t in acc.types]
        carries = list(zip(types, tail_names, strict=True))
        tail_names = self.fn.over_lanes(
            var, middle, hi, tails[0].width, True, carries, lambda carried: self.accumulate(s, tails, carried)
        )
        return [*main_names, *tail_names]

    def accumulate(self, s: Reduce, accs: list[Accumulator], names: list[str]) -> list[str]:
        """One step: combine each item's value with its accumulator."""
        result: list[str] = []
        here = self.fn.here()
        for acc, old in zip(accs, deal(accs, names), strict=True):
            new = acc.incoming(here)
            result.extend(str(v) for v in acc.join(here, acc.wrap(old), new))
        self.statements(s.stores)
        return result

    def scan(self, s: Scan) -> None:
        """Write a scan, in tiles where its loads are transposed."""
        width = self.fn.lanes.width if self.fn.lanes is not None else 1
        accs = [Accumulator(self.values, item, width, scan=True) for item in s.items]
        types = [t for a in accs for t in a.types]
        names = [n for a in accs for n in a.start()]
        lo, hi = self.fn.range_of(s.var)
        if s.transposed and self.fn.lanes is not None and width > 1 and self.fn.lanes.mask is None:
            middle = self.fn.main_end(lo, hi, width)
            names = self.fn.loop(
                None, lo, middle, str(width), list(zip(types, names, strict=True)),
                lambda iv, carried: self.scan_tile(s, accs, self.from_end(s, hi, iv, width), carried),
            )  # fmt: skip
            lo = middle

        def body(iv: str, carried: list[str]) -> list[str]:
            if s.reverse:
                self.fn.names[s.var] = self.from_end(s, hi, iv, 1)
            return self.scan_step(accs, carried, lambda: self.statements(s.body))

        self.fn.loop(s.var, lo, hi, "1", list(zip(types, names, strict=True)), body)

    def from_end(self, s: Scan, hi: str, iv: str, count: int) -> str:
        """The position of the next `count` steps; a scan in reverse counts from the end."""
        if not s.reverse:
            return iv
        last = self.fn.scalar(f"sub i64 {hi}, {count}", "i64", self.fn.here())
        return self.fn.scalar(f"sub i64 {last}, {iv}", "i64", self.fn.here())

    def scan_step(self, accs: list[Accumulator], carried: list[str], rest: Callable[[], None]) -> list[str]:
        """One step of a scan, and the statements that use its results."""
        here = self.fn.here()
        result: list[str] = []
        for acc, old in zip(accs, deal(accs, carried), strict=True):
            value = acc.follow(here, acc.wrap(old), acc.incoming(here))
            self.fn.results[acc.item] = ((value[1], value[0]) if acc.positioned else acc.unpack(value), acc.width)
            self.fn.depths[acc.item] = here
            result.extend(str(v) for v in value)
        rest()
        return result

    def scan_tile(self, s: Scan, accs: list[Accumulator], base: str, carried: list[str]) -> list[str]:
        """As many steps as there are lanes: a tile is loaded by rows and transposed, and results are transposed and
        stored by rows.
        """
        assert self.fn.lanes is not None
        here, width, lane = self.fn.here(), self.fn.lanes.width, self.fn.lanes.var
        parent = self.fn.scopes[-1]
        self.fn.names[s.var], self.fn.depths[s.var] = base, here
        columns = {load: self.transposed_columns(load, lane, width) for load in s.transposed}
        results: dict[Store, list[Val]] = {store: [] for store in s.body}
        for k in range(width):
            at = width - 1 - k if s.reverse else k
            scope = Scope(parent.label)
            self.fn.scopes.append(scope)
            self.fn.names[s.var] = self.fn.scalar(f"add nsw i64 {base}, {at}", "i64", here + 1)
            self.fn.depths[s.var] = here + 1
            for load, values in columns.items():

                def read(value: Val = values[at], dtype: DType = load.dtype) -> Any:
                    return self.fn.emitter(width).from_memory(value, dtype)

                scope.memo[load] = self.fn.write(here + 1, read), width
            carried = self.scan_step(accs, carried, lambda: self.keep_results(results, width))
            self.fn.scopes.pop()
            parent.lines.extend(scope.lines)
            parent.label = scope.label
        self.fn.names[s.var], self.fn.depths[s.var] = base, here
        for store, values in results.items():
            self.store_transposed(store, values[::-1] if s.reverse else values, lane)
        del self.fn.names[s.var], self.fn.depths[s.var]
        return carried

    def keep_results(self, results: dict[Store, list[Val]], width: int) -> None:
        """Collect the values that this step would store."""
        em = self.fn.emitter(width)
        for store, values in results.items():
            value = self.values.wide(store.value, width)
            values.append(self.fn.write(self.fn.here(), lambda: em.to_memory(value, store.buffer.dtype)))  # noqa: B023

    def store_transposed(self, store: Store, values: list[Val], lane: Var) -> None:
        """Store a tile of results row by row."""
        here, t = self.fn.here(), mem_type(store.buffer.dtype)
        pointer, step = self.indices.pointer(store.buffer, store.ix), self.fn.slot(dict(store.ix.terms)[lane])
        em = self.fn.emitter(len(values))
        for k, row in enumerate(self.fn.write(here, lambda: transpose(em, values))):
            if k:
                pointer = self.fn.scalar(f"getelementptr {t}, ptr {pointer}, i64 {step}", "ptr", here)
            self.fn.scopes[here].lines.append(
                f"  store {row.vt} {row}, ptr {pointer}, align {align_of(store.buffer.dtype)}"
            )

    def transposed_columns(self, load: Expr, lane: Var, width: int) -> list[Val]:
        """The columns of a square tile that is loaded row by row."""
        buffer, ix = load.value
        here = self.fn.here()
        em, t = self.fn.emitter(width), mem_type(buffer.dtype)
        vt = em.vt(t)
        pointer, step = self.indices.pointer(buffer, ix), self.fn.slot(dict(ix.terms)[lane])
        rows = []
        for k in range(width):
            if k:
                pointer = self.fn.scalar(f"getelementptr {t}, ptr {pointer}, i64 {step}", "ptr", here)
            name = em.fresh()
            self.fn.scopes[here].lines.append(f"  {name} = load {vt}, ptr {pointer}, align {align_of(buffer.dtype)}")
            rows.append(em.val(name, t))
        return self.fn.write(here, lambda: transpose(em, rows))

    def tile(self, s: Tile) -> None:
        """Write the loops of a tile statement: whole tiles in blocks of four, then the edges."""
        assert self.fn.section is not None
        width = self.fn.section.width
        lo, hi = self.fn.range_of(s.across)
        left, right = self.fn.range_of(s.lane)
        bottom, middle = self.fn.main_end(lo, hi, width), self.fn.main_end(left, right, width)

        def block(iv: str, _: list[str]) -> list[str]:
            end = self.fn.smaller(self.fn.scalar(f"add i64 {iv}, {4 * width}", "i64", self.fn.here()), bottom)
            return self.fn.over_lanes(
                s.lane, left, middle, width, False, (), lambda c: self.tiles_down(s, iv, end, width)
            )

        self.fn.loop(None, lo, bottom, str(4 * width), (), block)
        self.fn.loop(s.across, lo, bottom, "1", (), lambda iv, c: self.edge(s, middle, right, width))
        self.fn.loop(s.across, bottom, hi, "1", (), lambda iv, c: self.edge(s, left, right, width))

    def edge(self, s: Tile, left: str, right: str, width: int) -> list[str]:
        """The elements that do not fill a tile, by masked lanes."""
        return self.fn.over_lanes(s.lane, left, right, width, True, (), lambda c: self.nested(s.body))

    def tiles_down(self, s: Tile, top: str, bottom: str, width: int) -> list[str]:
        """Tiles one below the other."""

        def tile(iv: str, _: list[str]) -> list[str]:
            here = self.fn.here()
            self.fn.names[s.across], self.fn.depths[s.across] = iv, here
            for load in s.transposed:
                self.fn.tiles[load] = (self.transpose_tile(load, s.lane, width), iv)
            del self.fn.names[s.across], self.fn.depths[s.across]
            end = self.fn.scalar(f"add i64 {iv}, {width}", "i64", here)
            self.fn.loop(s.across, iv, end, "1", (), lambda row, c: self.nested(s.body))
            for load in s.transposed:
                del self.fn.tiles[load]
            return []

        return self.fn.loop(None, top, bottom, str(width), (), tile)

    def transpose_tile(self, load: Expr, lane: Var, width: int) -> str:
        """Load a tile row by row and store its transpose on the stack.  Returns its address."""
        here, vt = self.fn.here(), self.fn.emitter(width).vt(mem_type(load.value[0].dtype))
        place, align = f"%tile{len(self.fn.allocas)}", row_align(load.value[0].dtype, width)
        self.fn.allocas.append(f"  {place} = alloca [{width} x {vt}], align 64")
        for k, row in enumerate(self.transposed_columns(load, lane, width)):
            self.fn.scopes[here].lines.append(f"  {place}.{k}.{here} = getelementptr {vt}, ptr {place}, i64 {k}")
            self.fn.scopes[here].lines.append(f"  store {vt} {row}, ptr {place}.{k}.{here}, align {align}")
        return place


class Accumulator:
    """The carried values of one item at one width: a value, the two parts of a complex value, or a value and its
    position.
    """

    __slots__ = ("dtype", "first", "item", "position_type", "fn", "positioned", "types", "values", "width")

    def __init__(self, values: Values, item: Item, width: int, scan: bool = False, first: str = "") -> None:
        self.fn, self.values, self.item, self.width, self.first = values.fn, values, item, width, first
        self.position_type = "i32" if item.short and not scan else "i64"
        self.dtype = item.value.dtype
        self.positioned = item.position is not None
        em = self.fn.emitter(width)
        vt = em.vt(reg_type(self.dtype))
        self.types = (
            [vt, em.vt(self.position_type)] if self.positioned else [vt, vt] if self.dtype.kind == "c" else [vt]
        )

    def start(self) -> list[str]:
        """The neutral element of the operation."""
        em = self.fn.emitter(self.width)
        first = em.number(identity(self.item.op, self.dtype), self.dtype)
        parts = list(first) if isinstance(first, tuple) else [first]
        if self.first:  # where no element is better than the neutral one, all are equal and the first is the result
            position = self.fn.write(self.fn.here(), lambda: em.splat(self.first, "i32"))
            parts.append(position)
        elif self.positioned:
            last = INT64_MAX if self.position_type == "i64" else INT32_MAX
            parts.append(em.const(self.position_type, -1 if self.item.op.startswith("last") else last))
        return [str(p) for p in parts]

    def wrap(self, names: Sequence[str]) -> tuple[Val, ...]:
        em = self.fn.emitter(self.width)
        t = reg_type(self.dtype)
        if self.positioned:
            return em.val(names[0], t), em.val(names[1], self.position_type)
        return tuple(em.val(n, t) for n in names)

    def unpack(self, value: Sequence[Val]) -> Value:
        return tuple(value) if self.dtype.kind == "c" else value[0]

    def incoming(self, depth: int) -> tuple[Val, ...]:
        """The item's value at this step; the neutral element in masked lanes."""
        fn, em = self.fn, self.fn.emitter(self.width)
        value = self.values.wide(self.item.value, self.width)
        parts = tuple(value) if isinstance(value, tuple) else (value,)
        if self.positioned:
            parts = (*parts, self.position())
        mask = fn.lanes.mask if fn.lanes is not None else None
        if mask is None:
            return parts
        start = self.wrap(self.start())
        pairs = list(zip(parts, start, strict=True))
        return fn.write(depth, lambda: tuple(em.select(mask, a, b) for a, b in pairs))

    def position(self) -> Val:
        """The position of each lane's value at this step."""
        fn, at = self.fn, self.item.position
        assert at is not None
        if self.position_type == "i64":
            return self.values.wide(at, self.width)
        em = fn.emitter(self.width)
        step = dict(at.value.terms).get(fn.lanes.var, 0) if fn.lanes is not None and fn.lanes.width == self.width else 0
        start = fn.scalar(f"trunc i64 {self.values.indices.ix(at.value)} to i32", "i32", fn.depth(at.vars))
        by = fn.scalar(f"trunc i64 {fn.slot(step)} to i32", "i32", 0) if step not in (0, 1) else ""

        def emit() -> Val:
            here = em.splat(start, "i32")
            if step == 0 or self.width == 1:
                return here
            lanes = em.lane_index("i32")
            return here + (lanes * em.splat(by, "i32") if by else lanes)

        return fn.write(fn.depth(at.vars), emit)

    def join(self, depth: int, a: Sequence[Val], b: Sequence[Val]) -> tuple[Val, ...]:
        """`merge` for a value `b` that comes after all values in `a`."""
        if not self.first:
            return self.merge(depth, a, b)
        em, op, signed = self.fn.emitter(self.width), self.item.op, self.dtype.kind in "if"
        (x, p), (y, q) = a, b

        def emit() -> tuple[Val, Val]:
            if self.dtype.kind == "f":  # the first NaN stays
                take = y.compare("ugt" if op == "argmax" else "ult", x) & x.compare("ord", x)
            else:
                take = y.gt(x, signed) if op == "argmax" else y.lt(x, signed)
            return em.select(take, y, x), em.select(take, q, p)

        return self.fn.write(depth, emit)

    def merge(self, depth: int, a: Sequence[Val], b: Sequence[Val]) -> tuple[Val, ...]:
        """Combine two values, of which `b` came later."""
        em, op = self.fn.emitter(self.width), self.item.op
        if not self.positioned:

            def emit() -> tuple[Val, ...]:
                out = em.op(op, [self.unpack(a), self.unpack(b)], [self.dtype, self.dtype], self.dtype)
                return tuple(out) if isinstance(out, tuple) else (out,)

            return self.fn.write(depth, emit)
        return self.fn.write(depth, lambda: merge_positions(em, op, a, b, self.dtype))

    def follow(self, depth: int, a: Sequence[Val], b: Sequence[Val]) -> tuple[Val, ...]:
        """`merge` in a scan, whose positions rise: few of its instructions depend on the step before."""
        if not self.positioned:
            return self.merge(depth, a, b)
        em, greatest, kind = self.fn.emitter(self.width), self.item.op.endswith("max"), self.dtype.kind
        (x, p), (y, q) = a, b

        def emit() -> tuple[Val, Val]:
            if kind == "f":
                take = y.is_nan() | y.compare("oge" if greatest else "ole", x)
            else:
                take = ~(y.lt(x, kind == "i") if greatest else y.gt(x, kind == "i"))
            return em.select(take, y, x), em.select(take, q, p)

        return self.fn.write(depth, emit)

    def narrow(self, depth: int, value: Sequence[Val], width: int) -> tuple[Val, ...]:
        """Combine halves of the lanes until `width` lanes are left."""
        have = self.width
        current = tuple(value)
        before = self.width
        while have > width:
            have //= 2
            pairs = self.fn.write(depth, lambda: [halves(v, have) for v in current])  # noqa: B023
            self.width = have
            current = self.merge(depth, [h[0] for h in pairs], [h[1] for h in pairs])
        self.width = before
        return current


def halves(v: Val, width: int) -> tuple[Val, Val]:
    """The lower and the upper half of a vector's lanes."""
    narrow = v.em.at(width)
    low, high = (
        narrow.emit(f"extractelement {v.vt} {v}, i64 {start}", v.type)
        if width == 1
        else narrow.emit(f"shufflevector {v.vt} {v}, {v.vt} poison, {lane_list(start, width)}", v.type)
        for start in (0, width)
    )
    return low, high


def lane_list(start: int, count: int) -> str:
    return f"<{count} x i32> <" + ", ".join(f"i32 {k}" for k in range(start, start + count)) + ">"


def transpose(em: Emitter, rows: list[Val]) -> list[Val]:
    """The columns of a square of vectors, by exchanging blocks of 1, 2, 4... lanes."""
    width, step = em.width, 1
    while step < width:
        keep = [k if not k & step else width + (k ^ step) for k in range(width)]
        take = [k + step if not k & step else width + k for k in range(width)]
        result: list[Any] = [None] * width
        for k in range(width):
            if not k & step:
                a, b = rows[k], rows[k + step]
                for at, lanes in ((k, keep), (k + step, take)):
                    mask = f"<{width} x i32> <" + ", ".join(f"i32 {n}" for n in lanes) + ">"
                    result[at] = em.emit(f"shufflevector {a.vt} {a}, {b.vt} {b}, {mask}", a.type)
        rows, step = result, 2 * step
    return rows


def merge_positions(em: Emitter, op: str, a: Sequence[Val], b: Sequence[Val], dtype: DType) -> tuple[Val, Val]:
    """The more extreme of two (value, position) pairs.  A NaN is the most extreme; of equals the first position is
    taken, by `last...` the last.
    """
    (x, p), (y, q) = a, b
    signed = dtype.kind in "if"
    greatest = op.endswith("max")
    better = y.gt(x, signed) if greatest else y.lt(x, signed)
    same = y.eq(x)
    if dtype.kind == "f":
        nan_x, nan_y = x.is_nan(), y.is_nan()
        better = better | (nan_y & ~nan_x)
        same = same | (nan_y & nan_x)
    nearer = q.gt(p) if op.startswith("last") else q.lt(p)
    take = better | (same & nearer)
    return em.select(take, y, x), em.select(take, q, p)


def deal(accs: Sequence[Accumulator], names: Sequence[str]) -> list[list[str]]:
    """The flat list of carried names, divided among the accumulators."""
    result, at = [], 0
    for acc in accs:
        result.append(list(names[at : at + len(acc.types)]))
        at += len(acc.types)
    return result
