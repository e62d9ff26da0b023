"""Loads as LLVM text: blocks of neighbours, even steps, transposed tiles, single elements for each lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rushlight._codegen.llvm_index import Indices
from rushlight._codegen.llvm_scope import FunctionEmitter, Value, align_of, element_type, vector_name
from rushlight._codegen.scalar import Emitter, Val, mem_type
from rushlight._schedule.expressions import Buffer, Expr
from rushlight._schedule.indexing import Ix
from rushlight._types.dtype import DType

if TYPE_CHECKING:
    from rushlight._codegen.llvm_values import Values

__all__ = ["Loads", "row_align"]


class Loads:
    """Writes loads; `values` writes their guards."""

    __slots__ = ("fn", "indices", "values")

    def __init__(self, fn: FunctionEmitter, indices: Indices, values: Values) -> None:
        self.fn, self.indices, self.values = fn, indices, values

    def load_guarded(self, buffer: Buffer, ix: Ix, guard: Expr, depth: int) -> Value:
        """A scalar load.  Where the guard does not hold, it reads the first element."""
        condition, _ = self.values.x(guard)
        place = self.indices.ix(ix)
        safe = self.fn.scalar(f"select i1 {condition}, i64 {place}, i64 0", "i64", depth)
        pointer = self.fn.scalar(
            f"getelementptr {element_type(buffer.dtype)}, ptr {self.fn.base(buffer)}, i64 {safe}", "ptr", depth
        )
        return self.load_at(pointer, buffer.dtype, depth)

    def load_common(self, buffer: Buffer, ix: Ix, mask: Val, depth: int) -> Value:
        """One element for all lanes, such as a repeated edge.  Where no lane reads it, it is the first element."""
        bits = self.fn.scalar(f"bitcast {mask.vt} {mask} to i{mask.em.width}", f"i{mask.em.width}", depth)
        some = self.fn.scalar(f"icmp ne i{mask.em.width} {bits}, 0", "i1", depth)
        safe = self.fn.scalar(f"select i1 {some}, i64 {self.indices.ix(ix)}, i64 0", "i64", depth)
        pointer = self.fn.scalar(
            f"getelementptr {element_type(buffer.dtype)}, ptr {self.fn.base(buffer)}, i64 {safe}", "ptr", depth
        )
        return self.load_at(pointer, buffer.dtype, depth)

    def load_at(self, pointer: str, dtype: DType, depth: int) -> Value:
        em = self.fn.one
        name = em.fresh()
        self.fn.scopes[depth].lines.append(
            f"  {name} = load {em.mem_vt(dtype)}, ptr {pointer}, align {align_of(dtype)}"
        )
        return self.fn.write(depth, lambda: em.from_memory(name, dtype))

    def load_block(self, pointer: str, dtype: DType, width: int, mask: Val | None, depth: int) -> Value:
        """Neighbouring elements as one vector load."""
        em = self.fn.emitter(width)
        vt, name = em.mem_vt(dtype), em.fresh()
        lines = self.fn.scopes[depth].lines
        if mask is None:
            lines.append(f"  {name} = load {vt}, ptr {pointer}, align {align_of(dtype)}")
        else:
            n, m = width, str(mask)
            if dtype.kind == "c":
                n, m = 2 * width, self.double_mask(mask, width, depth)
            mangled = vector_name(n, mem_type(dtype))
            self.fn.module.declarations[f"@ml.{mangled}"] = (
                f"declare {vt} @llvm.masked.load.{mangled}.p0(ptr, i32 immarg, <{n} x i1>, {vt})"
            )
            lines.append(
                f"  {name} = call {vt} @llvm.masked.load.{mangled}.p0(ptr {pointer}, i32 {align_of(dtype)}, "
                f"<{n} x i1> {m}, {vt} zeroinitializer)"
            )
        return self.fn.write(depth, lambda: em.from_memory(name, dtype))

    def load_transposed(self, e: Expr) -> Value:
        """A row of a transposed tile."""
        tile, top = self.fn.tiles[e]
        dtype, here = e.dtype, self.fn.here()
        assert self.fn.lanes is not None
        em = self.fn.emitter(self.fn.lanes.width)
        vt = em.mem_vt(dtype)
        row = next(self.fn.names[v] for v in e.vars if self.fn.depths[v] == here)
        at = self.fn.scalar(f"sub i64 {row}, {top}", "i64", here)
        pointer = self.fn.scalar(f"getelementptr {vt}, ptr {tile}, i64 {at}", "ptr", here)
        name = em.fresh()
        self.fn.scopes[here].lines.append(f"  {name} = load {vt}, ptr {pointer}, align {row_align(dtype, em.width)}")
        return self.fn.write(here, lambda: em.from_memory(name, dtype))

    def load_steps(self, buffer: Buffer, ix: Ix, step: int, depth: int) -> Value:
        """Elements at even steps, by one load for each lane.  Gathers are slower on many machines.

        Lanes beyond the end read the last element again.
        """
        lanes = self.fn.lanes
        assert lanes is not None
        pointer, by, t = self.indices.pointer(buffer, ix), self.fn.slot(step), element_type(buffer.dtype)
        pointers = [pointer]
        for k in range(1, lanes.width):
            stride = by
            if lanes.left:
                more = self.fn.scalar(f"icmp sgt i64 {lanes.left}, {k}", "i1", depth)
                stride = self.fn.scalar(f"select i1 {more}, i64 {by}, i64 0", "i64", depth)
            pointers.append(self.fn.scalar(f"getelementptr {t}, ptr {pointers[-1]}, i64 {stride}", "ptr", depth))
        return self.load_each(pointers, buffer.dtype, depth)

    def load_backwards(self, buffer: Buffer, ix: Ix, mask: Val | None, depth: int) -> Value:
        """Neighbouring elements in falling order: one vector load that ends at the first lane's element, with its
        lanes reversed.
        """
        assert self.fn.lanes is not None
        w, dtype = self.fn.lanes.width, buffer.dtype
        order = list(range(w - 1, -1, -1))
        if mask is not None:
            mask = self.shuffled(mask, mask, order, depth)
        last = self.fn.scalar(
            f"getelementptr {element_type(dtype)}, ptr {self.indices.pointer(buffer, ix)}, i64 {1 - w}", "ptr", depth
        )
        block = self.load_block(last, dtype, w, mask, depth)
        if isinstance(block, tuple):
            return tuple(self.shuffled(part, part, order, depth) for part in block)
        return self.shuffled(block, block, order, depth)

    def load_pairs(self, buffer: Buffer, ix: Ix, mask: Val | None, depth: int) -> Value:
        """Every other element: two vector loads that overlap by one element, so that none reads beyond the last, and a
        shuffle.
        """
        assert self.fn.lanes is not None
        w, dtype = self.fn.lanes.width, buffer.dtype
        em = self.fn.emitter(w)
        low, high = mask, mask
        if mask is not None:
            low = self.shuffled(mask, em.const("i1", False), [k // 2 if k % 2 == 0 else w for k in range(w)], depth)
            high = self.shuffled(
                mask, em.const("i1", False), [(k + w - 1) // 2 if (k + w - 1) % 2 == 0 else w for k in range(w)], depth
            )
        pointer = self.indices.pointer(buffer, ix)
        after = self.fn.scalar(f"getelementptr {element_type(dtype)}, ptr {pointer}, i64 {w - 1}", "ptr", depth)
        first = self.load_block(pointer, dtype, w, low, depth)
        second = self.load_block(after, dtype, w, high, depth)
        order = [2 * k if 2 * k < w else w + 2 * k - (w - 1) for k in range(w)]
        if isinstance(first, tuple):
            return tuple(self.shuffled(a, b, order, depth) for a, b in zip(first, second, strict=True))
        return self.shuffled(first, second, order, depth)

    def shuffled(self, a: Val, b: Val, order: Sequence[int], depth: int) -> Val:
        """Lanes picked from two vectors; lanes of the second are numbered after those of the first."""
        mask = f"<{len(order)} x i32> <" + ", ".join(f"i32 {k}" for k in order) + ">"
        em = a.em
        return self.fn.write(depth, lambda: em.emit(f"shufflevector {a.vt} {a}, {b.vt} {b}, {mask}", a.type))

    def load_each(self, pointers: Sequence[str], dtype: DType, depth: int) -> Value:
        """One element for each lane, from an address for each."""
        em, t = self.fn.emitter(len(pointers)), mem_type(dtype)
        lines = self.fn.scopes[depth].lines
        parts = []
        for part in range(2 if dtype.kind == "c" else 1):
            if part:
                pointers = [self.fn.scalar(f"getelementptr {t}, ptr {p}, i64 1", "ptr", depth) for p in pointers]
            # Vectors of eight lanes, joined in pairs: LLVM's time for a chain of insertions grows with the square of
            # the lanes.
            vectors = [
                (self.insert_each(pointers[i : i + 8], t, dtype, depth), len(pointers[i : i + 8]))
                for i in range(0, len(pointers), 8)
            ]
            while len(vectors) > 1:
                vectors = [self.join_lanes(vectors[i : i + 2], t, lines, em) for i in range(0, len(vectors), 2)]
            parts.append(em.val(vectors[0][0], t))
        return tuple(parts) if dtype.kind == "c" else self.fn.write(depth, lambda: em.from_memory(parts[0], dtype))

    def insert_each(self, pointers: Sequence[str], t: str, dtype: DType, depth: int) -> str:
        """A short vector of elements, from an address for each."""
        em, lines = self.fn.emitter(len(pointers)), self.fn.scopes[depth].lines
        vector = "poison"
        for k, pointer in enumerate(pointers):
            one, new = em.fresh(), em.fresh()
            lines.append(f"  {one} = load {t}, ptr {pointer}, align {align_of(dtype)}")
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
        """One element for each lane, from any address.  Masked lanes read the first element."""
        assert self.fn.lanes is not None
        w = self.fn.lanes.width
        em = self.fn.emitter(w)
        offsets = self.indices.vector_ix(ix) if self.indices.varies(ix.vars) else self.indices.spread_ix(ix, w)
        if mask is not None:
            offsets = self.fn.write(depth, lambda: em.select(mask, offsets, em.const("i64", 0)))
        base, t = self.fn.base(buffer), element_type(buffer.dtype)
        pointers = []
        for k in range(w):
            at = self.fn.scalar(f"extractelement {offsets.vt} {offsets}, i64 {k}", "i64", depth)
            pointers.append(self.fn.scalar(f"getelementptr {t}, ptr {base}, i64 {at}", "ptr", depth))
        return self.load_each(pointers, buffer.dtype, depth)

    def fetch_ahead(self, row: str, each: int) -> None:
        """Prefetch a part of the next row: a line for `each` lanes."""
        lanes, here = self.fn.lanes, self.fn.here()
        assert lanes is not None
        self.fn.module.declarations["@llvm.prefetch"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
        offset = self.fn.scalar(f"mul i64 {self.fn.names[lanes.var]}, {64 // each}", "i64", here)
        start = self.fn.scalar(f"getelementptr i8, ptr {row}, i64 {offset}", "ptr", here)
        for k in range(max(1, lanes.width // each)):
            line = self.fn.scalar(f"getelementptr i8, ptr {start}, i64 {64 * k}", "ptr", here)
            self.fn.scopes[here].lines.append(f"  call void @llvm.prefetch.p0(ptr {line}, i32 0, i32 3, i32 1)")

    def gather_at(self, pointers: str, dtype: DType, w: int, mask: Val | None, depth: int) -> Value:
        """One element for each lane, from a vector of addresses.  Masked addresses are not read."""
        em, t = self.fn.emitter(w), mem_type(dtype)
        mangled = vector_name(w, t)
        m = str(mask) if mask is not None else str(em.const("i1", True))
        self.fn.module.declarations[f"@ga.{mangled}"] = (
            f"declare <{w} x {t}> @llvm.masked.gather.{mangled}.v{w}p0(<{w} x ptr>, i32 immarg, <{w} x i1>, <{w} x {t}>)"
        )
        parts = []
        for k in range(2 if dtype.kind == "c" else 1):
            p = self.offset_pointers(pointers, t, w, depth) if k else pointers
            name = em.fresh()
            self.fn.scopes[depth].lines.append(
                f"  {name} = call <{w} x {t}> @llvm.masked.gather.{mangled}.v{w}p0(<{w} x ptr> {p}, i32 {align_of(dtype)}, "
                f"<{w} x i1> {m}, <{w} x {t}> zeroinitializer)"
            )
            parts.append(name)
        if dtype.kind == "c":
            return tuple(em.val(n, t) for n in parts)
        return self.fn.write(depth, lambda: em.from_memory(parts[0], dtype))

    def double_mask(self, mask: Val, width: int, depth: int | None = None) -> str:
        """The mask of interleaved pairs, written at `depth`: a load may stand outside of the innermost loop."""
        order = ", ".join(f"i32 {k // 2}" for k in range(2 * width))
        text = f"shufflevector <{width} x i1> {mask}, <{width} x i1> poison, <{2 * width} x i32> <{order}>"
        return self.fn.scalar(text, "i1", self.fn.here() if depth is None else depth)

    def offset_pointers(self, pointers: str, type: str, width: int, depth: int) -> str:
        """Pointers to the imaginary parts."""
        return self.fn.scalar(f"getelementptr {type}, <{width} x ptr> {pointers}, i64 1", "ptr", depth)


def row_align(dtype: DType, width: int) -> int:
    """The alignment of consecutive rows of a tile that begins at a cache line."""
    return min(64, width * align_of(dtype))
