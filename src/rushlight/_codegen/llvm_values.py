"""Scalar expressions as LLVM text, each once per scope, and stores of them."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._codegen.llvm_memory import Loads
from rushlight._codegen.llvm_scope import Lanes, Value, align_of, element_type, vector_name
from rushlight._codegen.loops import number_slot
from rushlight._codegen.scalar import UNROUNDED, Val, bfloat16_part, mem_type, reg_type
from rushlight._schedule.expressions import Store, X
from rushlight._schedule.indexing import Ix
from rushlight._types.dtype import BFLOAT16, FLOAT32, FLOAT64, INT64, DType

__all__ = ["Values"]


def is_bfloat16(x: X) -> bool:
    """Whether a float can only be one that bfloat16 holds, or a NaN."""
    if x.kind == "const":
        return x.dtype is FLOAT32 and x.value in (0.0, 1.0, -1.0, float("inf"), float("-inf"))
    if x.kind != "op":
        return False
    prim, _ = x.value
    if prim == "convert":
        return x.dtype is FLOAT32 and x.args[0].dtype is BFLOAT16
    return (prim in UNROUNDED and all(map(is_bfloat16, x.args))) or (
        prim == "select" and all(map(is_bfloat16, x.args[1:]))
    )


class Values(Loads):
    """Writes expressions and stores."""

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
        return found

    def constant(self, e: X, width: int) -> Value:
        key = number_slot(e.value, e.dtype)
        if key is None:
            return self.emitter(width).number(e.value, e.dtype)
        if isinstance(key, int):
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
            return self.write(depth, lambda: tuple(em.splat(v, v.type) for v in value))
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
        if dtype.wide is not dtype and dtype.name != "float16":
            value, part = self.one.val(name, "double"), dtype.to_real()
            return str(self.write(0, lambda: self.one.op("convert", [value], [FLOAT64], part, {"dtype": part})))
        return self.scalar(f"fptrunc double {name} to {reg_type(dtype)}", reg_type(dtype), 0)

    def x_op(self, e: X, depth: int) -> tuple[Value, int]:
        prim, params = e.value
        args = []
        for a in e.args:  # a comprehension would be a frame more for every step of a long chain
            args.append(self.x(a))
        width = max(w for _, w in args)
        values = [v if w == width else self.spread(a, width) for a, (v, w) in zip(e.args, args, strict=True)]
        if width > 1:
            values = [v if a.kind != "const" else self.constant(a, width) for a, v in zip(e.args, values, strict=True)]
        em = self.emitter(width)
        dtypes = [a.dtype for a in e.args]
        given = dict(params)
        if prim == "convert" and e.dtype is BFLOAT16 and is_bfloat16(e.args[0]):
            return self.write(depth, lambda: bfloat16_part(values[0])), width
        if prim in ("convert", "bitcast"):
            given["dtype"] = e.dtype
        return self.write(depth, lambda: em.op(prim, values, dtypes, e.dtype, given)), width

    def x_ix(self, e: X, depth: int) -> tuple[Value, int]:
        wide = self.varies(e.vars)
        value = self.vector_ix(e.value) if wide else self.one.val(self.ix(e.value), "i64")
        em = self.emitter(value.em.width)
        if e.dtype is INT64:
            return value, em.width
        return self.write(depth, lambda: em.op("convert", [value], [INT64], e.dtype, {"dtype": e.dtype})), em.width

    def x_inrange(self, e: X, depth: int) -> tuple[Value, int]:
        ix, lo, hi = e.value
        if self.varies(e.vars):
            varying = [(a, c) for a, c in ix.terms if self.varies(a.vars)]
            if (
                self.lanes is not None
                and len(varying) == 1
                and varying[0][0] is self.lanes.var
                and varying[0][1] in (1, 2)
            ):
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

        return self.write(depth, emit)

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
        if not varying and mask is not None:
            return self.load_common(buffer, ix, mask, depth), 1
        if len(varying) == 1 and varying[0] == (lanes.var, 1):
            return self.load_block(self.pointer(buffer, ix), buffer.dtype, lanes.width, mask, depth), lanes.width
        if len(varying) == 1 and varying[0] == (lanes.var, -1):
            return self.load_backwards(buffer, ix, mask, depth), lanes.width
        if len(varying) == 1 and varying[0] == (lanes.var, 2):
            return self.load_pairs(buffer, ix, mask, depth), lanes.width
        if guard is None and len(varying) == 1 and varying[0][0] is lanes.var:
            return self.load_steps(buffer, ix, varying[0][1], depth), lanes.width
        return self.gather(buffer, ix, mask, depth), lanes.width

    def s_Store(self, s: Store) -> None:
        value, width = self.x(s.value)
        lanes = self.lanes
        wide = lanes is not None and (
            lanes.var in s.ix.vars or width > 1 or (s.guard is not None and lanes.var in s.guard.vars)
        )
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
        scope.lines.append(f"  store {em.mem_vt(dtype)} {raw}, ptr {pointer}, align {align_of(dtype)}")
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
                lines.append(f"  store {vt} {raw}, ptr {pointer}, align {store_align(s)}{stream}")
                return
            self.masked_store(raw, pointer, dtype, lanes.width, mask)
            return
        self.scatter(s, value, lanes, mask)

    def masked_store(self, raw: Val, pointer: str, dtype: DType, width: int, mask: Val) -> None:
        vt = self.emitter(width).mem_vt(dtype)
        n, m = width, str(mask)
        if dtype.kind == "c":
            n, m = 2 * width, self.double_mask(mask, width)
        mangled = vector_name(n, mem_type(dtype))
        self.module.declarations[f"@ms.{mangled}"] = (
            f"declare void @llvm.masked.store.{mangled}.p0({vt}, ptr, i32 immarg, <{n} x i1>)"
        )
        self.scopes[-1].lines.append(
            f"  call void @llvm.masked.store.{mangled}.p0({vt} {raw}, ptr {pointer}, i32 {align_of(dtype)}, <{n} x i1> {m})"
        )

    def scatter(self, s: Store, value: Value, lanes: Lanes, mask: Val | None) -> None:
        here, dtype, w = self.here(), s.buffer.dtype, lanes.width
        em = self.emitter(w)
        t = mem_type(dtype)
        if mask is None and not s.combine and [a for a, _ in s.ix.terms if self.varies(a.vars)] == [lanes.var]:
            raw = self.write(here, lambda: em.to_memory(value, dtype)) if dtype.kind == "b" else value
            self.store_each(
                raw if isinstance(raw, tuple) else (raw,), self.even_steps(s, lanes), t, align_of(dtype), here
            )
            return
        pointers = self.pointers(s.buffer, s.ix)
        if s.combine:  # the schedule sees to it that lanes do not meet at one place
            old = self.gather_at(pointers, dtype, w, mask, here)
            value = self.write(here, lambda: em.op(s.combine or "", [old, value], [dtype, dtype], dtype))
        raw = value
        if dtype.kind == "b":
            raw = self.write(here, lambda: em.to_memory(value, dtype))
        parts = raw if isinstance(raw, tuple) else (raw,)
        if mask is None:
            self.store_each(
                parts,
                [self.scalar(f"extractelement <{w} x ptr> {pointers}, i64 {k}", "ptr", here) for k in range(w)],
                t,
                align_of(dtype),
                here,
            )
            return
        mangled = vector_name(w, t)
        m = str(mask) if mask is not None else str(em.const("i1", True))
        self.module.declarations[f"@sc.{mangled}"] = (
            f"declare void @llvm.masked.scatter.{mangled}.v{w}p0(<{w} x {t}>, <{w} x ptr>, i32 immarg, <{w} x i1>)"
        )
        for k, part in enumerate(parts):
            p = self.offset_pointers(pointers, t, w, here) if k else pointers
            self.scopes[-1].lines.append(
                f"  call void @llvm.masked.scatter.{mangled}.v{w}p0(<{w} x {t}> {part}, <{w} x ptr> {p}, "
                f"i32 {align_of(dtype)}, <{w} x i1> {m})"
            )

    def even_steps(self, s: Store, lanes: Lanes) -> list[str]:
        """The addresses of lanes that lie in even steps, in scalars: each follows from the one before it."""
        here, t = self.here(), element_type(s.buffer.dtype)
        step, pointers = self.slot(s.ix.coefficient(lanes.var)), [self.pointer(s.buffer, s.ix)]
        for _ in range(1, lanes.width):
            pointers.append(self.scalar(f"getelementptr {t}, ptr {pointers[-1]}, i64 {step}", "ptr", here))
        return pointers

    def store_each(self, parts: Sequence[Val], pointers: Sequence[str], t: str, align: int, here: int) -> None:
        """One store per lane."""
        lines = self.scopes[here].lines
        for k, pointer in enumerate(pointers):
            for n, part in enumerate(parts):
                one = self.scalar(f"extractelement {part.vt} {part}, i64 {k}", t, here)
                place = self.scalar(f"getelementptr {t}, ptr {pointer}, i64 1", "ptr", here) if n else pointer
                lines.append(f"  store {t} {one}, ptr {place}, align {align}")


def store_align(s: Store) -> int:
    return 64 if s.stream else align_of(s.buffer.dtype)
