"""Scans, gathers, histograms, atomics, prints, assertions and checks of bounds as vector code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from rushlight._codegen.scalar import Val
from rushlight._types.dtype import FLOAT64, DType

from ..ir import Op, Value
from ..types import Pointer
from .function import Found, splat_to
from .groups import Group, Groups, Keep
from .memory import Buffer, element_bytes, lane, memory_type
from .values import ZERO, Dim, Index, Values

__all__ = ["Others"]


class Emitting(Protocol):
    """The emitter of a kernel, as these operations use it."""

    places: list[str]

    def flush(self) -> None: ...
    def settle(self, operands: Sequence[Value]) -> None: ...
    def tile(self, value: Value) -> Buffer: ...
    def site(self, op: Op) -> int: ...


class Others:
    def __init__(self, values: Values, groups: Groups, kernel: Emitting) -> None:
        self.values, self.groups, self.kernel, self.fn = values, groups, kernel, values.fn

    def over(self, shape: Sequence[int], body: Callable[[Index], None]) -> None:
        """A loop over the elements of a shape, one by one."""
        fn, index = self.fn, [ZERO] * len(shape)
        parent_floor = self.values.floor
        with fn.isolated():
            self.values.floor, self.values.width = fn.here, 1
            self.values.memo.clear()

            def nest(k: int) -> None:
                if k == len(shape):
                    body(tuple(index))
                    return

                def turn(place: str | int, _: list[str]) -> list[str]:
                    index[k] = Dim(place, 0 if isinstance(place, int) else fn.here)
                    nest(k + 1)
                    return []

                fn.loop(0, shape[k], 1, (), turn)

            nest(0)
        self.values.floor = parent_floor
        self.values.memo.clear()

    # ***** scans *****

    def do_scan(self, op: Op) -> None:
        """One dim after another element; the other dims in vectors where they are long."""
        self.kernel.settle(op.operands)
        self.kernel.flush()
        axis, reverse, shape = op.attributes["axis"], op.attributes.get("reverse", False), op.operands[0].shape
        buffers = [self.groups.allocate(v.type.element, v.shape) for v in op.operands]
        fn, values = self.fn, self.values
        others = [d for d in range(len(shape)) if d != axis and shape[d] > 1]
        lane_dim = max(others, key=lambda d: (shape[d] & -shape[d], d), default=None)
        width = 1
        if lane_dim is not None:
            width = min(shape[lane_dim] & -shape[lane_dim], max(fn.machine.vector_bytes // 4, 4))
            others.remove(lane_dim)
        index: list[Dim] = [ZERO] * len(shape)
        floor = values.floor
        with fn.isolated():
            values.floor, values.width = fn.here, width
            values.memo.clear()

            def nest(k: int) -> None:
                if k < len(others):
                    self.groups.dim_loop(index, others[k], shape[others[k]], 1, lambda: nest(k + 1))
                elif lane_dim is not None and k == len(others):
                    self.groups.dim_loop(index, lane_dim, shape[lane_dim], width, lambda: nest(k + 1), width > 1)
                else:
                    self.scanned(op, index, axis, reverse, width, buffers)

            nest(0)
        values.floor = floor
        values.memo.clear()
        values.buffers.update(zip(op.results, buffers, strict=True))

    def scanned(
        self, op: Op, index: list[Dim], axis: int, reverse: bool, width: int, buffers: Sequence[Buffer]
    ) -> None:
        fn, values, size = self.fn, self.values, op.operands[0].shape[axis]

        def elements(place: str | int) -> list[Any]:
            if reverse:
                place = (
                    size - 1 - place
                    if isinstance(place, int)
                    else fn.scalar(f"sub i64 {size - 1}, {place}", "i64", fn.here)
                )
            index[axis] = Dim(place, 0 if isinstance(place, int) else fn.here)
            return [splat_to(fn, values.at(v, tuple(index)), width) for v in op.operands]

        def put(totals: Sequence[Any]) -> list[tuple[str, str]]:
            for buffer, total in zip(buffers, totals, strict=True):
                self.groups.keep(buffer, tuple(index), Found(total, fn.here))
            return [(p.vt, str(p)) for t in totals for p in (t if isinstance(t, tuple) else (t,))]

        first = put(elements(0))

        def turn(place: str | int, names: list[str]) -> list[str]:
            right, left, at = elements(place), [], 0
            for x in right:
                parts = x if isinstance(x, tuple) else (x,)
                made = [p.em.val(n, p.type) for p, n in zip(parts, names[at : at + len(parts)], strict=True)]
                at += len(parts)
                left.append(tuple(made) if isinstance(x, tuple) else made[0])
            return [n for _, n in put(values.combine(op.regions[0], left, right, width, fn.here))]

        if size > 1:
            fn.loop(1, size, 1, first, turn)

    # ***** tiles made of tiles in memory *****

    def do_gather(self, op: Op) -> None:
        self.kernel.settle(op.operands)
        source = self.kernel.tile(op.operands[0])
        self.kernel.flush()
        axis, out = op.attributes["axis"], self.groups.allocate(op.result.type.element, op.result.shape)

        def element(index: Index) -> None:
            place = self.values.at(op.operands[1], index)
            signed = op.operands[1].dtype.is_signed
            wide = self.fn.write(place.depth, lambda: place.value.to("i64", signed))
            at = (*index[:axis], Dim(str(wide), place.depth), *index[axis + 1 :])
            self.groups.keep(out, index, self.values.stored(source, at))

        self.over(op.result.shape, element)
        self.values.buffers[op.result] = out

    def do_cat(self, op: Op) -> None:
        self.kernel.settle(op.operands)
        self.kernel.flush()
        out = self.groups.allocate(op.result.type.element, op.result.shape)
        start = 0
        for value in op.operands:
            size = element_bytes(out.element)
            pointer = out.pointer
            if start:
                pointer = self.fn.fresh_here(
                    f"getelementptr i8, ptr {out.pointer}, i64 {start * out.strides[0] * size}"
                )
            group = Group(value.shape)
            group.keeps.append(Keep(value, Buffer(pointer, out.element, out.strides), lambda found: found))
            self.groups.write(group)
            start += value.shape[0]
        self.values.buffers[op.result] = out

    def do_histogram(self, op: Op) -> None:
        bins = op.attributes["bins"]
        self.kernel.settle(op.operands)
        self.kernel.flush()
        out = self.groups.allocate(op.result.type.element, (bins,))
        fn, signed = self.fn, op.operands[0].dtype.is_signed
        memset = fn.intrinsic("llvm.memset.p0.i64", "void", "ptr", "i8", "i64", "i1")
        fn.line(f"call void {memset}(ptr {out.pointer}, i8 0, i64 {4 * bins}, i1 false)")

        def element(index: Index) -> None:
            found = self.values.at(op.operands[0], index)
            counted = fn.write(found.depth, lambda: found.value.to("i64", signed))
            inside = str(fn.write(found.depth, lambda: counted.lt(bins, signed=False)))
            if len(op.operands) > 1:
                mask = self.values.at(op.operands[1], index)
                inside = fn.scalar(f"and i1 {inside}, {mask.value}", "i1", fn.here)
            place = fn.fresh_here(f"getelementptr i32, ptr {out.pointer}, i64 {counted}")
            place = fn.fresh_here(f"select i1 {inside}, ptr {place}, ptr {self.values.memory.dummy()}")
            old = fn.fresh_here(f"load i32, ptr {place}, align 4")
            fn.line(f"store i32 {fn.fresh_here(f'add i32 {old}, 1')}, ptr {place}, align 4")

        self.over(op.operands[0].shape, element)
        self.values.buffers[op.result] = out

    # ***** atomics *****

    def do_atomic(self, op: Op) -> None:
        self.elementwise(op, lambda xs, mask: self.atomic(op, xs, mask))

    def do_atomic_cas(self, op: Op) -> None:
        self.elementwise(op, lambda xs, mask: self.exchange(op, xs))

    def elementwise(self, op: Op, emit: Callable[[list[Any], Any], str]) -> None:
        """An operation that gives one element for one element, in order."""
        fn, values, shape = self.fn, self.values, op.result.shape
        self.kernel.settle(op.operands)
        self.kernel.flush()
        out = self.groups.allocate(op.result.type.element, shape) if shape else None
        element = op.result.type.element
        assert isinstance(element, DType)
        results: list[Found] = []

        def one(index: Index) -> None:
            founds = [values.at(v, index) for v in op.operands]
            has_mask = op.kind == "atomic" and len(founds) == 3
            mask = founds.pop() if has_mask else None
            if values.check is not None:
                values.check(op, None, founds[0], mask, 1)
            raw = emit([f.value for f in founds], None if mask is None else str(mask.value))
            value = fn.write(fn.here, lambda: values.memory.from_memory(raw, element, 1))
            if out is not None:
                self.groups.keep(out, index, Found(value, fn.here))
            else:
                results.append(Found(value, fn.here - 1))

        self.over(shape, one)
        if out is not None:
            values.buffers[op.result] = out
        else:
            values.scalars[op.result] = results[0]

    def atomic(self, op: Op, xs: list[Any], mask: str | None) -> str:
        """One atomic combination; what was there before, in the form of memory."""
        fn, element = self.fn, op.result.dtype
        pointer, value = str(xs[0]), xs[1]
        if mask is not None:
            pointer = fn.fresh_here(f"select i1 {mask}, ptr {pointer}, ptr {self.values.memory.dummy()}")
        how, combine = self.order(op), op.attributes["combine"]
        raw = fn.write(fn.here, lambda: self.values.memory.to_memory(value, element))
        type = memory_type(element)
        name = _INSTRUCTIONS.get((combine, "u" if element.kind == "b" else element.kind))
        if name is None:
            raise NotImplementedError(f"atomic {combine} of {element.name}")
        if element.wide is element or combine == "xchg":
            plain = name in ("xchg", "fadd") or element.kind != "f"
            if plain:
                return fn.fresh_here(f"atomicrmw {name} ptr {pointer}, {type} {raw} {how}, align {element.itemsize}")
        return self.swapped(op, pointer, value, how)

    def swapped(self, op: Op, pointer: str, value: Any, how: str) -> str:
        """Load, combine, compare and exchange, until nobody came between."""
        fn, element, em = self.fn, op.result.dtype, self.fn.one
        type, bits = memory_type(element), f"i{8 * element.itemsize}"
        prim = {"add": "add", "max": "maximum", "min": "minimum"}[op.attributes["combine"]]
        parent = fn.scopes[-1]
        head, done, old = fn.label("again"), fn.label("done"), em.fresh()
        first = fn.fresh_here(f"load atomic {bits}, ptr {pointer} monotonic, align {element.itemsize}")
        entry = parent.label
        fn.line(f"br label %{head}")
        parent.lines.append(f"{head}:")
        seen = em.fresh()
        fn.line(f"{old} = phi {bits} [ {first}, %{entry} ], [ {seen}, %{head} ]")
        parent.label = head

        def combined() -> str:
            raw = em.bitcast(em.val(old, bits), type)
            current = self.values.memory.from_memory(str(raw), element, 1)
            wide = [em.op("convert", [x], [element], element.wide) for x in (current, value)]
            made = em.op("convert", [em.op(prim, wide, [element.wide] * 2, element.wide)], [element.wide], element)
            return str(em.bitcast(self.values.memory.to_memory(made, element), bits))

        with fn.isolated():
            new = fn.write(fn.here, combined)
        success = how if how not in ("monotonic",) else "monotonic"
        failure = "acquire" if how in ("acquire", "acq_rel") else "monotonic"
        pair = fn.fresh_here(
            f"cmpxchg ptr {pointer}, {bits} {old}, {bits} {new} {success} {failure}, align {element.itemsize}"
        )
        fn.line(f"{seen} = extractvalue {{ {bits}, i1 }} {pair}, 0")
        good = fn.fresh_here(f"extractvalue {{ {bits}, i1 }} {pair}, 1")
        fn.line(f"br i1 {good}, label %{done}, label %{head}")
        parent.lines.append(f"{done}:")
        parent.label = done
        return fn.fresh_here(f"bitcast {bits} {old} to {type}") if bits != type else old

    def exchange(self, op: Op, xs: list[Any]) -> str:
        fn, element = self.fn, op.result.dtype
        bits, type = f"i{8 * element.itemsize}", memory_type(element)

        def as_bits(value: Any) -> str:
            raw = self.values.memory.to_memory(value, element)
            return str(raw.em.bitcast(raw, bits))

        expected, value = (fn.write(fn.here, partial(as_bits, x)) for x in xs[1:])
        how = self.order(op)
        failure = "acquire" if how in ("acquire", "acq_rel") else "monotonic"
        pair = fn.fresh_here(
            f"cmpxchg ptr {xs[0]}, {bits} {expected}, {bits} {value} {how} {failure}, align {element.itemsize}"
        )
        old = fn.fresh_here(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
        return fn.fresh_here(f"bitcast {bits} {old} to {type}") if bits != type else old

    def order(self, op: Op) -> str:
        return {"relaxed": "monotonic"}.get(
            op.attributes.get("order", "acq_rel"), op.attributes.get("order", "acq_rel")
        )

    # ***** what a program says *****

    def do_assert(self, op: Op) -> None:
        fn, condition = self.fn, op.operands[0]
        self.kernel.settle(op.operands)
        self.kernel.flush()

        def element(index: Index) -> None:
            found = self.values.at(condition, index)
            bad = fn.scalar(f"xor i1 {found.value}, true", "i1", fn.here)
            fn.stop_if(bad, lambda: self.report(1, self.kernel.site(op), "null", 0))

        self.over(condition.shape, element)

    def report(self, code: int, site: int, address: str, size: int) -> str:
        """Write what failed; its code."""
        fn = self.fn
        words: list[tuple[int, str]] = [(0, str(code)), (1, str(site)), (6, str(size))]
        words += [(3 + k, fn.fresh_here(f"zext i32 {p} to i64")) for k, p in enumerate(self.kernel.places)]
        for word, value in words:
            fn.line(f"store i64 {value}, ptr {fn.fresh_here(f'getelementptr i64, ptr %report, i64 {word}')}, align 8")
        fn.line(f"store ptr {address}, ptr {fn.fresh_here('getelementptr i64, ptr %report, i64 2')}, align 8")
        return str(code)

    def check(self, op: Op, pointers: Val | None, first: Found, mask: Found | None, width: int) -> None:
        """Hold the addresses of an access against the ranges of memory in the report: `width` neighbours from the first
        on, or those of all lanes.
        """
        fn = self.fn
        element = (op.operands[1] if op.kind != "load" else op.result).type.element
        size = element_bytes(element)
        fn.module.definitions.setdefault("@rl_block_inside", _INSIDE)
        m = None if mask is None else splat_to(fn, mask, width)
        for k in range(width):
            if pointers is not None:
                address = str(fn.write(fn.here, partial(lane, pointers, k)))
            else:
                address = fn.fresh_here(f"getelementptr i8, ptr {first.value}, i64 {k * size}")
            good = fn.fresh_here(f"call i1 @rl_block_inside(ptr %report, ptr {address}, i64 {size})")
            bad = fn.fresh_here(f"xor i1 {good}, true")
            if m is not None:
                bad = fn.fresh_here(f"and i1 {bad}, {fn.write(fn.here, partial(lane, m, k))}")
            fn.stop_if(bad, partial(self.report, 2, self.kernel.site(op), address, size))

    def do_print(self, op: Op) -> None:
        """`pid (x, y, z) idx (i, ...) prefix value`, a line for each element, to standard output."""
        fn = self.fn
        self.kernel.settle(op.operands)
        self.kernel.flush()
        fn.module.declarations["@dprintf"] = "declare i32 @dprintf(i32, ptr, ...)"
        prefix = op.attributes.get("prefix", "")
        if not op.operands:
            self.printed(f"pid (%d, %d, %d) {_escaped(prefix)}\n", [("i32", p) for p in self.kernel.places])
        for n, value in enumerate(op.operands):
            operand = f" (operand {n})" if len(op.operands) > 1 else ""

            def element(index: Index, value: Value = value, operand: str = operand) -> None:
                found = self.values.at(value, index)
                places = [("i64", str(d.base)) for d in index]
                shown, type, text = self.shown(value, found, op.attributes.get("hex", False))
                idx = f" idx ({', '.join(['%ld'] * len(index))})" if index else ""
                form = f"pid (%d, %d, %d){idx} {_escaped(prefix)}{operand} {shown}\n"
                self.printed(form, [*(("i32", p) for p in self.kernel.places), *places, (type, text)])

            self.over(value.shape, element)

    def shown(self, value: Value, found: Found, hexadecimal: bool) -> tuple[str, str, str]:
        """The form of a value in a line, and what is passed for it."""
        fn, element = self.fn, value.type.element
        if isinstance(element, Pointer):
            return "0x%016lx", "ptr", str(found.value)
        if element.kind == "f":
            wide = fn.write(fn.here, lambda: fn.one.op("convert", [found.value], [element], FLOAT64))
            return "%g", "double", str(wide)
        signed = element.kind != "b" and element.is_signed and not hexadecimal
        wide = fn.write(fn.here, lambda: found.value.to("i64", signed))
        return (f"0x%0{2 * element.itemsize}lx" if hexadecimal else "%ld" if signed else "%lu"), "i64", str(wide)

    def printed(self, form: str, arguments: Sequence[tuple[str, str]]) -> None:
        fn = self.fn
        data = form.encode() + b"\0"
        text = "".join(chr(c) if 32 <= c < 127 and c not in (34, 92) else f"\\{c:02X}" for c in data)
        name = f"@rl_text{len(fn.module.definitions)}"
        fn.module.definitions[name] = f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{text}"'
        passed = ", ".join(f"{t} {v}" for t, v in arguments)
        fn.fresh_here(f"call i32 (i32, ptr, ...) @dprintf(i32 1, ptr {name}{', ' + passed if passed else ''})")


def _escaped(text: str) -> str:
    return text.replace("%", "%%")


_INSTRUCTIONS = {
    ("add", "f"): "fadd", ("add", "i"): "add", ("add", "u"): "add", ("max", "i"): "max", ("max", "u"): "umax", ("min", "i"): "min",
    ("min", "u"): "umin", ("max", "f"): "maximum", ("min", "f"): "minimum", ("and", "i"): "and", ("and", "u"): "and", ("or", "i"): "or",
    ("or", "u"): "or", ("xor", "i"): "xor", ("xor", "u"): "xor", ("xchg", "i"): "xchg", ("xchg", "u"): "xchg", ("xchg", "f"): "xchg",
}  # fmt: skip
_INSIDE = """define internal i1 @rl_block_inside(ptr %report, ptr %p, i64 %size) nounwind {
entry:
  %address = ptrtoint ptr %p to i64
  %end = add i64 %address, %size
  %count.p = getelementptr i64, ptr %report, i64 7
  %count = load i64, ptr %count.p, align 8
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %no
body:
  %twice = shl i64 %i, 1
  %word = add i64 %twice, 8
  %low.p = getelementptr i64, ptr %report, i64 %word
  %low = load i64, ptr %low.p, align 8
  %high.p = getelementptr i64, ptr %low.p, i64 1
  %high = load i64, ptr %high.p, align 8
  %after = icmp uge i64 %address, %low
  %before = icmp ule i64 %end, %high
  %inside = and i1 %after, %before
  %next = add i64 %i, 1
  br i1 %inside, label %yes, label %head
yes:
  ret i1 true
no:
  ret i1 false
}"""
