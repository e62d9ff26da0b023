"""Matrix products of tiles: operands packed once into memory, sums in registers.

The operands are written as rows of the sums' dtype; each block of sums is loaded, all products along k are added, and it
is stored again.  A product that a loop adds up works in the loop's own tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rushlight._codegen.scalar import Val, mem_type, reg_type
from rushlight._types.dtype import BFLOAT16, FLOAT32, INT8, INT32, DType

from ..ir import Op, Value
from .function import VectorFunction
from .groups import Group, Groups, Keep
from .matrix_tiles import MatrixTiles
from .memory import Buffer, element_bytes
from .packing import Packing
from .values import Dim, Values

__all__ = ["Products"]


class Products:
    """Writes `dot`."""

    def __init__(self, values: Values, groups: Groups) -> None:
        self.values, self.groups, self.fn = values, groups, values.fn
        self.packing = Packing(values, groups)

    def forms(self, op: Op) -> tuple[DType, int]:
        """The dtype that operands are packed as, and how many of the right one make a word: more than 1 for matrix tiles."""
        a, b, _ = op.operands
        dtype, machine = a.dtype, self.fn.machine
        allowed = (dtype, op.result.dtype) in (
            *([(BFLOAT16, FLOAT32)] if machine.amx_bf16 else []),
            *([(INT8, INT32)] if machine.amx_i8 else []),
        )
        k, whole = a.shape[-1], 64 // dtype.itemsize
        fits = a.shape[-2] % 16 == b.shape[-1] % 16 == 0 and (k % whole == 0 or (k % 16 == 0 and k < whole))
        if allowed and fits and b.dtype is dtype:
            return dtype, 4 // dtype.itemsize
        return op.result.dtype.wide, 1

    def ahead(self, op: Op, inside: set[Value]) -> None:
        """Pack the operands of a product that the loop around it, which makes the values `inside`, does not make."""
        dtype, count = self.forms(op)
        for value, each in zip(op.operands[:2], (1, count), strict=True):
            if value not in inside:
                self.packing.ahead(value, dtype, each)

    # ***** products *****

    def dot(self, op: Op, target: Buffer | None) -> None:
        """c + a b, in `target` where that is given: then the tile c is, or becomes, what lies there."""
        a, b, c = op.operands
        dtype = op.result.dtype.wide
        form, count = self.forms(op)
        left, right = self.packing.pack(a, form), self.packing.pack(b, form, count)
        narrow = op.result.dtype is not dtype
        sums = self.groups.allocate(dtype, c.shape) if target is None or narrow else target
        if self.values.buffers.get(c) != sums:
            self.convert(c, sums, c.dtype, dtype)
        *batch, m, n = c.shape
        if count > 1:
            tiles = MatrixTiles(self.fn, form)
            self.batches(batch, [left, right, sums], lambda at: tiles.product(at, m, n, a.shape[-1]))
        else:
            self.batches(batch, [left, right, sums], lambda at: self.product(at, m, n, a.shape[-1], dtype))
        if narrow:
            total = Value(c.type.of(dtype))
            self.values.buffers[total] = sums
            sums = target or self.groups.allocate(op.result.dtype, c.shape)
            self.convert(total, sums, dtype, op.result.dtype)
        self.values.buffers[op.result] = sums

    def convert(self, value: Value, buffer: Buffer, source: DType, target: DType) -> None:
        """A tile written to a buffer as another dtype."""
        group = Group(value.shape)
        group.keeps.append(Keep(value, buffer, partial(self.packing.converted, source, target)))
        self.groups.write(group)

    def batches(self, batch: Sequence[int], buffers: Sequence[Buffer], body: Any) -> None:
        """`body` for every matrix of a batch, with the buffers moved to it."""
        fn = self.fn
        if not batch:
            body(buffers)
            return
        size, *rest = batch

        def turn(place: str | int, _: list[str]) -> list[str]:
            moved = []
            for buffer in buffers:
                at = self.values.linear((Dim(place, fn.here),), buffer.strides[:1])
                step = element_bytes(buffer.element)
                pointer = fn.write(fn.here, partial(self.values.moved, buffer.pointer, at, step))
                moved.append(Buffer(pointer, buffer.element, buffer.strides[1:]))
            self.batches(rest, moved, body)
            return []

        fn.loop(0, size, 1, (), turn)

    def product(self, buffers: Sequence[Buffer], m: int, n: int, k: int, dtype: DType) -> None:
        """Loops over blocks of sums."""
        lanes = min(self.fn.machine.vector_bytes // dtype.itemsize, n & -n)
        vectors = next(v for v in (4, 2, 1) if n % (v * lanes) == 0)
        most = 16 if self.fn.machine.vector_bytes == 64 else 8
        rows = min(m & -m, max(most // vectors, 1))
        tile = _Tile(self.fn, dtype, lanes, vectors, rows)
        fn = self.fn

        def row(i: str | int, _: list[str]) -> list[str]:
            def column(j: str | int, _: list[str]) -> list[str]:
                with fn.isolated():
                    tile.write(buffers, i, j, k)
                return []

            fn.loop(0, n, lanes * vectors, (), column)
            return []

        fn.loop(0, m, rows, (), row)


class _Tile:
    """A block of sums in registers: `rows` x `vectors` vectors of `lanes`."""

    def __init__(self, fn: VectorFunction, dtype: DType, lanes: int, vectors: int, rows: int) -> None:
        self.fn, self.dtype, self.lanes, self.vectors, self.rows = fn, dtype, lanes, vectors, rows
        self.em = fn.emitter(lanes)
        self.type = reg_type(dtype)
        self.vt = self.em.vt(self.type)

    def place(self, buffer: Buffer, row: str | int, column: str | int) -> str:
        """The address of an element."""
        fn, depth = self.fn, self.fn.here
        at = fn.add(fn.times(row, buffer.strides[0], depth), fn.times(column, buffer.strides[1], depth), depth)
        if at == 0:
            return buffer.pointer
        return fn.scalar(f"getelementptr {mem_type(self.dtype)}, ptr {buffer.pointer}, i64 {at}", "ptr", depth)

    def moved(self, pointer: str, by: int) -> str:
        """An address some elements further."""
        if by == 0:
            return pointer
        return self.fn.scalar(f"getelementptr {mem_type(self.dtype)}, ptr {pointer}, i64 {by}", "ptr", self.fn.here)

    def write(self, buffers: Sequence[Buffer], i: str | int, j: str | int, k: int) -> None:
        fn, (a, b, c) = self.fn, buffers
        sums = self.place(c, i, j)
        places = [
            self.moved(sums, r * c.strides[0] + v * self.lanes) for r in range(self.rows) for v in range(self.vectors)
        ]
        firsts = [self.load(p) for p in places]
        left, right = self.place(a, i, 0), self.place(b, 0, j)

        def turn(at: str | int, names: list[str]) -> list[str]:
            with fn.isolated():
                row = self.moved_by(right, at, b.strides[0])
                start = self.moved_by(left, at, a.strides[1])
                bs = [self.em.val(self.load(self.moved(row, v * self.lanes)), self.type) for v in range(self.vectors)]
                out = []
                for r in range(self.rows):
                    x = self.broadcast(self.moved(start, r * a.strides[0]))
                    out += [self.step(x, y, names[r * self.vectors + v]) for v, y in enumerate(bs)]
            return out

        totals = fn.loop(0, k, 1, [(self.vt, f) for f in firsts], turn)
        for place, total in zip(places, totals, strict=True):
            fn.line(f"store {self.vt} {total}, ptr {place}, align {self.dtype.itemsize}")

    def moved_by(self, pointer: str, at: str | int, stride: int) -> str:
        fn = self.fn
        by = fn.times(at, stride, fn.here)
        if by == 0:
            return pointer
        return fn.scalar(f"getelementptr {mem_type(self.dtype)}, ptr {pointer}, i64 {by}", "ptr", fn.here)

    def load(self, pointer: str) -> str:
        return self.fn.scalar(f"load {self.vt}, ptr {pointer}, align {self.dtype.itemsize}", self.type, self.fn.here)

    def broadcast(self, pointer: str) -> Val:
        fn = self.fn
        one = fn.scalar(f"load {self.type}, ptr {pointer}, align {self.dtype.itemsize}", self.type, fn.here)
        return fn.write(fn.here, lambda: self.em.splat(one, self.type))

    def step(self, x: Val, y: Val, total: str) -> str:
        em = self.em
        carried = em.val(total, self.type)
        if self.dtype.kind == "f":
            return str(self.fn.write(self.fn.here, lambda: em.fma(x, y, carried)))
        return str(self.fn.write(self.fn.here, lambda: x * y + carried))
