"""Operands of matrix products, packed: rows of a dtype, or pairs along k as matrix tiles take them.

    rows    [k][n]            elements of the sums' dtype
    pairs   [k / 2][n][2]     bfloat16, for Intel's AMX

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
        self.packed: dict[tuple[Value, DType, bool], Buffer] = {}

    def pack(self, value: Value, dtype: DType, pairs: bool = False) -> Buffer:
        """The tile as rows of a dtype, or as pairs of them."""
        found = self.packed.get((value, dtype, pairs))
        if found is not None:
            return found
        buffer = self.values.buffers.get(value)
        rows = buffer is not None and value.dtype is dtype and buffer.strides[-1] == 1
        if buffer is not None and rows and not pairs:
            return buffer
        made = self.groups.allocate(dtype, value.shape)
        group = Group(value.shape)
        convert = partial(self.converted, value.dtype, dtype)
        group.keeps.append(Keep(value, made, convert))
        *_, k, n = value.shape
        along_k = self.groups.lane_dim(group) == len(value.shape) - 2
        block = max(self.fn.machine.vector_bytes // 4, 4)
        if along_k and dtype.itemsize * (1 + pairs) == 4 and k % (block * (1 + pairs)) == 0 and n % block == 0:
            self.over(value.shape[:-2], partial(self.transposed, value, made, convert, pairs, block))
        elif pairs:
            width = self.groups.within_runs(group, len(value.shape) - 1, 2 * block)
            self.over(value.shape[:-2], partial(self.interleaved, value, made, convert, width))
        else:
            self.groups.write(group)
        return made

    def ahead(self, value: Value, dtype: DType, pairs: bool) -> None:
        """Pack a tile now, for all later products with it."""
        if (value, dtype, pairs) not in self.packed:
            self.packed[value, dtype, pairs] = self.pack(value, dtype, pairs)

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
        self, value: Value, made: Buffer, convert: Callable[[Found], Found], pairs: bool, block: int, batch: Index
    ) -> None:
        """Blocks read along k, and written along n."""
        fn, values = self.fn, self.values
        *_, k, n = value.shape
        each = block * (1 + pairs)
        values.width = each

        def column(n0: str | int, _: list[str]) -> list[str]:
            depth_n = fn.here

            def row(k0: str | int, _: list[str]) -> list[str]:
                along = Dim(k0, fn.here, True)
                words = []
                for t in range(block):
                    found = convert(values.at(value, (*batch, along, Dim(fn.add(n0, t, depth_n), depth_n))))
                    words.append(self.words(splat_to(fn, found, each), block, pairs))
                line = fn.divided(k0, 2, fn.here)[0] if pairs else k0
                for t, word in enumerate(self.turned(words)):
                    at = Dim(fn.add(line, t, fn.here), fn.here)
                    self.put(made, (*batch, at, Dim(n0, depth_n)), word, pairs)
                return []

            fn.loop(0, k, each, (), row)
            return []

        fn.loop(0, n, block, (), column)

    def words(self, x: Val, block: int, pairs: bool) -> Val:
        """Lanes as words of 32 bits."""
        if not pairs:
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

    def put(self, made: Buffer, index: Index, word: Val, pairs: bool) -> None:
        """Write words: a line of pairs is as long as two lines of elements."""
        strides = made.strides if not pairs else (*(s // 2 for s in made.strides[:-2]), *made.strides[-2:])
        place = self.values.linear(index, strides)
        fn = self.fn

        def emit() -> None:
            pointer = self.values.moved(made.pointer, place, 4 if pairs else made.element.itemsize)  # type: ignore[union-attr]
            fn.body.lines.append(f"  store {word.vt} {word}, ptr {pointer}, align 4")

        fn.write(fn.here, emit)

    def interleaved(
        self, value: Value, made: Buffer, convert: Callable[[Found], Found], width: int, batch: Index
    ) -> None:
        """Two lines of a tile, element by element side by side."""
        fn, values = self.fn, self.values
        *_, k, n = value.shape
        values.width = width

        def row(pair: str | int, _: list[str]) -> list[str]:
            depth = fn.here
            first = fn.times(pair, 2, depth)

            def column(n0: str | int, _: list[str]) -> list[str]:
                along = Dim(n0, fn.here, width > 1)
                both: list[Any] = []
                for t in (0, 1):
                    found = convert(values.at(value, (*batch, Dim(fn.add(first, t, depth), depth), along)))
                    both.append(splat_to(fn, found, width))
                order = [lane for t in range(width) for lane in (t, width + t)]
                self.put(
                    made, (*batch, Dim(pair, depth), Dim(n0, fn.here)), self.shuffled(both[0], both[1], order), True
                )
                return []

            fn.loop(0, n, width, (), column)
            return []

        fn.loop(0, k // 2, 1, (), row)
