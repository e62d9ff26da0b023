"""The loops of tiles whose rows of A are windows, read in place in segments: what `ByteTile` and `DotTile` share.

`symbol(A, positions, B, segments, count, length, C, row, add)`: row i of A begins at A + positions[i] and is `count`
segments of `length` bytes, of which k begins at segments[k] in it.  B comes as a panel of words [word][columns] of four
bytes.  A step reads `step` bytes of each row at `%p{i}` + `%o` and the panel at `%b`; it adds to the sums `%c{i}_{j}` and
names the results `%s{i}_{j}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["WindowLoop"]


class WindowLoop(NamedTuple):
    """The loops around the step of a tile of `rows` x `vectors` vectors of `lanes` sums."""

    symbol: str
    rows: int
    vectors: int
    lanes: int
    step: int  # bytes of a row
    starts: Mapping[str, str]  # block before the loops -> name of the sums that it begins with, "" for zeros

    @property
    def head(self) -> str:
        """The line that defines the function."""
        window = "ptr noalias %A, ptr noalias %positions"
        panel = "ptr noalias %B, ptr noalias %segments, i64 %count, i64 %length"
        return f"define void @{self.symbol}({window}, {panel}, ptr noalias %C, i64 %row, i64 %add) {{"

    def row(self, i: int) -> list[str]:
        """`%p{i}`: where row i of A begins."""
        return [
            f"  %at{i} = getelementptr i64, ptr %positions, i64 {i}",
            f"  %position{i} = load i64, ptr %at{i}, align 8",
            f"  %p{i} = getelementptr i8, ptr %A, i64 %position{i}",
        ]

    @property
    def begin(self) -> list[str]:
        """The lines before a step, from the block `segment` on."""
        sums = f"<{self.lanes} x i32>"
        tile = [(i, j) for i in range(self.rows) for j in range(self.vectors)]

        def merged(values: Mapping[str, str], again: str) -> str:
            return ", ".join(f"[{value}, %{block}]" for block, value in {**values, "next": again}.items())

        def first(i: int, j: int) -> dict[str, str]:
            return {block: f"%{name}{i}_{j}" if name else "zeroinitializer" for block, name in self.starts.items()}

        return [
            "segment:", f"  %n = phi i64 {merged(dict.fromkeys(self.starts, '0'), '%n1')}",
            f"  %first = phi ptr {merged(dict.fromkeys(self.starts, '%B'), '%b1')}",
            *(f"  %d{i}_{j} = phi {sums} {merged(first(i, j), f'%s{i}_{j}')}" for i, j in tile),
            "  %listed = getelementptr i64, ptr %segments, i64 %n", "  %begin = load i64, ptr %listed, align 8",
            "  %end = add i64 %begin, %length", "  br label %loop", "loop:",
            "  %o = phi i64 [%begin, %segment], [%o1, %loop]", "  %b = phi ptr [%first, %segment], [%b1, %loop]",
            *(f"  %c{i}_{j} = phi {sums} [%d{i}_{j}, %segment], [%s{i}_{j}, %loop]" for i, j in tile),
        ]  # fmt: skip

    @property
    def end(self) -> list[str]:
        """The lines after a step; the block `done` begins behind them."""
        return [
            f"  %o1 = add nuw nsw i64 %o, {self.step}",
            f"  %b1 = getelementptr i8, ptr %b, i64 {self.step * self.vectors * self.lanes}",
            "  %more = icmp ult i64 %o1, %end", "  br i1 %more, label %loop, label %next", "next:",
            "  %n1 = add nuw nsw i64 %n, 1", "  %again = icmp ult i64 %n1, %count", "  br i1 %again, label %segment, label %done",
            "done:",
        ]  # fmt: skip
