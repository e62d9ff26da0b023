"""Operands of matrix products, packed: rows of a dtype, or words along k as matrix tiles take them.

    rows    [k][n]                    elements of the sums' dtype
    words   [k / count][n][count]     of 32 bits: pairs of bfloat16, fours of int8, for Intel's AMX

An operand whose neighbours in memory lie along k is read along k, and transposed in registers, block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rushlight._codegen.scalar import Val
from rushlight._codegen.scalar.writer import lane_mask
from rushlight._types.dtype import DType

from ..ir import Value
from .function import Found, splat_to
from .groups import Group, Groups, Keep
from .memory import Buffer
from .values import ZERO, Dim, Index, Values

__all__ = ["Packing"]


class Packing:
    """Packs tiles.  What a loop around a product does not change is packed once, by `ahead`."""

    def __init__(self, values: Values, groups: Groups) -> None:
        self.values, self.groups, self.fn = values, groups, values.fn
        self.packed: dict[tuple[Value, DType, int], Buffer] = {}

    def pack(self, value: Value, dtype: DType, count: int = 1) -> Buffer:
        """The tile as rows of a dtype, or as words of `count` elements."""
        found = self.packed.get((value, dtype, count))
        if found is not None:
            return found
        buffer = self.values.buffers.get(value)
        rows = buffer is not None and value.dtype is dtype and buffer.strides[-1] == 1
        if buffer is not None and rows and count == 1:
            return buffer
        made = self.groups.allocate(dtype, value.shape)
        group = Group(value.shape)
        convert = partial(self.converted, value.dtype, dtype)
        group.keeps.append(Keep(value, made, convert))
        *_, k, n = value.shape
        along_k = self.groups.lane_dim(group) == len(value.shape) - 2
        block = max(self.fn.machine.vector_bytes // 4, 4)
        if along_k and dtype.itemsize * count == 4 and k % (block * count) == 0 and n % block == 0:
            self.over(value.shape[:-2], partial(self.transposed, value, made, convert, count, block))
        elif count > 1:
            width = self.groups.within_runs(group, len(value.shape) - 1, 2 * block)
            self.over(value.shape[:-2], partial(self.interleaved, value, made, convert, count, width))
        else:
            self.groups.write(group)
        return made

    def ahead(self, value: Value, dtype: DType, count: int) -> None:
        """Pack a tile now, for all later products with it."""
        if (value, dtype, count) not in self.packed:
            self.packed[value, dtype, count] = self.pack(value, dtype, count)

    def converted(self, source: DType, target: DType, found: Found) -> Found:
        """Elements as another dtype."""
        if source is target:
            return found
        em = self.fn.emitter(found.width)
        return Found(self.fn.write(found.depth, lambda: em.op("convert", [found.value], [source], target)), found.depth)

    def over(self, batch: Sequence[int], body: Callable[[Index], None]) -> None:
        """`body` for each matrix of a batch."""
        values, fn, floor, index = self.values, self.fn, self.values.floor, [ZERO] * len(batch)
        with fn.isolated():
            values.floor = fn.here
            values.memo.clear()

            def nest(k: int) -> None:
                if k == len(batch):
                    body(tuple(index))
                else:
                    self.groups.dim_loop(index, k, batch[k], 1, lambda: nest(k + 1))

            nest(0)
        values.floor = floor
        values.memo.clear()

    def transposed(
        self, value: Value, made: Buffer, convert: Callable[[Found], Found], count: int, block: int, batch: Index
    ) -> None:
        """Blocks read along k, and written along n."""
        fn, values = self.fn, self.values
        *_, k, n = value.shape
        each = block * count
        values.width = each

        def column(n0: str | int, _: list[str]) -> list[str]:
            depth_n = fn.here

            def row(k0: str | int, _: list[str]) -> list[str]:
                along = Dim(k0, fn.here, True)
                words = []
                for t in range(block):
                    found = convert(values.at(value, (*batch, along, Dim(fn.add(n0, t, depth_n), depth_n))))
                    words.append(self.words(splat_to(fn, found, each), block, count))
                line = fn.divided(k0, count, fn.here)[0]
                for t, word in enumerate(self.turned(words)):
                    at = Dim(fn.add(line, t, fn.here), fn.here)
                    self.put(made, (*batch, at, Dim(n0, depth_n)), word, count)
                return []

            fn.loop(0, k, each, (), row)
            return []

        fn.loop(0, n, block, (), column)

    def words(self, x: Val, block: int, count: int) -> Val:
        """Lanes as words of 32 bits."""
        if count == 1:
            return x
        em = x.em.at(block)
        return self.fn.write(self.fn.here, lambda: em.emit(f"bitcast {x.vt} {x} to <{block} x i32>", "i32"))

    def turned(self, rows: list[Val]) -> list[Val]:
        """A square of lanes, transposed."""
        n = len(rows)
        step = n // 2
        while step:
            made = list(rows)
            low = [k if k & step == 0 else n + k - step for k in range(n)]
            high = [k + step if k & step == 0 else n + k for k in range(n)]
            for i in range(n):
                if i & step == 0:
                    made[i] = self.shuffled(rows[i], rows[i + step], low)
                    made[i + step] = self.shuffled(rows[i], rows[i + step], high)
            rows = made
            step //= 2
        return rows

    def shuffled(self, a: Val, b: Val, lanes: Sequence[int]) -> Val:
        em = a.em.at(len(lanes))
        text = f"shufflevector {a.vt} {a}, {b.vt} {b}, {lane_mask(lanes)}"
        return self.fn.write(self.fn.here, lambda: em.emit(text, a.type))

    def put(self, made: Buffer, index: Index, word: Val, count: int) -> None:
        """Write words: a line of them is as long as `count` lines of elements."""
        strides = (*(s // count for s in made.strides[:-2]), *made.strides[-2:])
        place = self.values.linear(index, strides)
        fn = self.fn

        def emit() -> None:
            pointer = self.values.moved(made.pointer, place, count * made.element.itemsize)  # type: ignore[union-attr]
            fn.body.lines.append(f"  store {word.vt} {word}, ptr {pointer}, align 4")

        fn.write(fn.here, emit)

    def interleaved(
        self, value: Value, made: Buffer, convert: Callable[[Found], Found], count: int, width: int, batch: Index
    ) -> None:
        """Lines of a tile, element by element side by side."""
        fn, values = self.fn, self.values
        *_, k, n = value.shape
        values.width = width

        def row(word: str | int, _: list[str]) -> list[str]:
            depth = fn.here
            first = fn.times(word, count, depth)

            def column(n0: str | int, _: list[str]) -> list[str]:
                along = Dim(n0, fn.here, width > 1)
                lines: list[Any] = []
                for t in range(count):
                    found = convert(values.at(value, (*batch, Dim(fn.add(first, t, depth), depth), along)))
                    lines.append(splat_to(fn, found, width))
                self.put(made, (*batch, Dim(word, depth), Dim(n0, fn.here)), self.side_by_side(lines), count)
                return []

            fn.loop(0, n, width, (), column)
            return []

        fn.loop(0, k // count, 1, (), row)

    def side_by_side(self, lines: list[Val]) -> Val:
        """The first elements of all lines, then the second ones, and so on."""
        if len(lines) == 1:
            return lines[0]
        a, b = (self.side_by_side(lines[start::2]) for start in (0, 1))
        width = a.em.width
        return self.shuffled(a, b, [lane for t in range(width) for lane in (t, width + t)])
