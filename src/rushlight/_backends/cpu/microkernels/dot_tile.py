"""The inner kernel of products of bytes on machines with an instruction for four products of bytes (vpdpbusd).

Operands lie as those of a `ByteTile`: rows of A are read in place, at `positions`, in segments of equal length; B comes as
panels of words [word][columns] of four bytes.  The instruction multiplies unsigned bytes by signed ones and adds four
products to a sum of 32 bits, without rounding or saturation, so that any bytes give exact sums.

A step loads a word of each row as a vector of equal words, which takes a load and no other port, and multiplies it
by the vectors of B: 6 x 4 sums in 32 registers, 4 x 2 in 16.
"""

from __future__ import annotations

from typing import Any

from rushlight._backends.cpu.microkernels.window_loop import WindowLoop

__all__ = ["DotTile", "has_byte_dots"]

_INSTRUCTIONS = {16: "llvm.x86.avx512.vpdpbusd.512", 8: "llvm.x86.avx512.vpdpbusd.256"}
_SIZES = {16: (6, 4), 8: (4, 2)}  # rows and vectors, by lanes
_FLAGS = {64: "avx512_vnni", 32: "avx_vnni"}  # by bytes of a vector


def has_byte_dots(machine: Any) -> bool:
    """Whether a machine (`arch`, `vector_bytes`, `has(flag)`) has the instruction for its vectors."""
    flag = _FLAGS.get(machine.vector_bytes, "")
    return machine.arch == "x86_64" and bool(flag) and machine.has(flag)


class DotTile:
    """A tile of `rows` x `columns` sums in vectors of `lanes`; `text` is the LLVM text of its kernel, `symbol`.

    `symbol(A, positions, B, segments, count, length, C, row, add)` is that of a `ByteTile`.
    """

    __slots__ = ("columns", "lanes", "rows", "symbol", "vectors")

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.rows, self.vectors = _SIZES[lanes]
        self.columns, self.symbol = self.vectors * lanes, f"rl_bytes_dot_{lanes}"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that `text` defines."""
        return (self.symbol,)

    @property
    def text(self) -> str:
        sums, taken, name = f"<{self.lanes} x i32>", f"<{4 * self.lanes} x i8>", _INSTRUCTIONS[self.lanes]
        tile = [(i, j) for i in range(self.rows) for j in range(self.vectors)]
        loop = WindowLoop(self.symbol, self.rows, self.vectors, self.lanes, 4, {"entry": "", "join": "old"})
        lines = [
            f"declare {sums} @{name}({sums}, {taken}, {taken})",
            loop.head,
            "entry:",
            "  %fresh = icmp eq i64 %add, 0",
        ]
        for i in range(self.rows):
            lines += [
                *loop.row(i),
                f"  %far{i} = mul i64 %row, {i}",
                f"  %to{i} = getelementptr i32, ptr %C, i64 %far{i}",
                *(f"  %to{i}_{j} = getelementptr i32, ptr %to{i}, i64 {self.lanes * j}" for j in range(self.vectors)),
            ]
        lines += [
            "  br i1 %fresh, label %segment, label %join", "join:",
            *(f"  %old{i}_{j} = load {sums}, ptr %to{i}_{j}, align 4" for i, j in tile),
            "  br label %segment", *loop.begin,
        ]  # fmt: skip
        for j in range(self.vectors):
            lines += [
                f"  %pb{j} = getelementptr i8, ptr %b, i64 {4 * self.lanes * j}",
                f"  %y{j} = load {taken}, ptr %pb{j}, align {4 * self.lanes}",
            ]
        for i in range(self.rows):
            lines += [
                f"  %pa{i} = getelementptr i8, ptr %p{i}, i64 %o",
                f"  %e{i} = load i32, ptr %pa{i}, align 1",
                f"  %v{i} = insertelement {sums} poison, i32 %e{i}, i64 0",
                f"  %x{i} = shufflevector {sums} %v{i}, {sums} poison, <{self.lanes} x i32> zeroinitializer",
                f"  %w{i} = bitcast {sums} %x{i} to {taken}",
                *(
                    f"  %s{i}_{j} = call {sums} @{name}({sums} %c{i}_{j}, {taken} %w{i}, {taken} %y{j})"
                    for j in range(self.vectors)
                ),
            ]
        stores = [f"  store {sums} %s{i}_{j}, ptr %to{i}_{j}, align 4" for i, j in tile]
        return "\n".join([*lines, *loop.end, *stores, "  ret void", "}"])
