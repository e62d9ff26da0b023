"""The inner kernels of products that are too small to pack: a block of C in registers, over operands where they lie.

Elements of B and C lie side by side along a row; those of A lie anywhere.  Each step of k is one outer product, as in
`register_tile`, and each element of C is the sum of its products in the order of k, whichever block computes it: its
bits do not depend on the sizes of the result, nor on the strides of the operands.

A block never reads or writes beyond the result: the last vector of a row of C begins where it ends with the row and may
overlap the one before.  Where rows are shorter than a vector, vectors are shorter.
"""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.kernel_text import KernelText
from rushlight._backends.cpu.microkernels.panels import Panels, transpose_text

__all__ = ["Block", "SmallTile"]

_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}
_BLOCKS = ((4, 2), (4, 1), (2, 2), (2, 1), (1, 4), (1, 2), (1, 1))  # rows and vectors of whole vectors
_SHORT = ((4, 2), (4, 1), (1, 2), (1, 1))  # the same of shorter ones

Block = tuple[int, int, int]  # rows, vectors, lanes


class SmallTile(KernelText):
    """The blocks of a kind ("f32", "f64") for vectors of `lanes` numbers; `text` is the LLVM text of all of them.

    `symbol_of((rows, vectors, lanes))(A, B, C, last, k, steps)`: `rows` rows and `vectors` vectors of C from C on become the
    sums of k products, k > 0.  The last vector begins `last` bytes behind the first, and `steps` holds four numbers of
    bytes: from one row of A to the next, from one column of A, one row of B, and one row of C.

    `squares` transpose operands in registers (see `Panels`), for the widest square that fits.
    """

    __slots__ = ("fma", "kind", "lanes", "squares")

    def __init__(self, kind: str, lanes: int, fma: bool) -> None:
        self.kind, self.lanes, self.fma = kind, lanes, fma
        size = _TYPES[kind][1]
        self.squares = [Panels(size, 1, n) for n in (8, 4) if n <= lanes] or [Panels(size, 1, 2)]

    @property
    def key(self) -> str:
        return f"rl_small_{self.kind} {self.lanes} {self.fma}"

    @property
    def blocks(self) -> list[Block]:
        """All blocks, by falling lanes."""
        blocks, lanes = [(*block, self.lanes) for block in _BLOCKS], self.lanes // 2
        while lanes:
            blocks += [(*block, lanes) for block in _SHORT if lanes > 1 or block[1] == 1]
            lanes //= 2
        return blocks

    def symbol_of(self, block: Block) -> str:
        """The name of a block's function."""
        rows, vectors, lanes = block
        return f"rl_small_{self.kind}_{rows}x{vectors}x{lanes}"

    @property
    def symbols(self) -> tuple[str, ...]:
        return (*map(self.symbol_of, self.blocks), *(square.transpose_symbol for square in self.squares))

    @property
    def text(self) -> str:
        word, size = _TYPES[self.kind]
        declared = [
            f"declare {_vector(word, n)} @llvm.fma{_suffix(word, size, n)}({', '.join([_vector(word, n)] * 3)})"
            for n in sorted({lanes for _, _, lanes in self.blocks})
            if self.fma
        ]
        return "\n".join([
            *declared,
            *(line for block in self.blocks for line in self._block(block)),
            *(transpose_text(square.transpose_symbol, square.n, size, size) for square in self.squares),
        ])  # fmt: skip

    def _block(self, block: Block) -> list[str]:
        """The function of a block: one loop over k."""
        word, size = _TYPES[self.kind]
        rows, vectors, lanes = block
        vector = _vector(word, lanes)
        tile = [(i, j) for i in range(rows) for j in range(vectors)]
        at = [str(j * lanes * size) for j in range(vectors - 1)] + ["%last"] * (vectors > 1) or ["0"]
        lines = [
            f"define void @{self.symbol_of(block)}(ptr noalias %A, ptr noalias %B, ptr noalias %C, i64 %last, i64 %k, ptr noalias %steps) {{",
            "entry:",
            *(line for n, name in enumerate(("ar", "ac", "br", "cr")) for line in _word(name, n)),
            *(f"  %a{i}at = mul i64 %ar, {i}" for i in range(rows)),
            *(f"  %c{i}at = mul i64 %cr, {i}" for i in range(rows)),
            "  br label %loop", "loop:",
            "  %n = phi i64 [0, %entry], [%n1, %loop]",
            "  %a = phi ptr [%A, %entry], [%a1, %loop]", "  %b = phi ptr [%B, %entry], [%b1, %loop]",
            *(f"  %c{i}_{j} = phi {vector} [zeroinitializer, %entry], [%s{i}_{j}, %loop]" for i, j in tile),
        ]  # fmt: skip
        for j in range(vectors):
            lines += [
                f"  %pb{j} = getelementptr i8, ptr %b, i64 {at[j]}",
                f"  %y{j} = load {vector}, ptr %pb{j}, align {size}",
            ]
        for i in range(rows):
            lines += [
                f"  %pa{i} = getelementptr i8, ptr %a, i64 %a{i}at",
                f"  %e{i} = load {word}, ptr %pa{i}, align {size}",
                f"  %v{i} = insertelement {vector} poison, {word} %e{i}, i64 0",
                f"  %x{i} = shufflevector {vector} %v{i}, {vector} poison, <{lanes} x i32> zeroinitializer",
                *(line for j in range(vectors) for line in self._step(i, j, vector, _suffix(word, size, lanes))),
            ]
        lines += [
            "  %a1 = getelementptr i8, ptr %a, i64 %ac", "  %b1 = getelementptr i8, ptr %b, i64 %br",
            "  %n1 = add nuw nsw i64 %n, 1", "  %more = icmp slt i64 %n1, %k", "  br i1 %more, label %loop, label %done", "done:",
        ]  # fmt: skip
        for i, j in tile:
            if j == 0:
                lines.append(f"  %row{i} = getelementptr i8, ptr %C, i64 %c{i}at")
            lines += [
                f"  %to{i}_{j} = getelementptr i8, ptr %row{i}, i64 {at[j]}",
                f"  store {vector} %s{i}_{j}, ptr %to{i}_{j}, align {size}",
            ]
        return [*lines, "  ret void", "}"]

    def _step(self, i: int, j: int, vector: str, suffix: str) -> list[str]:
        """Add the products of one vector to its sums."""
        name, terms = f"%s{i}_{j}", f"{vector} %x{i}, {vector} %y{j}, {vector} %c{i}_{j}"
        if self.fma:
            return [f"  {name} = call {vector} @llvm.fma{suffix}({terms})"]
        return [f"  {name}m = fmul {vector} %x{i}, %y{j}", f"  {name} = fadd {vector} %c{i}_{j}, {name}m"]


def _vector(word: str, lanes: int) -> str:
    return f"<{lanes} x {word}>"


def _suffix(word: str, size: int, lanes: int) -> str:
    return f".v{lanes}f{8 * size}"


def _word(name: str, number: int) -> list[str]:
    """Load one of the steps."""
    return [f"  %p{name} = getelementptr i64, ptr %steps, i64 {number}", f"  %{name} = load i64, ptr %p{name}, align 8"]
