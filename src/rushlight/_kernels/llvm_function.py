"""Loop nests to LLVM text.

Every loop is a scope with its own lines.  An expression is written in the outermost scope where all it needs is known, so
loop-invariant work is hoisted by construction, also loads and broadcasts, which LLVM could not move past the stores.
Vector code is explicit: a loop over lanes becomes a main loop of `width * unroll` lanes and a masked loop for what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._kernels.indexing import Data, Div, Ix, Mod, Var
from rushlight._kernels.loops import BLOCK, Buffer, Item, Kernel, Loop, Reduce, Scan, Section, Store, Tile, X, blocked, number_slot
from rushlight._kernels.scalar import Emitter, ModuleText, Val, mem_type, reg_type
from rushlight._types.dtype import BOOL, INT64, DType

__all__ = ["print_kernel"]

FIRST_SLOT = 8
INT64_MAX = (1 << 63) - 1
ZERO_DIVISION = 3

Value = Any  # Val | tuple[Val, Val]


class Scope:
    """A straight run of code: a loop's body, or a function's."""

    __slots__ = ("cse", "label", "lines", "memo")

    def __init__(self, label: str) -> None:
        self.lines: list[str] = []
        self.label = label
        self.memo: dict[Any, Any] = {}
        self.cse: dict[str, str] = {}


class Lanes:
    """The loop variable that goes through vector lanes at present."""

    __slots__ = ("left", "mask", "var", "width")

    def __init__(self, var: Var, width: int, mask: Val | None, left: str = "") -> None:
        self.var, self.width, self.mask, self.left = var, width, mask, left


class Printer:
    """Writes one kernel as an LLVM function."""

    def __init__(self, kernel: Kernel, name: str, fma: bool, bits: int) -> None:
        self.kernel, self.name, self.bits = kernel, name, bits
        self.module = ModuleText()
        self.one = Emitter(1, self.module, fma=fma)
        self.body = self.one._body
        self.scopes: list[Scope] = [Scope("entry")]
        self.depths: dict[Any, int] = {}
        self.names: dict[Var, str] = {}
        self.results: dict[Item, tuple[Value, int]] = {}
        self.lanes: Lanes | None = None
        self.section: Section | None = None
        self.bounds: tuple[str, str] = ("", "")
        self.labels = 0
        self.tiles: dict[X, tuple[str, str]] = {}
        self.allocas: list[str] = []
        self.word = {b: i for i, b in reversed(list(enumerate((*kernel.outputs, *kernel.inputs))))}

    # ***** the function *****

    def text(self) -> str:
        """The whole module."""
        sections: list[str] = []
        piece = "%piece"
        for i, section in enumerate(self.kernel.sections):
            piece = self.put_section(section, piece, i, sections)
        head = f'define i32 @{self.name}(ptr noundef %bufs, ptr noundef %ints, i64 noundef %piece) nounwind '
        head += f'"prefer-vector-width"="{self.bits}" "min-legal-vector-width"="{self.bits}" {{\nentry:'
        function = "\n".join([head, *self.allocas, *self.scopes[0].lines, "  br label %section0", *sections, "}"])
        return "\n".join(["declare i32 @rl_fail(ptr, i64, i64, i64, i64, i64)", str(self.module), function, ""])

    def put_section(self, section: Section, piece: str, number: int, lines: list[str]) -> str:
        """Write one section to `lines`; the number of the piece as the next section counts it."""
        self.section = section
        last = number == len(self.kernel.sections) - 1
        joined = self.kernel.joined
        lines.append(f"section{number}:")
        rest = piece
        label = f"section{number}"
        if not last and not joined:
            here, rest, label = self.one.fresh(), self.one.fresh(), f"body{number}"
            count = self.slot(section.pieces)
            lines.append(f"  {here} = icmp slt i64 {piece}, {count}")
            lines.append(f"  {rest} = sub i64 {piece}, {count}")
            lines.append(f"  br i1 {here}, label %{label}, label %section{number + 1}")
            lines.append(f"{label}:")
        scope = Scope(label)
        self.scopes.append(scope)  # what a section computes at its outermost level is not seen by the next one
        split = section.split
        if split is not None:
            chunk = self.slot_word(("chunk", split.chunk), "i64")
            lo = self.scalar(f"mul i64 {piece}, {chunk}", "i64", 1)
            end = self.scalar(f"add i64 {lo}, {chunk}", "i64", 1)
            self.bounds = (lo, self.smaller(end, self.slot(split.var.size)))
            if split.index is not None:
                self.names[split.index], self.depths[split.index] = piece, 1
        self.statements(section.body)
        self.scopes.pop()
        lines.extend(scope.lines)
        lines.append(f"  br label %section{number + 1}" if joined and not last else "  ret i32 0")
        return rest

    def smaller(self, a: str, b: str) -> str:
        """The smaller of two integers."""
        self.module.declarations["@llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        return self.scalar(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})", "i64", self.here())

    # ***** writing *****

    def label(self, hint: str) -> str:
        self.labels += 1
        return f"{hint}{self.labels}"

    def write(self, depth: int, emit: Callable[[], Any]) -> Any:
        """Run `emit`, which gives instructions to an emitter, and put them into the scope at `depth`."""
        body = self.body
        before = body.scopes
        body.scopes = [s.cse for s in self.scopes[: depth + 1]]
        result = emit()
        body.scopes = before
        lines = body.lines
        if lines:
            self.scopes[depth].lines.extend(lines)
            lines.clear()
        if body.checks:
            checks = list(body.checks)
            body.checks.clear()
            for check in checks:
                self.check(depth, check.bad, check.width, ZERO_DIVISION)
        return result

    def scalar(self, text: str, type: str, depth: int) -> str:
        """Emit one scalar instruction at a depth; its name."""
        return str(self.write(depth, lambda: self.one.emit(text, type)))

    def emitter(self, width: int) -> Emitter:
        return self.one.at(width)

    def depth(self, vars: frozenset[Any]) -> int:
        depths = self.depths
        return max([depths[v] for v in vars], default=0)

    def slot(self, n: Any) -> str:
        """The operand text of an integer: a literal for 0, 1 and 2, else the slot's value."""
        if n in (0, 1, 2):
            return str(n)
        return self.slot_word(n, "i64")

    def slot_word(self, key: Any, type: str) -> str:
        where = FIRST_SLOT + self.kernel.slot_of(key)
        place = self.scalar(f"getelementptr i64, ptr %ints, i64 {where}", "ptr", 0)
        return self.scalar(f"load {type}, ptr {place}, align 8", type, 0)

    def base(self, buffer: Buffer) -> str:
        place = self.scalar(f"getelementptr i64, ptr %bufs, i64 {self.word[buffer]}", "ptr", 0)
        return self.scalar(f"load ptr, ptr {place}, align 8", "ptr", 0)

    def check(
        self, depth: int, bad: Val, width: int, code: int, value: Val | None = None, dim: int = 0, size: str = "0",
    ) -> None:  # fmt: skip
        """Leave the kernel if a lane of `bad` is set."""
        scope = self.scopes[depth]
        lanes = self.lanes
        if lanes is not None and lanes.mask is not None and width == lanes.width:
            mask = lanes.mask
            bad = self.write(depth, lambda: bad & mask)
        any_bad = str(bad)
        if width > 1:
            wide = self.emitter(width)
            any_bad = str(self.write(depth, lambda: wide.any_lane(bad)))
        fail, good = self.label("fail"), self.label("ok")
        lines = scope.lines
        lines.append(f"  br i1 {any_bad}, label %{fail}, label %{good}, !prof !0")
        lines.append(f"{fail}:")
        shown = "0"
        if value is not None:
            shown = str(value)
            if width > 1:
                first, wide = self.one.fresh(), self.one.fresh()
                lines.append(f"  {wide} = bitcast <{width} x i1> {bad} to i{width}")
                lines.append(f"  {first} = call i{width} @llvm.cttz.i{width}(i{width} {wide}, i1 true)")
                self.module.declarations[f"@cttz{width}"] = f"declare i{width} @llvm.cttz.i{width}(i{width}, i1)"
                shown = self.one.fresh()
                lines.append(f"  {shown} = extractelement <{width} x i64> {value}, i{width} {first}")
        status = self.one.fresh()
        lines.append(f"  {status} = call i32 @rl_fail(ptr %bufs, i64 %piece, i64 {code}, i64 {shown}, i64 {dim}, i64 {size})")
        lines.append(f"  ret i32 {status}")
        lines.append(f"{good}:")
        scope.label = good
        self.module.definitions["!0"] = '!0 = !{!"branch_weights", i32 1, i32 100000}'

    # ***** loops *****

    def loop(
        self, var: Var | None, lo: str, hi: str, step: str, carries: Sequence[tuple[str, str]],
        body: Callable[[str, list[str]], list[str]], prefix: Sequence[str] = (),
    ) -> list[str]:  # fmt: skip
        """`for iv in range(lo, hi, step)`, carrying values (LLVM type, initial name); `body(iv, carried)` gives the next ones.

        Returns the names of the carried values after the loop.
        """
        parent = self.scopes[-1]
        head, done = self.label("loop"), self.label("done")
        iv = self.one.fresh()
        carried = [self.one.fresh() for _ in carries]
        scope = Scope(head)
        self.scopes.append(scope)
        if var is not None:
            self.names[var] = iv
            self.depths[var] = len(self.scopes) - 1
        nexts = body(iv, carried)
        if var is not None:
            del self.depths[var], self.names[var]
        self.scopes.pop()
        fresh = self.one.fresh
        test, more, iv_next = fresh(), fresh(), fresh()
        lines = parent.lines
        before = parent.label
        lines.append(f"  {test} = icmp slt i64 {lo}, {hi}")
        lines.append(f"  br i1 {test}, label %{head}, label %{done}")
        lines.append(f"{head}:")
        lines.append(f"  {iv} = phi i64 [ {lo}, %{before} ], [ {iv_next}, %{scope.label} ]")
        for (type, first), name, after in zip(carries, carried, nexts, strict=True):
            lines.append(f"  {name} = phi {type} [ {first}, %{before} ], [ {after}, %{scope.label} ]")
        lines.extend(scope.lines)
        lines.append(f"  {iv_next} = add nsw i64 {iv}, {step}")
        lines.append(f"  {more} = icmp slt i64 {iv_next}, {hi}")
        lines.append(f"  br i1 {more}, label %{head}, label %{done}")
        lines.append(f"{done}:")
        results = []
        for (type, first), after in zip(carries, nexts, strict=True):
            name = fresh()
            lines.append(f"  {name} = phi {type} [ {first}, %{before} ], [ {after}, %{scope.label} ]")
            results.append(name)
        parent.label = done
        return results

    def range_of(self, var: Var) -> tuple[str, str]:
        """The bounds of a loop over `var` in this piece."""
        split = self.section.split if self.section else None
        if split is not None and split.var is var:
            return self.bounds
        return "0", self.slot(var.size)

    def here(self) -> int:
        return len(self.scopes) - 1

    def main_end(self, lo: str, hi: str, step: int) -> str:
        """The end of a loop in whole steps (a power of two) from `lo`."""
        here = self.here()
        length = hi if lo == "0" else self.scalar(f"sub i64 {hi}, {lo}", "i64", here)
        whole = self.scalar(f"and i64 {length}, {-step}", "i64", here)
        return whole if lo == "0" else self.scalar(f"add i64 {lo}, {whole}", "i64", here)

    def over_lanes(
        self, var: Var, lo: str, hi: str, width: int, masked: bool, carries: Sequence[tuple[str, str]],
        body: Callable[[list[str]], list[str]],
    ) -> list[str]:  # fmt: skip
        """A loop whose body works on `width` values of `var` at once; the last ones may be masked off."""

        def inside(iv: str, carried: list[str]) -> list[str]:
            mask = self.tail_mask(iv, hi, width) if masked else None
            before = self.lanes
            left = self.scalar(f"sub i64 {hi}, {iv}", "i64", self.here()) if masked else ""
            self.lanes = Lanes(var, width, mask, left)
            result = body(carried)
            self.lanes = before
            return result

        return self.loop(var, lo, hi, str(width), carries, inside)

    def tail_mask(self, iv: str, hi: str, width: int) -> Val:
        def emit() -> Val:
            left = self.one.emit(f"sub i64 {hi}, {iv}", "i64")
            small = self.one.emit(f"call i64 @llvm.smin.i64(i64 {left}, i64 {width})", "i64")
            narrow = self.one.emit(f"trunc i64 {small} to i32", "i32")
            em = self.emitter(width)
            return em.lane_index("i32").lt(em.splat(narrow, "i32")) if width > 1 else em.const("i1", True)

        self.module.declarations["@llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        return self.write(self.here(), emit)

    # ***** statements *****

    def statements(self, body: Sequence[Any]) -> None:
        for statement in body:
            getattr(self, "s_" + type(statement).__name__)(statement)

    def s_Loop(self, s: Loop) -> None:
        lo, hi = self.range_of(s.var)
        section = self.section
        assert section is not None
        if not s.lanes:
            self.loop(s.var, lo, hi, "1", (), lambda iv, carried: self.nested(s.body))
            return
        wide = section.width * section.unroll
        if section.width == 1:
            self.over_lanes(s.var, lo, hi, 1, False, (), lambda carried: self.nested(s.body))
            return
        middle = lo
        if section.unroll:
            middle = self.main_end(lo, hi, wide)
            self.over_lanes(s.var, lo, middle, wide, False, (), lambda carried: self.nested(s.body))
        self.over_lanes(s.var, middle, hi, section.width, True, (), lambda carried: self.nested(s.body))

    def nested(self, body: Sequence[Any]) -> list[str]:
        self.statements(body)
        return []

    # ***** square tiles *****

    def s_Tile(self, s: Tile) -> None:
        assert self.section is not None
        width = self.section.width
        lo, hi = self.range_of(s.across)
        left, right = self.range_of(s.lane)
        bottom, middle = self.main_end(lo, hi, width), self.main_end(left, right, width)

        def block(iv: str, _: list[str]) -> list[str]:
            end = self.smaller(self.scalar(f"add i64 {iv}, {4 * width}", "i64", self.here()), bottom)
            return self.over_lanes(s.lane, left, middle, width, False, (), lambda c: self.tiles_down(s, iv, end, width))

        self.loop(None, lo, bottom, str(4 * width), (), block)
        self.loop(s.across, lo, bottom, "1", (), lambda iv, c: self.edge(s, middle, right, width))
        self.loop(s.across, bottom, hi, "1", (), lambda iv, c: self.edge(s, left, right, width))

    def edge(self, s: Tile, left: str, right: str, width: int) -> list[str]:
        """What does not fill a tile, with plain masked lanes."""
        return self.over_lanes(s.lane, left, right, width, True, (), lambda c: self.nested(s.body))

    def tiles_down(self, s: Tile, top: str, bottom: str, width: int) -> list[str]:
        def tile(iv: str, _: list[str]) -> list[str]:
            here = self.here()
            self.names[s.across], self.depths[s.across] = iv, here
            for load in s.turned:
                self.tiles[load] = (self.turn(load, s.lane, width), iv)
            del self.names[s.across], self.depths[s.across]
            end = self.scalar(f"add i64 {iv}, {width}", "i64", here)
            self.loop(s.across, iv, end, "1", (), lambda row, c: self.nested(s.body))
            for load in s.turned:
                del self.tiles[load]
            return []

        return self.loop(None, top, bottom, str(width), (), tile)

    def turn(self, load: X, lane: Var, width: int) -> str:
        """Load a tile row by row, transpose it, and keep it on the stack; its address."""
        buffer, ix = load.value
        here = self.here()
        em, t = self.emitter(width), mem_type(buffer.dtype)
        vt = em.vt(t)
        place = f"%tile{len(self.allocas)}"
        self.allocas.append(f"  {place} = alloca [{width} x {vt}], align 64")
        pointer, step = self.pointer(buffer, ix), self.slot(dict(ix.terms)[lane])
        rows = []
        for k in range(width):
            if k:
                pointer = self.scalar(f"getelementptr {t}, ptr {pointer}, i64 {step}", "ptr", here)
            name = em.fresh()
            self.scopes[here].lines.append(f"  {name} = load {vt}, ptr {pointer}, align {_align(buffer.dtype)}")
            rows.append(em.val(name, t))
        for k, row in enumerate(self.write(here, lambda: transpose(em, rows))):
            self.scopes[here].lines.append(f"  {place}.{k}.{here} = getelementptr {vt}, ptr {place}, i64 {k}")
            self.scopes[here].lines.append(f"  store {vt} {row}, ptr {place}.{k}.{here}, align 64")
        return place

    # ***** reductions *****

    def s_Reduce(self, s: Reduce) -> None:
        section = self.section
        assert section is not None
        if s.lanes and section.width > 1:
            widths = [section.width * max(section.unroll, 1), section.width]
        else:
            widths = [self.lanes.width if self.lanes is not None else 1]
        accs = [Accumulator(self, item, w) for w in widths for item in s.items]
        names = [n for acc in accs for n in acc.start()]
        finals = self.reduce_over(s, 0, accs, names)
        self.finish(s, accs, finals)

    def finish(self, s: Reduce, accs: list[Accumulator], names: list[str]) -> None:
        """Bind the results of a reduction: its lanes combined, in a fixed order."""
        parts = _deal(accs, names)
        here, count = self.here(), len(s.items)
        horizontal = s.lanes and len(accs) > count
        for k, item in enumerate(s.items):
            main = accs[k]
            value = main.wrap(parts[k])
            if horizontal:
                narrow = accs[count + k]
                value = main.narrow(here, value, narrow.width)
                value = narrow.merge(here, narrow.wrap(parts[count + k]), value)
                value = narrow.narrow(here, value, 1)
            width = 1 if horizontal else main.width
            self.results[item] = ((value[1], value[0]) if main.positioned else main.unpack(value), width)
            self.depths[item] = here

    def reduce_over(self, s: Reduce, level: int, accs: list[Accumulator], names: list[str]) -> list[str]:
        """The loops of a reduction from `level` inward; names of the accumulators go in and come out."""
        if level == len(s.loops):
            return self.accumulate(s, accs, names)
        var = s.loops[level]
        lo, hi = self.range_of(var)
        if s.lanes and level == len(s.loops) - 1 and len(accs) > len(s.items):
            return self.reduce_lanes(s, var, lo, hi, accs, names)

        def run(lo: str, hi: str, names: list[str]) -> list[str]:
            types = [t for acc in accs for t in acc.types]
            return self.loop(
                var, lo, hi, "1", list(zip(types, names, strict=True)),
                lambda iv, carried: self.reduce_over(s, level + 1, accs, carried),
            )  # fmt: skip

        if not blocked(var, s):
            return run(lo, hi, names)
        return self.in_blocks(lo, hi, BLOCK, accs, names, run)

    def in_blocks(
        self, lo: str, hi: str, block: int, accs: list[Accumulator], names: list[str],
        run: Callable[[str, str, list[str]], list[str]],
    ) -> list[str]:  # fmt: skip
        """Reduce block by block, each from zero, and add the blocks up: fewer roundings pile up in one accumulator."""
        types = [t for acc in accs for t in acc.types]

        def one(iv: str, carried: list[str]) -> list[str]:
            here = self.here()
            stop = self.smaller(self.scalar(f"add i64 {iv}, {block}", "i64", here), hi)
            start = [n for acc in accs for n in acc.start()]
            partial = run(iv, stop, start)
            result: list[str] = []
            for acc, old, new in zip(accs, _deal(accs, carried), _deal(accs, partial), strict=True):
                result.extend(str(v) for v in acc.merge(here, acc.wrap(old), acc.wrap(new)))
            return result

        return self.loop(None, lo, hi, str(block), list(zip(types, names, strict=True)), one)

    def reduce_lanes(self, s: Reduce, var: Var, lo: str, hi: str, accs: list[Accumulator], names: list[str]) -> list[str]:
        count = len(s.items)
        mains, tails = accs[:count], accs[count:]
        cut = sum(len(a.types) for a in mains)
        main_names, tail_names = names[:cut], names[cut:]
        wide = mains[0].width
        if self.section is not None and self.section.unroll:
            middle = self.main_end(lo, hi, wide)

            def run(lo: str, hi: str, names: list[str]) -> list[str]:
                types = [t for acc in mains for t in acc.types]
                carries = list(zip(types, names, strict=True))
                return self.over_lanes(var, lo, hi, wide, False, carries, lambda carried: self.accumulate(s, mains, carried))

            if blocked(var, s):
                main_names = self.in_blocks(lo, middle, BLOCK * wide, mains, main_names, run)
            else:
                main_names = run(lo, middle, main_names)
        else:
            middle = lo
        types = [t for acc in tails for t in acc.types]
        carries = list(zip(types, tail_names, strict=True))
        tail_names = self.over_lanes(
            var, middle, hi, tails[0].width, True, carries, lambda carried: self.accumulate(s, tails, carried)
        )
        return [*main_names, *tail_names]

    def accumulate(self, s: Reduce, accs: list[Accumulator], names: list[str]) -> list[str]:
        """One step: each item's value joins its accumulator."""
        result: list[str] = []
        here = self.here()
        for acc, held in zip(accs, _deal(accs, names), strict=True):
            new = acc.incoming(here)
            result.extend(str(v) for v in acc.merge(here, acc.wrap(held), new))
        self.statements(s.stores)
        return result

    def s_Scan(self, s: Scan) -> None:
        width = self.lanes.width if self.lanes is not None else 1
        accs = [Accumulator(self, item, width, scan=True) for item in s.items]
        carries = list(zip([t for a in accs for t in a.types], [n for a in accs for n in a.start()], strict=True))
        lo, hi = self.range_of(s.var)

        def body(iv: str, carried: list[str]) -> list[str]:
            here = self.here()
            if s.reverse:
                last = self.scalar(f"sub i64 {hi}, 1", "i64", here)
                self.names[s.var] = self.scalar(f"sub i64 {last}, {iv}", "i64", here)
            result: list[str] = []
            for acc, held in zip(accs, _deal(accs, carried), strict=True):
                value = acc.merge(here, acc.wrap(held), acc.incoming(here))
                self.results[acc.item] = ((value[1], value[0]) if acc.positioned else acc.unpack(value), width)
                self.depths[acc.item] = here
                result.extend(str(v) for v in value)
            self.statements(s.body)
            return result

        self.loop(s.var, lo, hi, "1", carries, body)

    # ***** stores *****

    def s_Store(self, s: Store) -> None:
        value, width = self.x(s.value)
        lanes = self.lanes
        wide = lanes is not None and (lanes.var in s.ix.vars or width > 1 or (s.guard is not None and lanes.var in s.guard.vars))
        if not wide:
            self.store_one(s, value)
            return
        assert lanes is not None
        if width == 1:
            value = self.spread(s.value, lanes.width)
        self.store_lanes(s, value, lanes)

    def store_one(self, s: Store, value: Value) -> None:
        here = self.here()
        scope = self.scopes[-1]
        done = ""
        if s.guard is not None:
            condition, _ = self.x(s.guard)
            go, done = self.label("then"), self.label("join")
            pointer = self.pointer(s.buffer, s.ix)
            scope.lines.append(f"  br i1 {condition}, label %{go}, label %{done}")
            scope.lines.append(f"{go}:")
        else:
            pointer = self.pointer(s.buffer, s.ix)
        em, dtype = self.one, s.buffer.dtype
        if s.combine:
            old = self.load_at(pointer, dtype, here)
            value = self.write(here, lambda: em.op(s.combine or "", [old, value], [dtype, dtype], dtype))
        raw = self.write(here, lambda: em.to_memory(value, dtype))
        scope.lines.append(f"  store {em.mem_vt(dtype)} {raw}, ptr {pointer}, align {_align(dtype)}")
        if done:
            scope.lines.append(f"  br label %{done}")
            scope.lines.append(f"{done}:")
            scope.label = done
            scope.cse.clear()

    def store_lanes(self, s: Store, value: Value, lanes: Lanes) -> None:
        here, dtype = self.here(), s.buffer.dtype
        em = self.emitter(lanes.width)
        mask = lanes.mask
        if s.guard is not None:
            guard = self.wide(s.guard, lanes.width)
            mask = guard if mask is None else self.write(here, lambda: guard & mask)
        lines = self.scopes[-1].lines
        if s.ix.coefficient(lanes.var) == 1:
            pointer = self.pointer(s.buffer, s.ix)
            if s.combine:
                old = self.load_block(pointer, dtype, lanes.width, mask, here)
                value = self.write(here, lambda: em.op(s.combine or "", [old, value], [dtype, dtype], dtype))
            raw = self.write(here, lambda: em.to_memory(value, dtype))
            vt = em.mem_vt(dtype)
            if mask is None:
                stream = ", !nontemporal !1" if s.stream else ""
                if s.stream:
                    self.module.definitions["!1"] = "!1 = !{i32 1}"
                lines.append(f"  store {vt} {raw}, ptr {pointer}, align {_stream_align(s)}{stream}")
                return
            self.masked_store(raw, pointer, dtype, lanes.width, mask)
            return
        self.scatter(s, value, lanes, mask)

    def masked_store(self, raw: Val, pointer: str, dtype: DType, width: int, mask: Val) -> None:
        vt = self.emitter(width).mem_vt(dtype)
        n, m = width, str(mask)
        if dtype.kind == "c":
            n, m = 2 * width, self.double_mask(mask, width)
        mangled = _vector_name(n, mem_type(dtype))
        self.module.declarations[f"@ms.{mangled}"] = (
            f"declare void @llvm.masked.store.{mangled}.p0({vt}, ptr, i32 immarg, <{n} x i1>)"
        )
        self.scopes[-1].lines.append(
            f"  call void @llvm.masked.store.{mangled}.p0({vt} {raw}, ptr {pointer}, i32 {_align(dtype)}, <{n} x i1> {m})"
        )

    def double_mask(self, mask: Val, width: int) -> str:
        """A mask for interleaved pairs."""
        order = ", ".join(f"i32 {k // 2}" for k in range(2 * width))
        text = f"shufflevector <{width} x i1> {mask}, <{width} x i1> poison, <{2 * width} x i32> <{order}>"
        return self.scalar(text, "i1", self.here())

    def scatter(self, s: Store, value: Value, lanes: Lanes, mask: Val | None) -> None:
        here, dtype, w = self.here(), s.buffer.dtype, lanes.width
        em = self.emitter(w)
        pointers = self.pointers(s.buffer, s.ix)
        if s.combine:  # the schedule sees to it that lanes do not meet at one place
            old = self.gather_at(pointers, dtype, w, mask, here)
            value = self.write(here, lambda: em.op(s.combine or "", [old, value], [dtype, dtype], dtype))
        raw = value
        if dtype.kind == "b":
            raw = self.write(here, lambda: em.to_memory(value, dtype))
        parts = raw if isinstance(raw, tuple) else (raw,)
        t = mem_type(dtype)
        if mask is None:
            self.store_each(parts, pointers, t, w, dtype, here)
            return
        mangled = _vector_name(w, t)
        m = str(mask) if mask is not None else str(em.const("i1", True))
        self.module.declarations[f"@sc.{mangled}"] = (
            f"declare void @llvm.masked.scatter.{mangled}.v{w}p0(<{w} x {t}>, <{w} x ptr>, i32 immarg, <{w} x i1>)"
        )
        for k, part in enumerate(parts):
            p = self.offset_pointers(pointers, t, w, here) if k else pointers
            self.scopes[-1].lines.append(
                f"  call void @llvm.masked.scatter.{mangled}.v{w}p0(<{w} x {t}> {part}, <{w} x ptr> {p}, "
                f"i32 {_align(dtype)}, <{w} x i1> {m})"
            )

    def store_each(self, parts: Sequence[Val], pointers: str, t: str, w: int, dtype: DType, here: int) -> None:
        """One store per lane."""
        lines = self.scopes[here].lines
        for k in range(w):
            pointer = self.scalar(f"extractelement <{w} x ptr> {pointers}, i64 {k}", "ptr", here)
            for n, part in enumerate(parts):
                one = self.scalar(f"extractelement {part.vt} {part}, i64 {k}", t, here)
                if n:
                    pointer = self.scalar(f"getelementptr {t}, ptr {pointer}, i64 1", "ptr", here)
                lines.append(f"  store {t} {one}, ptr {pointer}, align {_align(dtype)}")

    def offset_pointers(self, pointers: str, type: str, width: int, depth: int) -> str:
        """Pointers to the imaginary parts."""
        return self.scalar(f"getelementptr {type}, <{width} x ptr> {pointers}, i64 1", "ptr", depth)

    # ***** index expressions *****

    def ix(self, ix: Ix) -> str:
        """A scalar index expression; the lanes' variable counts with its first lane."""
        return self.sum_terms(self.sorted_terms(ix), ix.const)

    def sorted_terms(self, ix: Ix) -> list[tuple[int, Any, int]]:
        """Terms from the outermost known to the innermost."""
        return sorted([(self.depth(a.vars), a, c) for a, c in ix.terms], key=lambda t: (t[0], t[1].order))

    def sum_terms(self, terms: list[tuple[int, Any, int]], const: int) -> str:
        total: str | None = None if const == 0 else self.slot(const)
        reached = 0
        for depth, atom, c in terms:
            reached = max(reached, depth)
            value = self.atom(atom)
            if c != 1:
                value = self.scalar(f"mul nsw i64 {value}, {self.slot(c)}", "i64", depth)
            total = value if total is None else self.scalar(f"add nsw i64 {total}, {value}", "i64", reached)
        return total if total is not None else "0"

    def atom(self, atom: Any) -> str:
        kind = type(atom)
        if kind is Var:
            return self.names[atom]
        depth = self.depth(atom.vars)
        if kind is Data:
            return str(self.data(atom)[0])
        inner = self.ix(atom.ix)
        return self.scalar(f"{'sdiv' if kind is Div else 'srem'} i64 {inner}, {self.slot(atom.by)}", "i64", depth)

    def data(self, atom: Data) -> tuple[Val, int]:
        """A checked, wrapped index from data, and its width."""
        depth = self.depth(atom.vars)
        memo = self.scopes[depth].memo
        found = memo.get(atom)
        if found is None:
            value, width = self.x(atom.value)
            guard = None
            if atom.guard is not None:
                width = max(width, self.x(atom.guard)[1])
                value, guard = self.wide(atom.value, width), self.wide(atom.guard, width)
            em = self.emitter(width)
            size = self.slot(atom.size)

            def emit() -> tuple[Val, Val]:
                n = em.splat(size, "i64")
                wrapped = em.select(value.lt(0), value + n, value)
                bad = wrapped.ge(n, signed=False)
                return wrapped, bad if guard is None else bad & guard

            index, bad = self.write(depth, emit)
            self.check(depth, bad, width, atom.code, value, atom.dim, size)
            found = memo[atom] = (index, width)
        return found  # type: ignore[no-any-return]

    def varies(self, vars: frozenset[Any]) -> bool:
        """Whether a thing that depends on `vars` differs from lane to lane."""
        lanes = self.lanes
        if lanes is None or lanes.width == 1:
            return False
        if lanes.var in vars:
            return True
        return any(type(v) is Item and self.results[v][1] > 1 for v in vars)

    def vector_ix(self, ix: Ix) -> Val:
        """An index expression with a value per lane."""
        lanes = self.lanes
        assert lanes is not None
        depth = self.depth(ix.vars)
        memo = self.scopes[depth].memo
        found = memo.get(("v", ix))
        if found is None:
            w = lanes.width
            em = self.emitter(w)
            uniform = [(a, c) for a, c in ix.terms if a is lanes.var or not self.varies(a.vars)]
            base = self.ix(Ix(tuple(uniform), ix.const))
            total = self.write(depth, lambda: em.splat(base, "i64"))
            for a, c in ix.terms:
                if not self.varies(a.vars):
                    continue
                steps = em.lane_index("i64") if a is lanes.var else self.vector_atom(a)
                factor = self.slot(c)
                total = self.write(depth, lambda: total + (steps if c == 1 else steps * em.splat(factor, "i64")))  # noqa: B023
            found = memo["v", ix] = total
        return found  # type: ignore[no-any-return]

    def vector_atom(self, atom: Any) -> Val:
        depth = self.depth(atom.vars)
        if type(atom) is Data:
            return self.data(atom)[0]
        inner = self.vector_ix(atom.ix)
        em = self.emitter(inner.em.width)
        by = self.slot(atom.by)
        name = "sdiv" if type(atom) is Div else "srem"
        divisor = self.write(depth, lambda: em.splat(by, "i64"))
        return self.write(depth, lambda: em.emit(f"{name} {inner.vt} {inner}, {divisor}", "i64"))  # type: ignore[no-any-return]

    def pointer(self, buffer: Buffer, ix: Ix) -> str:
        """The address of an element (that of the first lane), built from the outermost loop inward."""
        pointer, t = self.base(buffer), _element(buffer.dtype)
        if ix.const:
            pointer = self.scalar(f"getelementptr {t}, ptr {pointer}, i64 {self.slot(ix.const)}", "ptr", 0)
        reached = 0
        for depth, atom, c in self.sorted_terms(ix):
            reached = max(reached, depth)
            value = self.atom(atom)
            if c != 1:
                value = self.scalar(f"mul nsw i64 {value}, {self.slot(c)}", "i64", depth)
            pointer = self.scalar(f"getelementptr {t}, ptr {pointer}, i64 {value}", "ptr", reached)
        return pointer

    def pointers(self, buffer: Buffer, ix: Ix) -> str:
        """The addresses of all lanes."""
        lanes = self.lanes
        assert lanes is not None
        t, w = _element(buffer.dtype), lanes.width
        uniform = [(a, c) for a, c in ix.terms if not self.varies(a.vars)]
        varying = [(a, c) for a, c in ix.terms if self.varies(a.vars)]
        depth = self.depth(ix.vars)
        if all(a is lanes.var for a, c in varying):
            base = self.pointer(buffer, ix)
            offsets = self.lane_offsets(varying[0][1] if varying else 0)
        else:
            base = self.pointer(buffer, Ix(tuple(uniform), ix.const))
            offsets = str(self.vector_ix(Ix(tuple(varying), 0)))
        return self.scalar(f"getelementptr {t}, ptr {base}, <{w} x i64> {offsets}", "ptr", depth)

    def lane_offsets(self, step: int) -> str:
        assert self.lanes is not None
        em = self.emitter(self.lanes.width)
        if step == 0:
            return str(em.const("i64", 0))
        factor = self.slot(step)
        return str(self.write(0, lambda: em.lane_index("i64") * em.splat(factor, "i64")))

    # ***** expressions *****

    def x(self, e: X) -> tuple[Value, int]:
        """An expression's value and its width: 1 where all lanes share it."""
        if e.kind == "ref":
            item, part = e.value
            value, width = self.results[item]
            return (value[part] if item.position is not None else value), width
        if e.kind == "const":
            return self.constant(e, 1), 1
        depth = self.depth(e.vars)
        memo = self.scopes[depth].memo
        found = memo.get(e)
        if found is None:
            found = memo[e] = getattr(self, "x_" + e.kind)(e, depth)
        return found  # type: ignore[no-any-return]

    def constant(self, e: X, width: int) -> Value:
        key = number_slot(e.value, e.dtype)
        if key is None:
            return self.emitter(width).number(e.value, e.dtype)
        if type(key) is int:
            name = self.slot_word(key, "i64")
            type_ = reg_type(e.dtype)
            if type_ != "i64":
                name = self.scalar(f"trunc i64 {name} to {type_}", type_, 0)
        else:
            name = self.slot_word(key, "double")
            type_ = reg_type(e.dtype)
            if type_ == "float":
                name = self.scalar(f"fptrunc double {name} to float", "float", 0)
        return self.write(0, lambda: self.emitter(width).splat(name, type_))

    def wide(self, e: X, width: int) -> Value:
        """An expression's value in `width` lanes."""
        value, have = self.x(e)
        return value if have == width else self.spread(e, width)

    def spread(self, e: X, width: int) -> Value:
        """A value that all lanes share, in a vector."""
        if e.kind == "const":
            return self.constant(e, width)
        value, have = self.x(e)
        assert have == 1, (e, have, width)
        depth = self.depth(e.vars)
        em = self.emitter(width)
        if isinstance(value, tuple):
            return tuple(self.write(depth, lambda v=v: em.splat(v, v.type)) for v in value)
        return self.write(depth, lambda: em.splat(value, value.type))

    def x_arg(self, e: X, depth: int) -> tuple[Value, int]:
        number, dtype = e.value, e.dtype
        word = len(self.kernel.outputs) + len(self.kernel.inputs)
        word += sum(2 if d.kind == "c" else 1 for d in self.kernel.args[:number])

        def fetch(at: int, type: str) -> str:
            place = self.scalar(f"getelementptr i64, ptr %bufs, i64 {at}", "ptr", 0)
            return self.scalar(f"load {type}, ptr {place}, align 8", type, 0)

        t = reg_type(dtype)
        if dtype.kind in "fc":
            parts = []
            for k in range(2 if dtype.kind == "c" else 1):
                name = fetch(word + k, "double")
                parts.append(self.one.val(self.round_to(name, dtype), t))
            return (tuple(parts) if dtype.kind == "c" else parts[0]), 1
        name = fetch(word, "i64")
        if t == "i1":
            name = self.scalar(f"icmp ne i64 {name}, 0", "i1", 0)
        elif t != "i64":
            name = self.scalar(f"trunc i64 {name} to {t}", t, 0)
        return self.one.val(name, t), 1

    def round_to(self, name: str, dtype: DType) -> str:
        """A double argument rounded to the dtype it stands for."""
        if dtype.name in ("float64", "complex128"):
            return name
        if dtype.name == "bfloat16":
            from rushlight._types.dtype import BFLOAT16, FLOAT64

            value = self.one.val(name, "double")
            return str(self.write(0, lambda: self.one.op("convert", [value], [FLOAT64], BFLOAT16, {"dtype": BFLOAT16})))
        return self.scalar(f"fptrunc double {name} to {reg_type(dtype)}", reg_type(dtype), 0)

    def x_op(self, e: X, depth: int) -> tuple[Value, int]:
        prim, params = e.value
        args = [self.x(a) for a in e.args]
        width = max(w for _, w in args)
        values = [v if w == width else self.spread(a, width) for a, (v, w) in zip(e.args, args, strict=True)]
        if width > 1:
            values = [v if a.kind != "const" else self.constant(a, width) for a, v in zip(e.args, values, strict=True)]
        em = self.emitter(width)
        dtypes = [a.dtype for a in e.args]
        given = dict(params)
        if prim in ("convert", "bitcast"):
            given["dtype"] = e.dtype
        return self.write(depth, lambda: em.op(prim, values, dtypes, e.dtype, given)), width

    def x_ix(self, e: X, depth: int) -> tuple[Value, int]:
        wide = self.varies(e.vars)
        value = self.vector_ix(e.value) if wide else self.one.val(self.ix(e.value), "i64")
        em = value.em
        if e.dtype is INT64:
            return value, em.width
        return self.write(depth, lambda: em.op("convert", [value], [INT64], e.dtype, {"dtype": e.dtype})), em.width

    def x_inrange(self, e: X, depth: int) -> tuple[Value, int]:
        ix, lo, hi = e.value
        if self.varies(e.vars):
            varying = [(a, c) for a, c in ix.terms if self.varies(a.vars)]
            if self.lanes is not None and len(varying) == 1 and varying[0][0] is self.lanes.var and varying[0][1] in (1, 2):
                return self.lane_range(ix, lo, hi, varying[0][1], depth), self.lanes.width
        value = self.vector_ix(ix) if self.varies(e.vars) else self.one.val(self.ix(ix), "i64")
        em = value.em
        low, span = self.slot(lo), self.slot(hi)

        def emit() -> Val:
            least, end = em.splat(low, "i64"), em.splat(span, "i64")
            return value.ge(least) & value.lt(end)

        return self.write(depth, emit), em.width

    def lane_range(self, ix: Ix, lo: int, hi: int, step: int, depth: int) -> Val:
        """`lo <= ix < hi` for lanes that step by 1 or 2: the lanes from one number to another, found in scalars."""
        assert self.lanes is not None
        em, one, w = self.emitter(self.lanes.width), self.one, self.lanes.width
        start, low, high = self.ix(ix), self.slot(lo), self.slot(hi)
        self.module.declarations["@llvm.smin.i64"] = "declare i64 @llvm.smin.i64(i64, i64)"
        self.module.declarations["@llvm.smax.i64"] = "declare i64 @llvm.smax.i64(i64, i64)"

        def bound(n: str) -> Val:
            distance = one.emit(f"sub i64 {n}, {start}", "i64")
            if step == 2:
                distance = one.emit(f"ashr i64 {one.emit(f'add i64 {distance}, 1', 'i64')}, 1", "i64")
            some = one.emit(f"call i64 @llvm.smax.i64(i64 {distance}, i64 0)", "i64")
            few = one.emit(f"call i64 @llvm.smin.i64(i64 {some}, i64 {w})", "i64")
            return em.splat(one.emit(f"trunc i64 {few} to i32", "i32"), "i32")

        def emit() -> Val:
            lane = em.lane_index("i32")
            return lane.ge(bound(low)) & lane.lt(bound(high))

        return self.write(depth, emit)  # type: ignore[no-any-return]

    def x_load(self, e: X, depth: int) -> tuple[Value, int]:
        buffer, ix = e.value
        guard = e.args[0] if e.args else None
        if e in self.tiles:
            return self.load_turned(e), self.lanes.width if self.lanes else 1
        if not self.varies(e.vars):
            if guard is None:
                return self.load_at(self.pointer(buffer, ix), buffer.dtype, depth), 1
            return self.load_guarded(buffer, ix, guard, depth), 1
        lanes = self.lanes
        assert lanes is not None
        mask = lanes.mask
        if guard is not None:
            held = self.wide(guard, lanes.width)
            mask = held if mask is None else self.write(depth, lambda: held & mask)
        varying = [(a, c) for a, c in ix.terms if self.varies(a.vars)]
        if len(varying) == 1 and varying[0] == (lanes.var, 1):
            return self.load_block(self.pointer(buffer, ix), buffer.dtype, lanes.width, mask, depth), lanes.width
        if len(varying) == 1 and varying[0] == (lanes.var, 2):
            return self.load_pairs(buffer, ix, mask, depth), lanes.width
        if guard is None and len(varying) == 1 and varying[0][0] is lanes.var:
            return self.load_steps(buffer, ix, varying[0][1], depth), lanes.width
        return self.gather(buffer, ix, mask, depth), lanes.width

    def load_guarded(self, buffer: Buffer, ix: Ix, guard: X, depth: int) -> Value:
        """A scalar load that reads the first element where the guard does not hold."""
        condition, _ = self.x(guard)
        place = self.ix(ix)
        safe = self.scalar(f"select i1 {condition}, i64 {place}, i64 0", "i64", depth)
        pointer = self.scalar(f"getelementptr {_element(buffer.dtype)}, ptr {self.base(buffer)}, i64 {safe}", "ptr", depth)
        return self.load_at(pointer, buffer.dtype, depth)

    def load_at(self, pointer: str, dtype: DType, depth: int) -> Value:
        em = self.one
        name = em.fresh()
        self.scopes[depth].lines.append(f"  {name} = load {em.mem_vt(dtype)}, ptr {pointer}, align {_align(dtype)}")
        return self.write(depth, lambda: em.from_memory(name, dtype))

    def load_block(self, pointer: str, dtype: DType, width: int, mask: Val | None, depth: int) -> Value:
        """Neighbouring elements as one vector load."""
        em = self.emitter(width)
        vt, name = em.mem_vt(dtype), em.fresh()
        lines = self.scopes[depth].lines
        if mask is None:
            lines.append(f"  {name} = load {vt}, ptr {pointer}, align {_align(dtype)}")
        else:
            n, m = width, str(mask)
            if dtype.kind == "c":
                n, m = 2 * width, self.double_mask(mask, width)
            mangled = _vector_name(n, mem_type(dtype))
            self.module.declarations[f"@ml.{mangled}"] = (
                f"declare {vt} @llvm.masked.load.{mangled}.p0(ptr, i32 immarg, <{n} x i1>, {vt})"
            )
            lines.append(
                f"  {name} = call {vt} @llvm.masked.load.{mangled}.p0(ptr {pointer}, i32 {_align(dtype)}, "
                f"<{n} x i1> {m}, {vt} zeroinitializer)"
            )
        return self.write(depth, lambda: em.from_memory(name, dtype))

    def load_turned(self, e: X) -> Value:
        """A row of a transposed tile."""
        place, top = self.tiles[e]
        dtype, here = e.dtype, self.here()
        assert self.lanes is not None
        em = self.emitter(self.lanes.width)
        vt = em.mem_vt(dtype)
        row = next(self.names[v] for v in e.vars if self.depths[v] == here)
        at = self.scalar(f"sub i64 {row}, {top}", "i64", here)
        pointer = self.scalar(f"getelementptr {vt}, ptr {place}, i64 {at}", "ptr", here)
        name = em.fresh()
        self.scopes[here].lines.append(f"  {name} = load {vt}, ptr {pointer}, align 64")
        return self.write(here, lambda: em.from_memory(name, dtype))

    def load_steps(self, buffer: Buffer, ix: Ix, step: int, depth: int) -> Value:
        """Elements at even steps, one load per lane: faster than gathers, which many machines do in microcode.

        Lanes beyond the end read the last element once more.
        """
        lanes = self.lanes
        assert lanes is not None
        pointer, by, t = self.pointer(buffer, ix), self.slot(step), _element(buffer.dtype)
        pointers = [pointer]
        for k in range(1, lanes.width):
            stride = by
            if lanes.left:
                more = self.scalar(f"icmp sgt i64 {lanes.left}, {k}", "i1", depth)
                stride = self.scalar(f"select i1 {more}, i64 {by}, i64 0", "i64", depth)
            pointers.append(self.scalar(f"getelementptr {t}, ptr {pointers[-1]}, i64 {stride}", "ptr", depth))
        return self.load_each(pointers, buffer.dtype, depth)

    def load_pairs(self, buffer: Buffer, ix: Ix, mask: Val | None, depth: int) -> Value:
        """Every other element: two vectors that overlap by one element (so nothing beyond the last is read), then a shuffle."""
        assert self.lanes is not None
        w, dtype = self.lanes.width, buffer.dtype
        em = self.emitter(w)
        low, high = mask, mask
        if mask is not None:
            low = self.shuffled(mask, em.const("i1", False), [k // 2 if k % 2 == 0 else w for k in range(w)], depth)
            high = self.shuffled(mask, em.const("i1", False), [(k + w - 1) // 2 if (k + w - 1) % 2 == 0 else w for k in range(w)], depth)
        pointer = self.pointer(buffer, ix)
        after = self.scalar(f"getelementptr {_element(dtype)}, ptr {pointer}, i64 {w - 1}", "ptr", depth)
        first = self.load_block(pointer, dtype, w, low, depth)
        second = self.load_block(after, dtype, w, high, depth)
        order = [2 * k if 2 * k < w else w + 2 * k - (w - 1) for k in range(w)]
        if isinstance(first, tuple):
            return tuple(self.shuffled(a, b, order, depth) for a, b in zip(first, second, strict=True))
        return self.shuffled(first, second, order, depth)

    def shuffled(self, a: Val, b: Val, order: Sequence[int], depth: int) -> Val:
        """Lanes picked from two vectors, the second one's counted on."""
        mask = f"<{len(order)} x i32> <" + ", ".join(f"i32 {k}" for k in order) + ">"
        em = a.em
        return self.write(depth, lambda: em.emit(f"shufflevector {a.vt} {a}, {b.vt} {b}, {mask}", a.type))  # type: ignore[no-any-return]

    def load_each(self, pointers: Sequence[str], dtype: DType, depth: int) -> Value:
        """One element per lane, from an address each."""
        em, t = self.emitter(len(pointers)), mem_type(dtype)
        lines = self.scopes[depth].lines
        parts = []
        for part in range(2 if dtype.kind == "c" else 1):
            if part:
                pointers = [self.scalar(f"getelementptr {t}, ptr {p}, i64 1", "ptr", depth) for p in pointers]
            # Eight lanes at a time, joined in pairs: LLVM's cost of a chain of insertions grows with the square of the lanes.
            held = [(self.insert_each(pointers[i : i + 8], t, dtype, depth), len(pointers[i : i + 8])) for i in range(0, len(pointers), 8)]
            while len(held) > 1:
                held = [self.join_lanes(held[i : i + 2], t, lines, em) for i in range(0, len(held), 2)]
            parts.append(em.val(held[0][0], t))
        return tuple(parts) if dtype.kind == "c" else self.write(depth, lambda: em.from_memory(parts[0], dtype))

    def insert_each(self, pointers: Sequence[str], t: str, dtype: DType, depth: int) -> str:
        """A short vector of elements from an address each."""
        em, lines = self.emitter(len(pointers)), self.scopes[depth].lines
        vector = "poison"
        for k, pointer in enumerate(pointers):
            one, new = em.fresh(), em.fresh()
            lines.append(f"  {one} = load {t}, ptr {pointer}, align {_align(dtype)}")
            if len(pointers) == 1:
                return one
            lines.append(f"  {new} = insertelement {em.vt(t)} {vector}, {t} {one}, i64 {k}")
            vector = new
        return vector

    @staticmethod
    def join_lanes(pair: Sequence[tuple[str, int]], t: str, lines: list[str], em: Emitter) -> tuple[str, int]:
        """Two vectors of equal length as one."""
        if len(pair) == 1:
            return pair[0]
        (a, n), (b, _) = pair
        name = em.fresh()
        order = ", ".join(f"i32 {i}" for i in range(2 * n))
        lines.append(f"  {name} = shufflevector <{n} x {t}> {a}, <{n} x {t}> {b}, <{2 * n} x i32> <{order}>")
        return name, 2 * n

    def gather(self, buffer: Buffer, ix: Ix, mask: Val | None, depth: int) -> Value:
        """One element per lane from anywhere; lanes that are masked off read the first element."""
        assert self.lanes is not None
        w = self.lanes.width
        em = self.emitter(w)
        places = self.vector_ix(ix) if self.varies(ix.vars) else self.spread_ix(ix, w)
        if mask is not None:
            places = self.write(depth, lambda: em.select(mask, places, em.const("i64", 0)))
        base, t = self.base(buffer), _element(buffer.dtype)
        pointers = []
        for k in range(w):
            at = self.scalar(f"extractelement {places.vt} {places}, i64 {k}", "i64", depth)
            pointers.append(self.scalar(f"getelementptr {t}, ptr {base}, i64 {at}", "ptr", depth))
        return self.load_each(pointers, buffer.dtype, depth)

    def spread_ix(self, ix: Ix, width: int) -> Val:
        """An index that all lanes share, in a vector."""
        place, em = self.ix(ix), self.emitter(width)
        return self.write(self.depth(ix.vars), lambda: em.splat(place, "i64"))  # type: ignore[no-any-return]

    def gather_at(self, pointers: str, dtype: DType, w: int, mask: Val | None, depth: int) -> Value:
        """One element per lane from a vector of addresses, of which masked ones are not touched."""
        em, t = self.emitter(w), mem_type(dtype)
        mangled = _vector_name(w, t)
        m = str(mask) if mask is not None else str(em.const("i1", True))
        self.module.declarations[f"@ga.{mangled}"] = (
            f"declare <{w} x {t}> @llvm.masked.gather.{mangled}.v{w}p0(<{w} x ptr>, i32 immarg, <{w} x i1>, <{w} x {t}>)"
        )
        parts = []
        for k in range(2 if dtype.kind == "c" else 1):
            p = self.offset_pointers(pointers, t, w, depth) if k else pointers
            name = em.fresh()
            self.scopes[depth].lines.append(
                f"  {name} = call <{w} x {t}> @llvm.masked.gather.{mangled}.v{w}p0(<{w} x ptr> {p}, i32 {_align(dtype)}, "
                f"<{w} x i1> {m}, <{w} x {t}> zeroinitializer)"
            )
            parts.append(name)
        if dtype.kind == "c":
            return tuple(em.val(n, t) for n in parts)
        return self.write(depth, lambda: em.from_memory(parts[0], dtype))


class Accumulator:
    """What a reduction carries for one item at one width: a value, its two parts if complex, or a value and its position."""

    __slots__ = ("dtype", "item", "positioned", "printer", "types", "width")

    def __init__(self, printer: Printer, item: Item, width: int, scan: bool = False) -> None:
        self.printer, self.item, self.width = printer, item, width
        self.dtype = item.value.dtype
        self.positioned = item.position is not None
        em = printer.emitter(width)
        vt = em.vt(reg_type(self.dtype))
        self.types = [vt, em.vt("i64")] if self.positioned else [vt, vt] if self.dtype.kind == "c" else [vt]

    def start(self) -> list[str]:
        """The identity of the operation."""
        em = self.printer.emitter(self.width)
        first = em.number(identity(self.item.op, self.dtype), self.dtype)
        parts = list(first) if isinstance(first, tuple) else [first]
        if self.positioned:
            parts.append(em.const("i64", -1 if self.item.op.startswith("last") else INT64_MAX))
        return [str(p) for p in parts]

    def wrap(self, names: Sequence[str]) -> tuple[Val, ...]:
        em = self.printer.emitter(self.width)
        t = reg_type(self.dtype)
        if self.positioned:
            return em.val(names[0], t), em.val(names[1], "i64")
        return tuple(em.val(n, t) for n in names)

    def unpack(self, value: Sequence[Val]) -> Value:
        return tuple(value) if self.dtype.kind == "c" else value[0]

    def incoming(self, depth: int) -> tuple[Val, ...]:
        """The item's value at this step; the identity in lanes that are masked off."""
        p, em = self.printer, self.printer.emitter(self.width)
        value = p.wide(self.item.value, self.width)
        parts = tuple(value) if isinstance(value, tuple) else (value,)
        if self.positioned:
            assert self.item.position is not None
            parts = (*parts, p.wide(self.item.position, self.width))
        mask = p.lanes.mask if p.lanes is not None else None
        if mask is None:
            return parts
        start = self.wrap(self.start())
        return tuple(p.write(depth, lambda a=a, b=b: em.select(mask, a, b)) for a, b in zip(parts, start, strict=True))

    def merge(self, depth: int, a: Sequence[Val], b: Sequence[Val]) -> tuple[Val, ...]:
        """The two combined; `b` came later."""
        em, op = self.printer.emitter(self.width), self.item.op
        if not self.positioned:
            def emit() -> tuple[Val, ...]:
                out = em.op(op, [self.unpack(a), self.unpack(b)], [self.dtype, self.dtype], self.dtype)
                return tuple(out) if isinstance(out, tuple) else (out,)

            return self.printer.write(depth, emit)  # type: ignore[no-any-return]
        return self.printer.write(depth, lambda: merge_positions(em, op, a, b, self.dtype))  # type: ignore[no-any-return]

    def narrow(self, depth: int, value: Sequence[Val], width: int) -> tuple[Val, ...]:
        """Combine lanes by halves until `width` are left."""
        have = self.width
        current = tuple(value)
        before = self.width
        while have > width:
            have //= 2
            halves = self.printer.write(depth, lambda: [_halves(v, have) for v in current])  # noqa: B023
            self.width = have
            current = self.merge(depth, [h[0] for h in halves], [h[1] for h in halves])
        self.width = before
        return current


def _halves(v: Val, width: int) -> tuple[Val, Val]:
    """The lower and the upper half of a vector's lanes."""
    narrow = v.em.at(width)
    low, high = (
        narrow.emit(f"extractelement {v.vt} {v}, i64 {start}", v.type)
        if width == 1
        else narrow.emit(f"shufflevector {v.vt} {v}, {v.vt} poison, {_lanes(start, width)}", v.type)
        for start in (0, width)
    )
    return low, high


def _lanes(start: int, count: int) -> str:
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
    """The more extreme of two (value, position) pairs; NaN beats all; ties go to the first (`last...`: to the last) position."""
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


def identity(op: str, dtype: DType) -> Any:
    """The number that `op` leaves everything as it is with."""
    if op == "add" or op == "bitwise_or" or op == "bitwise_xor":
        return False if dtype is BOOL else 0
    if op == "mul":
        return True if dtype is BOOL else 1
    if op == "bitwise_and":
        return True if dtype is BOOL else -1
    least = op.endswith("max") or op == "maximum"
    if dtype is BOOL:
        return not least
    if dtype.kind == "f":
        return float("-inf") if least else float("inf")
    bits = 8 * dtype.itemsize
    if dtype.kind == "u":
        return 0 if least else (1 << bits) - 1
    return -(1 << (bits - 1)) if least else (1 << (bits - 1)) - 1


def _deal(accs: Sequence[Accumulator], names: Sequence[str]) -> list[list[str]]:
    """The flat list of carried names, cut to each accumulator's share."""
    result, at = [], 0
    for acc in accs:
        result.append(list(names[at : at + len(acc.types)]))
        at += len(acc.types)
    return result


def _align(dtype: DType) -> int:
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def _stream_align(s: Store) -> int:
    return 64 if s.stream else _align(s.buffer.dtype)


def _element(dtype: DType) -> str:
    return f"[2 x {mem_type(dtype)}]" if dtype.kind == "c" else mem_type(dtype)


_MANGLED = {"float": "f32", "double": "f64", "half": "f16"}


def _vector_name(n: int, type: str) -> str:
    return f"v{n}{_MANGLED.get(type, type)}"


def print_kernel(kernel: Kernel, name: str, *, fma: bool, bits: int) -> str:
    """The LLVM module that defines `i32 @name(ptr bufs, ptr ints, i64 piece)`, for vectors of `bits`."""
    return Printer(kernel, name, fma, bits).text()
