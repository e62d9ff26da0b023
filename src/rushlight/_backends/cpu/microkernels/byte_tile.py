"""The inner kernel of products of bytes on machines with AVX2 and no instruction for four products of bytes.

Rows of A are read in place: row i begins at A + positions[i], and its bytes lie in segments of equal length, at the
same offsets in each row.  B comes as panels of words [word][columns], zeros padding the last word of a segment.

There are three forms, all exact:

    u7     words of four bytes.  vpmaddubsw adds two products of an unsigned and a signed byte in 16 bits, and saturates:
           it is exact where all bytes of A are below 128, as -32768 < 2 * 127 * -128 and 2 * 127 * 127 < 32767.
           vpmaddwd by ones adds two such sums in 32 bits.
    u7x2   two words at a time, whose sums of two are added in 16 bits before they are widened.  That is exact where
           further the positive numbers among the four of B that meet in a sum add up to no more than 258, and the
           negative ones to no less than -258, as 127 * 258 < 32767; `fits_symbol` looks whether they do.
    i16    words of two numbers of 16 bits, to which both operands were widened; vpmaddwd.

They need 3, 5 and 4 vector operations for 32, 64 and 16 * 2 products.  Where vector operations are three a cycle (AMD
Zen 3) that is 96, 114 and 77 products a nanosecond at 3.2 GHz.
"""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.window_loop import WindowLoop

__all__ = ["ByteTile"]

_LANES = 8  # words of 32 bits in a vector
_SUMS = f"<{_LANES} x i32>"
_MOST = 32767 // 127  # of four numbers of B of one sign
_BYTES, _HALVES = f"<{4 * _LANES} x i8>", f"<{2 * _LANES} x i16>"
_DECLARED = [
    f"declare {_HALVES} @llvm.x86.avx2.pmadd.ub.sw({_BYTES}, {_BYTES})",
    f"declare {_SUMS} @llvm.x86.avx2.pmadd.wd({_HALVES}, {_HALVES})",
]


class ByteTile:
    """A tile of `rows` x `columns` sums in the form "u7", "u7x2" or "i16"; `text` is the LLVM text of its kernel, `symbol`.

    `symbol(A, positions, B, segments, count, length, C, row, add)`: C[i, j] at C + i * row + j becomes the product of
    row i of A and column j of B over `count` segments of `length` bytes, plus its old value where `add` is not 0.
    `positions` and `segments` are offsets in bytes.

    Of "u7x2", `fits_symbol(B, count)`: 1 where `count` words of B (an even number) are such that its sums are exact,
    else 0.
    """

    __slots__ = ("columns", "form", "rows", "symbol", "vectors")

    def __init__(self, form: str, rows: int = 4, vectors: int = 2) -> None:
        self.form, self.rows, self.vectors = form, rows, vectors
        self.columns, self.symbol = vectors * _LANES, f"rl_bytes_{form}_{rows}x{vectors}"

    @property
    def fits_symbol(self) -> str:
        return f"{self.symbol}_fits"

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols that `text` defines."""
        return (self.symbol, self.fits_symbol) if self.form == "u7x2" else (self.symbol,)

    @property
    def _words(self) -> int:
        """Words of a row taken in one step."""
        return 2 if self.form == "u7x2" else 1

    @property
    def text(self) -> str:
        loop = WindowLoop(self.symbol, self.rows, self.vectors, _LANES, 4 * self._words, {"entry": ""})
        lines = [
            *_DECLARED, loop.head, "entry:", *(line for i in range(self.rows) for line in loop.row(i)),
            "  br label %segment", *loop.begin,
            *(line for j in range(self.vectors) for line in self._column(j)),
            *(line for i in range(self.rows) for line in self._row(i)),
            *loop.end, "  %fresh = icmp eq i64 %add, 0", "  br i1 %fresh, label %write, label %join",
            *self._out("write"), *self._out("join"), "}", *(self._fits() if self.form == "u7x2" else []),
        ]  # fmt: skip
        return "\n".join(lines)

    def _column(self, j: int) -> list[str]:
        """Load a vector of each word of B."""
        kind, lines = _HALVES if self.form == "i16" else _BYTES, []
        for k in range(self._words):
            lines += [
                f"  %pb{j}_{k} = getelementptr i8, ptr %b, i64 {4 * (k * self.columns + _LANES * j)}",
                f"  %y{j}_{k} = load {kind}, ptr %pb{j}_{k}, align {4 * _LANES}",
            ]
        return lines

    def _row(self, i: int) -> list[str]:
        """Multiply the words of a row by those of all columns."""
        kind = _HALVES if self.form == "i16" else _BYTES
        lines = [f"  %pa{i}_0 = getelementptr i8, ptr %p{i}, i64 %o"]
        if self.form == "u7x2":
            lines.append(f"  %pa{i}_1 = getelementptr i8, ptr %pa{i}_0, i64 4")
        for k in range(self._words):
            lines += [
                f"  %e{i}_{k} = load i32, ptr %pa{i}_{k}, align 1",
                f"  %v{i}_{k} = insertelement {_SUMS} poison, i32 %e{i}_{k}, i64 0",
                f"  %x{i}_{k} = shufflevector {_SUMS} %v{i}_{k}, {_SUMS} poison, <{_LANES} x i32> zeroinitializer",
                f"  %w{i}_{k} = bitcast {_SUMS} %x{i}_{k} to {kind}",
            ]
        for j in range(self.vectors):
            halves, others = f"%w{i}_0", f"%y{j}_0"
            if self.form != "i16":
                halves, others = f"%q{i}_{j}_0", "splat (i16 1)"
                lines += [
                    f"  %q{i}_{j}_{k} = call {_HALVES} @llvm.x86.avx2.pmadd.ub.sw({_BYTES} %w{i}_{k}, {_BYTES} %y{j}_{k})"
                    for k in range(self._words)
                ]
            if self.form == "u7x2":
                lines.append(f"  %t{i}_{j} = add {_HALVES} %q{i}_{j}_0, %q{i}_{j}_1")
                halves = f"%t{i}_{j}"
            lines += [
                f"  %m{i}_{j} = call {_SUMS} @llvm.x86.avx2.pmadd.wd({_HALVES} {halves}, {_HALVES} {others})",
                f"  %s{i}_{j} = add {_SUMS} %c{i}_{j}, %m{i}_{j}",
            ]
        return lines

    def _fits(self) -> list[str]:
        """`fits_symbol`: positive and negative numbers of B are added up as the tile adds products by ones."""
        n, ones = 4 * _LANES, f"{_BYTES} splat (i8 1)"
        lines = [
            f"declare {_BYTES} @llvm.smax.v{n}i8({_BYTES}, {_BYTES})", f"declare {_BYTES} @llvm.smin.v{n}i8({_BYTES}, {_BYTES})",
            f"define i64 @{self.fits_symbol}(ptr noalias %B, i64 %count) {{", "entry:", f"  %bytes = mul i64 %count, {4 * self.columns}",
            "  br label %loop", "loop:", "  %o = phi i64 [0, %entry], [%o1, %loop]",
            f"  %most = phi {_HALVES} [zeroinitializer, %entry], [%m{2 * self.vectors}, %loop]", f"  %m0 = or {_HALVES} %most, zeroinitializer",
        ]  # fmt: skip
        for j in range(self.vectors):
            for k in range(2):
                tag = f"{j}_{k}"
                lines += [
                    f"  %at{tag} = add i64 %o, {4 * (k * self.columns + _LANES * j)}",
                    f"  %p{tag} = getelementptr i8, ptr %B, i64 %at{tag}",
                    f"  %w{tag} = load {_BYTES}, ptr %p{tag}, align {n}",
                    f"  %up{tag} = call {_BYTES} @llvm.smax.v{n}i8({_BYTES} %w{tag}, {_BYTES} zeroinitializer)",
                    f"  %low{tag} = call {_BYTES} @llvm.smin.v{n}i8({_BYTES} %w{tag}, {_BYTES} zeroinitializer)",
                    f"  %down{tag} = sub {_BYTES} zeroinitializer, %low{tag}",
                    *(
                        f"  %{way}s{tag} = call {_HALVES} @llvm.x86.avx2.pmadd.ub.sw({_BYTES} %{way}{tag}, {ones})"
                        for way in ("up", "down")
                    ),
                ]
            for way, m in (("up", 2 * j), ("down", 2 * j + 1)):
                lines += [
                    f"  %{way}t{j} = add {_HALVES} %{way}s{j}_0, %{way}s{j}_1",
                    f"  %{way}c{j} = icmp sgt {_HALVES} %{way}t{j}, splat (i16 {_MOST})",
                    f"  %{way}e{j} = sext <{2 * _LANES} x i1> %{way}c{j} to {_HALVES}",
                    f"  %m{m + 1} = or {_HALVES} %m{m}, %{way}e{j}",
                ]
        return [
            *lines, f"  %o1 = add nuw nsw i64 %o, {8 * self.columns}", "  %more = icmp ult i64 %o1, %bytes",
            "  br i1 %more, label %loop, label %done", "done:",
            f"  %any = bitcast {_HALVES} %m{2 * self.vectors} to i{16 * 2 * _LANES}", f"  %none = icmp eq i{16 * 2 * _LANES} %any, 0",
            "  %fits = zext i1 %none to i64", "  ret i64 %fits", "}",
        ]  # fmt: skip

    def _out(self, block: str) -> list[str]:
        """Store the sums, or add them to what is there."""
        lines, p = [f"{block}:"], block[0]
        for i in range(self.rows):
            lines += [f"  %{p}o{i} = mul i64 %row, {i}", f"  %{p}r{i} = getelementptr i32, ptr %C, i64 %{p}o{i}"]
            for j in range(self.vectors):
                value = f"%s{i}_{j}"
                lines.append(f"  %{p}p{i}_{j} = getelementptr i32, ptr %{p}r{i}, i64 {_LANES * j}")
                if block == "join":
                    lines += [
                        f"  %old{i}_{j} = load {_SUMS}, ptr %jp{i}_{j}, align 4",
                        f"  %sum{i}_{j} = add {_SUMS} %old{i}_{j}, {value}",
                    ]
                    value = f"%sum{i}_{j}"
                lines.append(f"  store {_SUMS} {value}, ptr %{p}p{i}_{j}, align 4")
        return [*lines, "  ret void"]
