"""Rows of elements of one or two bytes copied to other places, with zeros around them, as LLVM text."""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.kernel_text import FunctionText

__all__ = ["PaddedRows"]

_BYTES = 64  # of a vector


class PaddedRows(FunctionText):
    """`symbol(out, x, rows, out_pitch, x_pitch, width, first, last)`: writes `width` elements of each row, zeros but for
    those from `first` to before `last`, which come from the same places of a row of x.

    Elements have `itemsize` bytes, 1 or 2.  Pitches are in bytes.  Nothing else is read or written.  It is for machines
    whose vectors have masked lanes of that size (AVX-512BW).
    """

    __slots__ = ("itemsize",)

    def __init__(self, itemsize: int) -> None:
        self.itemsize, self.symbol = itemsize, f"rl_padded_rows_{itemsize}"

    @property
    def key(self) -> str:
        return self.symbol

    @property
    def text(self) -> str:
        n, element = _BYTES // self.itemsize, f"i{8 * self.itemsize}"
        vector, mask, index = f"<{n} x {element}>", f"<{n} x i1>", f"<{n} x i32>"
        places = ", ".join(f"i32 {i}" for i in range(n))
        arguments = "ptr noalias %out, ptr noalias %x, i64 %rows, i64 %out_pitch, i64 %x_pitch, i64 %width, i64 %first, i64 %last"
        lines = [
            f"declare {vector} @llvm.masked.load.v{n}{element}.p0(ptr, i32 immarg, {mask}, {vector})",
            f"declare void @llvm.masked.store.v{n}{element}.p0({vector}, ptr, i32 immarg, {mask})",
            f"define void @{self.symbol}({arguments}) {{",
            "entry:",
        ]
        for name in ("width", "first", "last"):
            lines += [
                f"  %{name}0 = trunc i64 %{name} to i32",
                f"  %{name}1 = insertelement {index} poison, i32 %{name}0, i64 0",
                f"  %{name}s = shufflevector {index} %{name}1, {index} poison, {index} zeroinitializer",
            ]
        lines += [
            "  %none = icmp sle i64 %rows, 0",
            "  %empty = icmp sle i64 %width, 0",
            "  %nothing = or i1 %none, %empty",
            "  br i1 %nothing, label %done, label %vector",
            "vector:",
            "  %j = phi i64 [0, %entry], [%k, %next]",
            "  %j0 = trunc i64 %j to i32",
            f"  %j1 = insertelement {index} poison, i32 %j0, i64 0",
            f"  %js = shufflevector {index} %j1, {index} poison, {index} zeroinitializer",
            f"  %at = add {index} %js, <{places}>",
            f"  %after = icmp sge {index} %at, %firsts",
            f"  %before = icmp slt {index} %at, %lasts",
            f"  %inside = and {mask} %after, %before",
            f"  %written = icmp slt {index} %at, %widths",
            f"  %out0 = getelementptr {element}, ptr %out, i64 %j",
            f"  %x0 = getelementptr {element}, ptr %x, i64 %j",
            "  br label %row",
            "row:",
            "  %left = phi i64 [%rows, %vector], [%fewer, %row]",
            "  %to = phi ptr [%out0, %vector], [%to1, %row]",
            "  %from = phi ptr [%x0, %vector], [%from1, %row]",
            f"  %v = call {vector} @llvm.masked.load.v{n}{element}.p0(ptr %from, i32 1, {mask} %inside, {vector} zeroinitializer)",
            f"  call void @llvm.masked.store.v{n}{element}.p0({vector} %v, ptr %to, i32 1, {mask} %written)",
            "  %to1 = getelementptr i8, ptr %to, i64 %out_pitch",
            "  %from1 = getelementptr i8, ptr %from, i64 %x_pitch",
            "  %fewer = sub i64 %left, 1",
            "  %more = icmp sgt i64 %fewer, 0",
            "  br i1 %more, label %row, label %next",
            "next:",
            f"  %k = add i64 %j, {n}",
            "  %again = icmp slt i64 %k, %width",
            "  br i1 %again, label %vector, label %done",
            "done:",
            "  ret void",
            "}",
        ]
        return "\n".join(lines)
