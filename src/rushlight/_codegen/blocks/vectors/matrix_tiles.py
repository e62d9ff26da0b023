"""Products by matrix tiles (Intel AMX): 32 x 32 sums in four tile registers.

One instruction multiplies 16 rows of A, of 64 bytes each, with 16 columns of B, and adds to 16 x 16 sums: bfloat16 in
float32, where subnormal numbers count as zero, or int8 in int32.  A lies in rows, B in words along k (see `packing`).
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight._types.dtype import BFLOAT16, DType

from .function import VectorFunction
from .memory import Buffer

__all__ = ["MatrixTiles"]

_SIDE = 16


class MatrixTiles:
    def __init__(self, fn: VectorFunction, dtype: DType) -> None:
        self.fn, self.size, self.count = fn, dtype.itemsize, 4 // dtype.itemsize
        self.multiply = "tdpbf16ps" if dtype is BFLOAT16 else "tdpbssd"
        tile = "i8"
        for name, types in (
            ("ldtilecfg", ("ptr",)), ("tilerelease", ()), ("tileloadd64", (tile, "ptr", "i64")), ("tilestored64", (tile, "ptr", "i64")),
            (self.multiply, (tile, tile, tile)),
        ):  # fmt: skip
            immediates = [f"{t} immarg" if t == tile else t for t in types]
            fn.intrinsic(f"llvm.x86.{name}", "void", *immediates)

    def call(self, name: str, arguments: str) -> None:
        self.fn.line(f"call void @llvm.x86.{name}({arguments})")

    def configure(self, depth: int) -> None:
        """Tiles for steps of `depth` elements along k: 0 to 3 are sums, 4 and 5 rows of A, 6 and 7 columns of B."""
        widths = [64] * 4 + [self.size * depth] * 2 + [64] * 2
        rows = [_SIDE] * 6 + [depth // self.count] * 2
        config = [1, *[0] * 15, *(v for w in widths for v in (w, 0)), *[0] * 16, *rows, *[0] * 8]
        name = f"@rl_tiles_{self.size}_{depth}"
        data = ", ".join(f"i8 {v}" for v in config)
        self.fn.module.definitions[name] = f"{name} = private unnamed_addr constant [64 x i8] [{data}], align 64"
        self.call("ldtilecfg", f"ptr {name}")

    def product(self, buffers: Sequence[Buffer], m: int, n: int, k: int) -> None:
        """Sums of m x n, a multiple of 16 each, over k."""
        fn, depth = self.fn, min(k, 64 // self.size)
        self.configure(depth)
        for i0, rows in ((0, 2), (m // 32 * 32, 1)):
            for j0, columns in ((0, 2), (n // 32 * 32, 1)):
                high = m // 32 * 32 if rows == 2 else m
                wide = n // 32 * 32 if columns == 2 else n
                if i0 < high and j0 < wide:
                    self.blocks(buffers, (i0, high, rows), (j0, wide, columns), k, depth)
        self.call("tilerelease", "")
        fn.scopes[-1].cse.clear()

    def blocks(
        self, buffers: Sequence[Buffer], down: tuple[int, int, int], across: tuple[int, int, int], k: int, depth: int
    ) -> None:
        """Loops over blocks of `rows` x `columns` tiles."""
        fn, (i0, high, rows), (j0, wide, columns) = self.fn, down, across

        def row(i: str | int, _: list[str]) -> list[str]:
            def column(j: str | int, _: list[str]) -> list[str]:
                with fn.isolated():
                    self.block(buffers, i, j, rows, columns, k, depth)
                return []

            fn.loop(j0, wide, _SIDE * columns, (), column)
            return []

        fn.loop(i0, high, _SIDE * rows, (), row)

    def place(self, pointer: str, *terms: tuple[str | int, int]) -> str:
        """An address some bytes further: the sum of numbers times bytes."""
        fn, total = self.fn, 0
        at: str | int = total
        for number, step in terms:
            at = fn.add(at, fn.times(number, step, fn.here), fn.here)
        return pointer if at == 0 else fn.scalar(f"getelementptr i8, ptr {pointer}, i64 {at}", "ptr", fn.here)

    def block(
        self, buffers: Sequence[Buffer], i: str | int, j: str | int, rows: int, columns: int, k: int, depth: int
    ) -> None:
        fn, (a, b, c) = self.fn, buffers
        pitch_a, pitch_b, pitch_c = self.size * a.strides[0], 4 * b.strides[0], 4 * c.strides[0]
        tiles = [(r, q) for r in range(rows) for q in range(columns)]
        sums = [self.place(c.pointer, (i, pitch_c), (j, 4), (_SIDE * r, pitch_c), (64 * q, 1)) for r, q in tiles]
        for t, place in enumerate(sums):
            self.call("tileloadd64", f"i8 {t}, ptr {place}, i64 {pitch_c}")

        def turn(at: str | int, _: list[str]) -> list[str]:
            with fn.isolated():
                for r in range(rows):
                    place = self.place(a.pointer, (i, pitch_a), (at, self.size), (_SIDE * r, pitch_a))
                    self.call("tileloadd64", f"i8 {4 + r}, ptr {place}, i64 {pitch_a}")
                for q in range(columns):
                    place = self.place(b.pointer, (at, pitch_b // self.count), (j, 4), (64 * q, 1))
                    self.call("tileloadd64", f"i8 {6 + q}, ptr {place}, i64 {pitch_b}")
                for t, (r, q) in enumerate(tiles):
                    self.call(self.multiply, f"i8 {t}, i8 {4 + r}, i8 {6 + q}")
            return []

        fn.loop(0, k, depth, (), turn)
        for t, place in enumerate(sums):
            self.call("tilestored64", f"i8 {t}, ptr {place}, i64 {pitch_c}")
