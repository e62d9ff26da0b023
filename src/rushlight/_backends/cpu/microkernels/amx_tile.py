"""The inner kernel of a matrix product on processors with matrix tiles (Intel AMX): 32 x 32 sums in four tile
registers.

One instruction multiplies 16 rows of A, each of 64 bytes along k, with 16 columns of B, and adds to 16 x 16 sums
(Intel, "Architecture Instruction Set Extensions Programming Reference", chapter on AMX).  A *word* of these kernels is
64 bytes, one row of a tile: A comes as panels [k / group][rows][group], B as panels [k / group][group /
pair][columns][pair] with the elements that one lane multiplies adjacent, zeros padding the last word:

    kind       operands     group   pair   sums
    amx_bf16   bfloat16     32      2      float32; subnormal numbers count as zero
    amx_i8     bytes        64      4      int32; A unsigned (tdpbusd) or signed (tdpbssd), B signed

Every call configures and releases the tile registers; a *held* tile leaves both to its callers.

A `PlacedAmxTile` reads rows of A where they lie: rows are evenly spaced, and a list says where in a row each word begins.
"""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.kernel_text import KernelText
from rushlight._backends.cpu.microkernels.panels import Panels

__all__ = ["AmxTile", "PlacedAmxTile"]

_TILES = tuple(range(8))  # 0 to 3: sums, 4 and 5: rows of A, 6 and 7: columns of B
_ROWS, _BYTES = 16, 64


class AmxTile(KernelText):
    """`rows` x `columns` sums of `kind`; `text` is LLVM text that defines `symbols`.

    `symbol(A, B, C, row, k, add)` is that of a `RegisterTile`, with k in words.  `panels` pack B, and transpose
    elements of A.  A `held` tile is for many small products in turn: `begin()` configures the tile registers before
    the first one, `end()` releases them after the last.
    """

    __slots__ = (
        "columns",
        "fma",
        "held",
        "instruction",
        "kind",
        "lanes",
        "panels",
        "rows",
        "symbol",
        "transposer",
        "vectors",
    )

    def __init__(self, kind: str, instruction: str, held: bool = False) -> None:
        self.kind, self.instruction, self.held = kind, instruction, held
        self.rows = self.columns = 32
        self.lanes, self.vectors, self.fma = 16, 2, True
        self.symbol = f"rl_tile_{kind}_{instruction}{'_held' if held else ''}"
        pair = 2 if kind == "amx_bf16" else 4
        self.panels = Panels(4, pair, 8)
        self.transposer = Panels(4 // pair, 1, 8)

    @property
    def group(self) -> int:
        """The elements along k in one word."""
        return _BYTES // 4 * self.panels.group

    @property
    def key(self) -> str:
        return self.symbol

    @property
    def symbols(self) -> tuple[str, ...]:
        return (self.symbol, *self.bounds, *self.panels.symbols, *self.transposer.symbols)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The symbols of `begin` and `end` of a held tile."""
        return (f"{self.symbol}_begin", f"{self.symbol}_end") if self.held else ()

    @property
    def _declared(self) -> list[str]:
        """The instructions, and the configuration of the tile registers."""
        config = [1, *[0] * 15, *(v for _ in _TILES for v in (_BYTES, 0)), *[0] * 16, *[_ROWS] * 8, *[0] * 8]
        return [
            "declare void @llvm.x86.ldtilecfg(ptr)", "declare void @llvm.x86.tilerelease()", "declare void @llvm.x86.tilezero(i8 immarg)",
            "declare void @llvm.x86.tileloadd64(i8 immarg, ptr, i64)", "declare void @llvm.x86.tilestored64(i8 immarg, ptr, i64)",
            f"declare void @llvm.x86.{self.instruction}(i8 immarg, i8 immarg, i8 immarg)",
            f"@{self.symbol}_config = private unnamed_addr constant [64 x i8] [{', '.join(f'i8 {v}' for v in config)}], align 64",
        ]  # fmt: skip

    @property
    def text(self) -> str:
        multiply = f"llvm.x86.{self.instruction}"
        configure, release = (
            f"  call void @llvm.x86.ldtilecfg(ptr @{self.symbol}_config)",
            "  call void @llvm.x86.tilerelease()",
        )
        lines = [
            *self._declared,
            f"define void @{self.symbol}(ptr noalias %A, ptr noalias %B, ptr noalias %C, i64 %row, i64 %k, i64 %add) {{",
            "entry:",
            *([] if self.held else [configure]),
            "  %pitch = shl i64 %row, 2",
            f"  %low = mul i64 %pitch, {_ROWS}",
            "  %c1 = getelementptr i8, ptr %C, i64 64", "  %c2 = getelementptr i8, ptr %C, i64 %low", "  %c3 = getelementptr i8, ptr %c2, i64 64",
            "  %fresh = icmp eq i64 %add, 0",
            "  br i1 %fresh, label %clear, label %fetch",
            "clear:", *(f"  call void @llvm.x86.tilezero(i8 {t})" for t in range(4)), "  br label %loop",
            "fetch:", *(f"  call void @llvm.x86.tileloadd64(i8 {t}, ptr {c}, i64 %pitch)" for t, c in enumerate(("%C", "%c1", "%c2", "%c3"))),
            "  br label %loop",
            "loop:",
            "  %n = phi i64 [0, %clear], [0, %fetch], [%n1, %loop]",
            "  %a = phi ptr [%A, %clear], [%A, %fetch], [%a1, %loop]",
            "  %b = phi ptr [%B, %clear], [%B, %fetch], [%b1, %loop]",
            f"  %a5 = getelementptr i8, ptr %a, i64 {_ROWS * _BYTES}",
            "  %b7 = getelementptr i8, ptr %b, i64 64",
            f"  call void @llvm.x86.tileloadd64(i8 4, ptr %a, i64 {_BYTES})",
            f"  call void @llvm.x86.tileloadd64(i8 6, ptr %b, i64 {4 * self.columns})",
            f"  call void @{multiply}(i8 0, i8 4, i8 6)",
            f"  call void @llvm.x86.tileloadd64(i8 7, ptr %b7, i64 {4 * self.columns})",
            f"  call void @{multiply}(i8 1, i8 4, i8 7)",
            f"  call void @llvm.x86.tileloadd64(i8 5, ptr %a5, i64 {_BYTES})",
            f"  call void @{multiply}(i8 2, i8 5, i8 6)",
            f"  call void @{multiply}(i8 3, i8 5, i8 7)",
            f"  %a1 = getelementptr i8, ptr %a, i64 {self.rows * _BYTES}",
            f"  %b1 = getelementptr i8, ptr %b, i64 {self.columns * _BYTES}",
            "  %n1 = add nuw nsw i64 %n, 1",
            "  %more = icmp slt i64 %n1, %k",
            "  br i1 %more, label %loop, label %done",
            "done:", *(f"  call void @llvm.x86.tilestored64(i8 {t}, ptr {c}, i64 %pitch)" for t, c in enumerate(("%C", "%c1", "%c2", "%c3"))),
            *([] if self.held else [release]),
            "  ret void", "}",
            *(
                line
                for symbol, instruction in zip(self.bounds, (configure, release), strict=False)
                for line in (f"define void @{symbol}() {{", instruction, "  ret void", "}")
            ),
            self.panels.text, self.transposer.text,
        ]  # fmt: skip
        return "\n".join(lines)


class PlacedAmxTile(AmxTile):
    """The same for rows of A that lie evenly spaced in memory, any number of them.

    `symbol(A, B, offsets, C, pitch, row, k, add, rows)`: word w of row i lies at A + i * pitch + offsets[w], in bytes.
    Blocks of 32 rows are computed, of 16 where no more are left: `C`, and the memory of A, reach to the end of the last.
    """

    __slots__ = ()

    def __init__(self, kind: str, instruction: str) -> None:
        super().__init__(kind, instruction)
        self.symbol += "_placed"

    @property
    def text(self) -> str:
        arguments = "ptr noalias %A, ptr noalias %B, ptr noalias %offsets, ptr noalias %C, i64 %pitch, i64 %row, i64 %k, i64 %add, i64 %rows"
        lines = [
            *self._declared,
            f"define void @{self.symbol}({arguments}) {{",
            "entry:",
            f"  call void @llvm.x86.ldtilecfg(ptr @{self.symbol}_config)",
            "  %across = shl i64 %row, 2",
            f"  %low = mul i64 %across, {_ROWS}",
            f"  %half = mul i64 %pitch, {_ROWS}",
            f"  %down = mul i64 %pitch, {self.rows}",
            f"  %onward = mul i64 %across, {self.rows}",
            "  %fresh = icmp eq i64 %add, 0",
            "  br label %block",
            "block:",
            "  %left = phi i64 [%rows, %entry], [%left1, %next]",
            "  %from = phi ptr [%A, %entry], [%from1, %next]",
            "  %c0 = phi ptr [%C, %entry], [%to1, %next]",
            "  %c1 = getelementptr i8, ptr %c0, i64 64", "  %c2 = getelementptr i8, ptr %c0, i64 %low", "  %c3 = getelementptr i8, ptr %c2, i64 64",
            f"  %many = icmp sgt i64 %left, {_ROWS}",
            "  br i1 %many, label %both, label %one",
            *self._block("both", 2), *self._block("one", 1),
            "next:",
            f"  %left1 = sub i64 %left, {self.rows}",
            "  %from1 = getelementptr i8, ptr %from, i64 %down",
            "  %to1 = getelementptr i8, ptr %c0, i64 %onward",
            "  %again = icmp sgt i64 %left1, 0",
            "  br i1 %again, label %block, label %done",
            "done:", "  call void @llvm.x86.tilerelease()", "  ret void", "}",
            self.panels.text, self.transposer.text,
        ]  # fmt: skip
        return "\n".join(lines)

    def _block(self, name: str, halves: int) -> list[str]:
        """Lines that compute one block of rows, of which there are as many halves."""
        multiply, tiles = f"llvm.x86.{self.instruction}", range(2 * halves)
        return [
            f"{name}:", f"  br i1 %fresh, label %{name}clear, label %{name}fetch",
            f"{name}clear:", *(f"  call void @llvm.x86.tilezero(i8 {t})" for t in tiles), f"  br label %{name}loop",
            f"{name}fetch:", *(f"  call void @llvm.x86.tileloadd64(i8 {t}, ptr %c{t}, i64 %across)" for t in tiles),
            f"  br label %{name}loop",
            f"{name}loop:",
            f"  %{name}n = phi i64 [0, %{name}clear], [0, %{name}fetch], [%{name}m, %{name}loop]",
            f"  %{name}b = phi ptr [%B, %{name}clear], [%B, %{name}fetch], [%{name}d, %{name}loop]",
            f"  %{name}listed = getelementptr i64, ptr %offsets, i64 %{name}n",
            f"  %{name}offset = load i64, ptr %{name}listed, align 8",
            f"  %{name}a = getelementptr i8, ptr %from, i64 %{name}offset",
            f"  %{name}b7 = getelementptr i8, ptr %{name}b, i64 64",
            f"  call void @llvm.x86.tileloadd64(i8 4, ptr %{name}a, i64 %pitch)",
            f"  call void @llvm.x86.tileloadd64(i8 6, ptr %{name}b, i64 {4 * self.columns})",
            f"  call void @{multiply}(i8 0, i8 4, i8 6)",
            f"  call void @llvm.x86.tileloadd64(i8 7, ptr %{name}b7, i64 {4 * self.columns})",
            f"  call void @{multiply}(i8 1, i8 4, i8 7)",
            *(
                (
                    f"  %{name}a5 = getelementptr i8, ptr %{name}a, i64 %half",
                    f"  call void @llvm.x86.tileloadd64(i8 5, ptr %{name}a5, i64 %pitch)",
                    f"  call void @{multiply}(i8 2, i8 5, i8 6)",
                    f"  call void @{multiply}(i8 3, i8 5, i8 7)",
                )
                if halves == 2
                else ()
            ),
            f"  %{name}d = getelementptr i8, ptr %{name}b, i64 {self.columns * _BYTES}",
            f"  %{name}m = add nuw nsw i64 %{name}n, 1",
            f"  %{name}more = icmp slt i64 %{name}m, %k",
            f"  br i1 %{name}more, label %{name}loop, label %{name}done",
            f"{name}done:", *(f"  call void @llvm.x86.tilestored64(i8 {t}, ptr %c{t}, i64 %across)" for t in tiles),
            "  br label %next",
        ]  # fmt: skip
