"""The inner kernel of a matrix product: a tile of C in registers, over packed panels of A and B.

The structure is that of BLIS (Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS
Functionality", 2015, section 3): A comes as panels [k][rows], B as panels [k][columns], and each step of k is one outer
product, `rows` broadcasts against `columns / lanes` vectors.  The tile is as large as the registers allow, so that the
multiplications hide the loads.

Narrow numbers come in *words* of 32 bits, which hold `group` elements along k: panels are [k / group][rows][group],
zeros padding the last word.  One instruction multiplies all pairs of a word and adds them to the accumulator:

    kind   operands         accumulators   instructions (chosen by `register_tile` from those of the machine)
    f32    float32          float32        multiply-add
    f64    float64          float64        multiply-add
    i32    int32            int32          multiplication, addition; both wrap
    i64    int64            int64          the same
    bf16   pairs bfloat16   float32        vdpbf16ps; bfdot; elsewhere two multiply-adds on the halves made float32
    i16    pairs int16      int32          vpmaddwd; elsewhere widened
    i8     fours            int32          vpdpbusd, A unsigned and B signed; sdot, both signed; there is no other form: use i16

Products of bfloat16 are exact in float32.  vdpbf16ps adds that of the second half first, then that of the first, each
with a rounding to nearest even, reads subnormal numbers as zeros and writes zeros for them, whatever the thread's mode
(Intel, "BFloat16 Hardware Numerics Definition", 2018; AMD's processors the same, see the tests).  The form without the
instruction adds in the same order with the thread's own treatment of subnormal numbers.  bfdot, without the extended
mode of newer processors, rounds the sum of two products to odd first (Arm, "Architecture Reference Manual", BFDotAdd).
"""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.kernel_text import KernelText
from rushlight._backends.cpu.microkernels.panels import Panels

__all__ = ["KINDS", "RegisterTile", "register_tile"]

# kind: type of a word, its bytes, type of an accumulator (of as many bytes), elements in a word
KINDS = {
    "f32": ("float", 4, "float", 1), "f64": ("double", 8, "double", 1),
    "i32": ("i32", 4, "i32", 1), "i64": ("i64", 8, "i64", 1),
    "bf16": ("i32", 4, "float", 2), "i16": ("i32", 4, "i32", 2), "i8": ("i32", 4, "i32", 4),
}  # fmt: skip

# (kind, name): LLVM's function for vectors of 16, 32 or 64 bytes, and the type of its operands' elements
_INSTRUCTIONS = {
    ("bf16", "vdpbf16ps"): ({64: "llvm.x86.avx512bf16.dpbf16ps.512"}, "bfloat"),
    ("bf16", "bfdot"): ({16: "llvm.aarch64.neon.bfdot.v4f32.v8bf16"}, "bfloat"),
    ("i16", "vpmaddwd"): (
        {64: "llvm.x86.avx512.pmaddw.d.512", 32: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.sse2.pmadd.wd"},
        "i16",
    ),
    ("i8", "vpdpbusd"): ({64: "llvm.x86.avx512.vpdpbusd.512", 32: "llvm.x86.avx512.vpdpbusd.256"}, "i8"),
    ("i8", "sdot"): ({16: "llvm.aarch64.neon.sdot.v4i32.v16i8"}, "i8"),
}
_SUMS = ("vpdpbusd", "sdot", "vdpbf16ps", "bfdot")  # instructions that add to an accumulator


class RegisterTile(KernelText):
    """`rows` x `columns` accumulators of `kind` (see above) in vectors of `lanes`; `text` is the LLVM text of its
    kernel, `symbol`.

    `symbol(A, B, C, row, k, add)`: C[i, j] at C + i * row + j (accumulators) becomes the sum over the k words of
    A[k][i] B[k][j], plus its old value where `add` is not 0.  `instruction` multiplies words; empty for plain
    arithmetic.

    `panels` are the routines for packing its operands (see `Panels`), a text of their own.

    A `begun` tile starts from sums in front of the words of a panel of B: one row, the same for all rows of the tile.

    `part_symbol(aside, C, row, rows, columns, add)`: writes or adds a part of a tile in a buffer to C.

    `listed` names an operand that is read through a table of offsets.  "columns": `symbol(A, B, offsets, C, row, k,
    add)` reads the columns of step k at B + offsets[k] (bytes).  "rows": `symbol(A, B, positions, offsets, C, row, k,
    add)` reads row i of step k at A + positions[i] + offsets[k].

    With `rounded` C holds numbers of the operands' kind, to which the sums are rounded, and nothing is added to old
    values.  It is for machines that round vectors with one instruction, and then reads subnormal sums as zeros.
    """

    __slots__ = (
        "begun",
        "columns",
        "fma",
        "instruction",
        "kind",
        "lanes",
        "listed",
        "panels",
        "rounded",
        "rows",
        "symbol",
        "vectors",
    )

    def __init__(self, kind: str, lanes: int, rows: int, vectors: int, fma: bool, instruction: str = "") -> None:
        self.kind, self.lanes, self.rows, self.vectors, self.fma = kind, lanes, rows, vectors, fma
        self.instruction, self.listed, self.rounded, self.begun = instruction, "", False, False
        self.columns, self.symbol = vectors * lanes, f"rl_tile_{kind}_{rows}x{vectors}"
        self.panels = Panels(KINDS[kind][1], KINDS[kind][3], 1 << min(rows, lanes, 8).bit_length() - 1)

    def sized(self, rows: int, vectors: int) -> RegisterTile:
        """The same tile with another size."""
        return RegisterTile(self.kind, self.lanes, rows, vectors, self.fma, self.instruction)

    def variant(self, listed: str = "", rounded: bool = False, begun: bool = False) -> RegisterTile:
        """The same tile with other operands or results; see the class."""
        tile = self.sized(self.rows, self.vectors)
        tile.listed, tile.rounded, tile.begun = listed, rounded, begun
        tile.symbol += "".join(
            f"_{way}" for way in (listed, "rounded" if rounded else "", "begun" if begun else "") if way
        )
        return tile

    @property
    def group(self) -> int:
        """The elements along k in one word."""
        return KINDS[self.kind][3]

    @property
    def rounds(self) -> bool:
        """Whether this kind has a tile with `rounded` results."""
        return self.instruction == "vdpbf16ps"

    @property
    def transpose_symbol(self) -> str:
        return self.panels.transpose_symbol

    @property
    def square(self) -> int:
        return self.panels.n

    @property
    def key(self) -> str:
        return f"{self.symbol} {self.lanes} {self.vectors} {self.fma} {self.instruction}"

    @property
    def part_symbol(self) -> str:
        return f"{self.symbol}_part"

    @property
    def symbols(self) -> tuple[str, ...]:
        return (self.symbol,) if self.listed else (self.symbol, self.part_symbol)

    @property
    def text(self) -> str:
        word, size, sum_, _ = KINDS[self.kind]
        vector, total = f"<{self.lanes} x {word}>", f"<{self.lanes} x {sum_}>"
        tile = [(i, j) for i in range(self.rows) for j in range(self.vectors)]
        rows, columns = self.listed == "rows", self.listed == "columns"
        listed = {
            "": "",
            "columns": "ptr noalias %offsets, ",
            "rows": "ptr noalias %positions, ptr noalias %offsets, ",
        }[self.listed]
        lines = [
            *self._declared(total, size),
            f"define void @{self.symbol}(ptr noalias %A, ptr noalias %B, {listed}ptr noalias %C, i64 %row, i64 %k, i64 %add) {{",
            "entry:",
            *(self._beginning(total, size) if self.begun else []),
            "  br label %loop", "loop:",
            "  %n = phi i64 [0, %entry], [%n1, %loop]",
            *([] if rows else ["  %a = phi ptr [%A, %entry], [%a1, %loop]"]),
            *([] if columns else [f"  %b = phi ptr [{'%words' if self.begun else '%B'}, %entry], [%b1, %loop]"]),
            *(f"  %c{i}_{j} = phi {total} [{f'%sums{j}' if self.begun else 'zeroinitializer'}, %entry], [%s{i}_{j}, %loop]" for i, j in tile),
        ]  # fmt: skip
        if self.listed:
            lines += [
                "  %listed = getelementptr i64, ptr %offsets, i64 %n",
                "  %offset = load i64, ptr %listed, align 8",
            ]
            lines.append(f"  %{'a' if rows else 'b'} = getelementptr i8, ptr %{'A' if rows else 'B'}, i64 %offset")
        for j in range(self.vectors):
            lines += [
                f"  %pb{j} = getelementptr {word}, ptr %b, i64 {j * self.lanes}",
                f"  %y{j} = load {vector}, ptr %pb{j}, align {size if columns else self.lanes * size}",
                *self._operand(f"y{j}"),
            ]
        for i in range(self.rows):
            lines += [
                *(self._position(i) if rows else [f"  %pa{i} = getelementptr {word}, ptr %a, i64 {i}"]),
                f"  %e{i} = load {word}, ptr %pa{i}, align {size // self.group if rows else size}",
                f"  %v{i} = insertelement {vector} poison, {word} %e{i}, i64 0",
                f"  %x{i} = shufflevector {vector} %v{i}, {vector} poison, <{self.lanes} x i32> zeroinitializer",
                *self._operand(f"x{i}"),
                *(line for j in range(self.vectors) for line in self._step(i, j, total, size)),
            ]
        lines += [
            *([] if rows else [f"  %a1 = getelementptr {word}, ptr %a, i64 {self.rows}"]),
            *([] if columns else [f"  %b1 = getelementptr {word}, ptr %b, i64 {self.columns}"]),
            "  %n1 = add nuw nsw i64 %n, 1",
            "  %more = icmp slt i64 %n1, %k",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *(self._round_out(total, tile) if self.rounded else self._write_or_join(total, sum_, size, tile)),
            "}",
            *([] if self.listed else self._part(total, sum_, size)),
        ]
        return "\n".join(lines)

    def _part(self, vector: str, element: str, size: int) -> list[str]:
        """`part_symbol`: masked vectors."""
        n, letter = self.lanes, element[0] if element[0] == "i" else "f"
        bits = f"v{n}{letter}{8 * size}.p0"
        lines = [
            f"declare {vector} @llvm.masked.load.{bits}(ptr, i32 immarg, <{n} x i1>, {vector})",
            f"declare void @llvm.masked.store.{bits}({vector}, ptr, i32 immarg, <{n} x i1>)",
            f"define void @{self.part_symbol}(ptr noalias %aside, ptr noalias %C, i64 %row, i64 %rows, i64 %columns, i64 %add) {{", "entry:",
            "  %most = trunc i64 %columns to i32", f"  %one = insertelement <{n} x i32> poison, i32 %most, i64 0",
            f"  %all = shufflevector <{n} x i32> %one, <{n} x i32> poison, <{n} x i32> zeroinitializer",
            *(f"  %mask{j} = icmp sgt <{n} x i32> %all, <{', '.join(f'i32 {j * n + i}' for i in range(n))}>" for j in range(self.vectors)),
            "  %fresh = icmp eq i64 %add, 0", "  br i1 %fresh, label %write, label %join",
        ]  # fmt: skip
        for name in ("write", "join"):
            p = name[0]
            lines += [
                f"{name}:",
                f"  %{p}i = phi i64 [0, %entry], [%{p}n, %{name}]",
                f"  %{p}at = mul i64 %{p}i, {self.columns}",
                f"  %{p}from = getelementptr {element}, ptr %aside, i64 %{p}at",
                f"  %{p}offset = mul i64 %{p}i, %row",
                f"  %{p}to = getelementptr {element}, ptr %C, i64 %{p}offset",
            ]
            for j in range(self.vectors):
                v, mask = f"%{p}v{j}", f"<{n} x i1> %mask{j}"
                lines += [
                    f"  %{p}p{j} = getelementptr {element}, ptr %{p}from, i64 {j * n}",
                    f"  {v} = load {vector}, ptr %{p}p{j}, align {size}",
                    f"  %{p}q{j} = getelementptr {element}, ptr %{p}to, i64 {j * n}",
                ]
                if name == "join":
                    lines += [
                        f"  %old{j} = call {vector} @llvm.masked.load.{bits}(ptr %{p}q{j}, i32 {size}, {mask}, {vector} zeroinitializer)",
                        f"  %sum{j} = {'add' if letter == 'i' else 'fadd'} {vector} {v}, %old{j}",
                    ]
                    v = f"%sum{j}"
                lines.append(f"  call void @llvm.masked.store.{bits}({vector} {v}, ptr %{p}q{j}, i32 {size}, {mask})")
            lines += [
                f"  %{p}n = add nuw nsw i64 %{p}i, 1",
                f"  %{p}more = icmp slt i64 %{p}n, %rows",
                f"  br i1 %{p}more, label %{name}, label %done",
            ]
        return [*lines, "done:", "  ret void", "}"]

    def _beginning(self, total: str, size: int) -> list[str]:
        """Load the sums in front of the words of B, and skip them."""
        lines = [f"  %words = getelementptr i8, ptr %B, i64 {self.columns * size}"]
        for j in range(self.vectors):
            lines += [
                f"  %psums{j} = getelementptr i8, ptr %B, i64 {j * self.lanes * size}",
                f"  %sums{j} = load {total}, ptr %psums{j}, align {self.lanes * size}",
            ]
        return lines

    def _position(self, i: int) -> list[str]:
        """Load the offset of a listed row in each step: fewer general registers than rows are available."""
        return [
            f"  %listed{i} = getelementptr i64, ptr %positions, i64 {i}",
            f"  %there{i} = load volatile i64, ptr %listed{i}, align 8",
            f"  %pa{i} = getelementptr i8, ptr %a, i64 %there{i}",
        ]

    def _declared(self, total: str, size: int) -> list[str]:
        """The LLVM functions that the steps call."""
        if self.instruction:
            names, element = _INSTRUCTIONS[self.kind, self.instruction]
            taken = f"<{self.lanes * self.group} x {element}>"
            sums = f"{total}, " if self.instruction in _SUMS else ""
            return [f"declare {total} @{names[self.lanes * size]}({sums}{taken}, {taken})"]
        if KINDS[self.kind][2] in ("i32", "i64"):
            return []
        return [f"declare {total} @llvm.fma.v{self.lanes}f{8 * size}({total}, {total}, {total})"]

    def _operand(self, name: str) -> list[str]:
        """A vector of words as the steps' operand: cast, or as the halves of its words."""
        vector = f"<{self.lanes} x i32>"
        if self.instruction:
            element = _INSTRUCTIONS[self.kind, self.instruction][1]
            return [f"  %{name}p = bitcast {vector} %{name} to <{self.lanes * self.group} x {element}>"]
        low = f"  %{name}l = shl {vector} %{name}, splat (i32 16)"
        if self.kind == "bf16":
            floats = f"<{self.lanes} x float>"
            return [
                low,
                f"  %{name}m = and {vector} %{name}, splat (i32 -65536)",
                f"  %{name}f = bitcast {vector} %{name}l to {floats}",
                f"  %{name}s = bitcast {vector} %{name}m to {floats}",
            ]
        if self.kind == "i16":
            return [
                low,
                f"  %{name}f = ashr {vector} %{name}l, splat (i32 16)",
                f"  %{name}s = ashr {vector} %{name}, splat (i32 16)",
            ]
        return []

    def _step(self, i: int, j: int, total: str, size: int) -> list[str]:
        """Add the products of one vector to its accumulator."""
        tag, sums = f"{i}_{j}", f"%c{i}_{j}"
        if self.instruction:
            names, element = _INSTRUCTIONS[self.kind, self.instruction]
            taken = f"<{self.lanes * self.group} x {element}>"
            pair = f"{taken} %x{i}p, {taken} %y{j}p"
            if self.instruction in _SUMS:
                return [f"  %s{tag} = call {total} @{names[self.lanes * size]}({total} {sums}, {pair})"]
            return [
                f"  %m{tag} = call {total} @{names[self.lanes * size]}({pair})",
                f"  %s{tag} = add {total} {sums}, %m{tag}",
            ]
        if self.kind == "i16":
            return [
                f"  %m{tag} = mul {total} %x{i}f, %y{j}f",
                f"  %w{tag} = mul {total} %x{i}s, %y{j}s",
                f"  %z{tag} = add {total} %m{tag}, %w{tag}",
                f"  %s{tag} = add {total} {sums}, %z{tag}",
            ]
        if self.kind == "bf16":
            return [
                *self._added(f"q{tag}", f"%x{i}s", f"%y{j}s", sums, total, size),
                *self._added(f"s{tag}", f"%x{i}f", f"%y{j}f", f"%q{tag}", total, size),
            ]
        if self.kind in ("i32", "i64"):
            return [f"  %m{tag} = mul {total} %x{i}, %y{j}", f"  %s{tag} = add {total} {sums}, %m{tag}"]
        return self._added(f"s{tag}", f"%x{i}", f"%y{j}", sums, total, size)

    def _added(self, name: str, x: str, y: str, sums: str, total: str, size: int) -> list[str]:
        """name = x * y + held."""
        if self.fma:
            return [
                f"  %{name} = call {total} @llvm.fma.v{self.lanes}f{8 * size}({total} {x}, {total} {y}, {total} {sums})"
            ]
        return [f"  %{name}m = fmul {total} {x}, {y}", f"  %{name} = fadd {total} {sums}, %{name}m"]

    def _write_or_join(self, total: str, sum_: str, size: int, tile: list[tuple[int, int]]) -> list[str]:
        lines = ["  %fresh = icmp eq i64 %add, 0", "  br i1 %fresh, label %write, label %join"]
        return [
            *lines,
            *self._out("write", total, sum_, size, tile, False),
            *self._out("join", total, sum_, size, tile, True),
        ]

    def _round_out(self, total: str, tile: list[tuple[int, int]]) -> list[str]:
        """Round the sums to C."""
        element = _INSTRUCTIONS[self.kind, self.instruction][1]
        narrow, lines = f"<{self.lanes} x {element}>", []
        for i, j in tile:
            if j == 0:
                lines += [f"  %o{i} = mul i64 %row, {i}", f"  %r{i} = getelementptr {element}, ptr %C, i64 %o{i}"]
            lines += [
                f"  %p{i}_{j} = getelementptr {element}, ptr %r{i}, i64 {j * self.lanes}",
                f"  %n{i}_{j} = fptrunc {total} %s{i}_{j} to {narrow}",
                f"  store {narrow} %n{i}_{j}, ptr %p{i}_{j}, align 2",
            ]
        return [*lines, "  ret void"]

    def _out(
        self, block: str, vector: str, element: str, size: int, tile: list[tuple[int, int]], add: bool
    ) -> list[str]:
        lines, p = [f"{block}:"], block[0]
        for i, j in tile:
            if j == 0:
                lines += [
                    f"  %{p}o{i} = mul i64 %row, {i}",
                    f"  %{p}r{i} = getelementptr {element}, ptr %C, i64 %{p}o{i}",
                ]
            lines.append(f"  %{p}p{i}_{j} = getelementptr {element}, ptr %{p}r{i}, i64 {j * self.lanes}")
            value = f"%s{i}_{j}"
            if add:
                lines += [
                    f"  %{p}l{i}_{j} = load {vector}, ptr %{p}p{i}_{j}, align {size}",
                    f"  %{p}t{i}_{j} = {'add' if element[0] == 'i' else 'fadd'} {vector} %{p}l{i}_{j}, {value}",
                ]
                value = f"%{p}t{i}_{j}"
            lines.append(f"  store {vector} {value}, ptr %{p}p{i}_{j}, align {size}")
        return [*lines, "  ret void"]


def register_tile(kind: str, vector_bytes: int, registers: int, fma: bool, instruction: str = "") -> RegisterTile:
    """The largest tile that leaves room for the vectors of B and one broadcast, for `registers` vector registers."""
    lanes = vector_bytes // KINDS[kind][1]
    vectors = 3 if registers == 32 and vector_bytes == 16 else 2
    parts = 2 if KINDS[kind][3] > 1 and not instruction else 1  # an operand is kept as its halves
    # Products need a register before they are added
    apart = instruction == "vpmaddwd" or kind in ("i32", "i64") or not (fma or instruction)
    rows = (registers - parts * (vectors + 1) - apart) // vectors
    return RegisterTile(kind, lanes, rows - rows % 2, vectors, fma, instruction)
