"""Stores as LLVM text: single elements, blocks of lanes, even steps, scattered elements."""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._codegen.llvm_scope import FunctionEmitter, Lanes, Value, align_of, element_type, vector_name
from rushlight._codegen.llvm_values import Values
from rushlight._codegen.scalar import Val, mem_type
from rushlight._schedule.expressions import Store
from rushlight._types.dtype import DType

__all__ = ["Stores"]


class Stores:
    """Writes stores."""

    __slots__ = ("fn", "indices", "loads", "values")

    def __init__(self, fn: FunctionEmitter, values: Values) -> None:
        self.fn, self.values = fn, values
        self.indices, self.loads = values.indices, values.loads

    def store(self, s: Store) -> None:
        """Write one store: of a single element, or of all lanes."""
        value, width = self.values.x(s.value)
        lanes = self.fn.lanes
        wide = lanes is not None and (
            lanes.var in s.ix.vars or width > 1 or (s.guard is not None and lanes.var in s.guard.vars)
        )
        if not wide:
            self.store_one(s, value)
            return
        assert lanes is not None
        if width == 1:
            value = self.values.spread(s.value, lanes.width)
        self.store_lanes(s, value, lanes)

    def store_one(self, s: Store, value: Value) -> None:
        """Store a single element."""
        here = self.fn.here()
        scope = self.fn.scopes[-1]
        done = ""
        if s.guard is not None:
            condition, _ = self.values.x(s.guard)
            go, done = self.fn.label("then"), self.fn.label("join")
            pointer = self.indices.pointer(s.buffer, s.ix)
            scope.lines.append(f"  br i1 {condition}, label %{go}, label %{done}")
            scope.lines.append(f"{go}:")
        else:
            pointer = self.indices.pointer(s.buffer, s.ix)
        em, dtype = self.fn.one, s.buffer.dtype
        if s.combine:
            old = self.loads.load_at(pointer, dtype, here)
            value = self.fn.write(here, lambda: em.op(s.combine or "", [old, value], [dtype, dtype], dtype))
        raw = self.fn.write(here, lambda: em.to_memory(value, dtype))
        scope.lines.append(f"  store {em.mem_vt(dtype)} {raw}, ptr {pointer}, align {align_of(dtype)}")
        if done:
            scope.lines.append(f"  br label %{done}")
            scope.lines.append(f"{done}:")
            scope.label = done
            scope.cse.clear()

    def store_lanes(self, s: Store, value: Value, lanes: Lanes) -> None:
        """Store an element of each lane."""
        here, dtype = self.fn.here(), s.buffer.dtype
        em = self.fn.emitter(lanes.width)
        mask = lanes.mask
        if s.guard is not None:
            guard = self.values.wide(s.guard, lanes.width)
            mask = guard if mask is None else self.fn.write(here, lambda: guard & mask)
        lines = self.fn.scopes[-1].lines
        if s.ix.coefficient(lanes.var) == 1:
            pointer = self.indices.pointer(s.buffer, s.ix)
            if s.combine:
                old = self.loads.load_block(pointer, dtype, lanes.width, mask, here)
                value = self.fn.write(here, lambda: em.op(s.combine or "", [old, value], [dtype, dtype], dtype))
            raw = self.fn.write(here, lambda: em.to_memory(value, dtype))
            vt = em.mem_vt(dtype)
            if mask is None:
                stream = ", !nontemporal !1" if s.stream else ""
                if s.stream:
                    self.fn.module.definitions["!1"] = "!1 = !{i32 1}"
                lines.append(f"  store {vt} {raw}, ptr {pointer}, align {store_align(s)}{stream}")
                return
            self.masked_store(raw, pointer, dtype, lanes.width, mask)
            return
        self.scatter(s, value, lanes, mask)

    def masked_store(self, raw: Val, pointer: str, dtype: DType, width: int, mask: Val) -> None:
        vt = self.fn.emitter(width).mem_vt(dtype)
        n, m = width, str(mask)
        if dtype.kind == "c":
            n, m = 2 * width, self.loads.double_mask(mask, width)
        mangled = vector_name(n, mem_type(dtype))
        self.fn.module.declarations[f"@ms.{mangled}"] = (
            f"declare void @llvm.masked.store.{mangled}.p0({vt}, ptr, i32 immarg, <{n} x i1>)"
        )
        self.fn.scopes[-1].lines.append(
            f"  call void @llvm.masked.store.{mangled}.p0({vt} {raw}, ptr {pointer}, i32 {align_of(dtype)}, <{n} x i1> {m})"
        )

    def scatter(self, s: Store, value: Value, lanes: Lanes, mask: Val | None) -> None:
        here, dtype, w = self.fn.here(), s.buffer.dtype, lanes.width
        em = self.fn.emitter(w)
        t = mem_type(dtype)
        if mask is None and not s.combine and [a for a, _ in s.ix.terms if self.indices.varies(a.vars)] == [lanes.var]:
            raw = self.fn.write(here, lambda: em.to_memory(value, dtype)) if dtype.kind == "b" else value
            self.store_each(
                raw if isinstance(raw, tuple) else (raw,), self.even_steps(s, lanes), t, align_of(dtype), here
            )
            return
        pointers = self.indices.pointers(s.buffer, s.ix)
        if s.combine:  # the schedule puts no colliding elements into lanes
            old = self.loads.gather_at(pointers, dtype, w, mask, here)
            value = self.fn.write(here, lambda: em.op(s.combine or "", [old, value], [dtype, dtype], dtype))
        raw = value
        if dtype.kind == "b":
            raw = self.fn.write(here, lambda: em.to_memory(value, dtype))
        parts = raw if isinstance(raw, tuple) else (raw,)
        if mask is None:
            self.store_each(
                parts,
                [self.fn.scalar(f"extractelement <{w} x ptr> {pointers}, i64 {k}", "ptr", here) for k in range(w)],
                t,
                align_of(dtype),
                here,
            )
            return
        mangled = vector_name(w, t)
        m = str(mask) if mask is not None else str(em.const("i1", True))
        self.fn.module.declarations[f"@sc.{mangled}"] = (
            f"declare void @llvm.masked.scatter.{mangled}.v{w}p0(<{w} x {t}>, <{w} x ptr>, i32 immarg, <{w} x i1>)"
        )
        for k, part in enumerate(parts):
            p = self.loads.offset_pointers(pointers, t, w, here) if k else pointers
            self.fn.scopes[-1].lines.append(
                f"  call void @llvm.masked.scatter.{mangled}.v{w}p0(<{w} x {t}> {part}, <{w} x ptr> {p}, "
                f"i32 {align_of(dtype)}, <{w} x i1> {m})"
            )

    def even_steps(self, s: Store, lanes: Lanes) -> list[str]:
        """The addresses of lanes at even steps, as scalars, each computed from the one before it."""
        here, t = self.fn.here(), element_type(s.buffer.dtype)
        step, pointers = self.fn.slot(s.ix.coefficient(lanes.var)), [self.indices.pointer(s.buffer, s.ix)]
        for _ in range(1, lanes.width):
            pointers.append(self.fn.scalar(f"getelementptr {t}, ptr {pointers[-1]}, i64 {step}", "ptr", here))
        return pointers

    def store_each(self, parts: Sequence[Val], pointers: Sequence[str], t: str, align: int, here: int) -> None:
        """One store for each lane."""
        lines = self.fn.scopes[here].lines
        for k, pointer in enumerate(pointers):
            for n, part in enumerate(parts):
                one = self.fn.scalar(f"extractelement {part.vt} {part}, i64 {k}", t, here)
                place = self.fn.scalar(f"getelementptr {t}, ptr {pointer}, i64 1", "ptr", here) if n else pointer
                lines.append(f"  store {t} {one}, ptr {place}, align {align}")


def store_align(s: Store) -> int:
    """The alignment of a vector store."""
    return 64 if s.stream else align_of(s.buffer.dtype)
