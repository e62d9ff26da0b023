"""The inner kernel of a matrix product: a tile of C in registers, over panels of A and B that lie packed.

The structure is that of BLIS (Van Zee and van de Geijn, "BLIS: A Framework for Rapidly Instantiating BLAS Functionality", 2015, section 3):
A comes as panels [k][rows], B as panels [k][columns], and each step of k is one outer product, `rows` broadcasts against `columns / lanes`
vectors.  The tile is as large as the registers allow, so that the loads hide behind the multiplications.
"""

from __future__ import annotations

__all__ = ["RegisterTile", "register_tile"]

_ELEMENTS = {"f32": ("float", 4), "f64": ("double", 8)}


class RegisterTile:
    """`rows` x `columns` elements of `kind` ("f32", "f64") held in vectors of `lanes`; `text` is the LLVM text of its kernel, `symbol`.

    `symbol(A, B, C, row, k, add)`: C[i, j] at C + i * row + j (elements) becomes the sum over k of A[k][i] B[k][j], plus what was there where
    `add` is not 0.  `turn_symbol(out, x, row, step, k)` is for packing what lies the other way round: it reads `turned` rows of x, each of k
    elements (a multiple of `turned`), and writes element n of row i to out + n * step + i.
    """

    __slots__ = ("columns", "fma", "kind", "lanes", "rows", "symbol", "turn_symbol", "turned", "vectors")

    def __init__(self, kind: str, lanes: int, rows: int, vectors: int, fma: bool) -> None:
        self.kind, self.lanes, self.rows, self.vectors, self.fma = kind, lanes, rows, vectors, fma
        self.columns, self.symbol, self.turn_symbol = vectors * lanes, f"rl_tile_{kind}_{rows}", f"rl_turn_{kind}_{rows}"
        fits = min(rows, lanes, 8)
        self.turned = 1 << fits.bit_length() - 1

    @property
    def text(self) -> str:
        element, size = _ELEMENTS[self.kind]
        vector = f"<{self.lanes} x {element}>"
        tile = [(i, j) for i in range(self.rows) for j in range(self.vectors)]
        lines = [
            f"declare {vector} @llvm.fma.v{self.lanes}f{8 * size}({vector}, {vector}, {vector})",
            f"define void @{self.symbol}(ptr noalias %A, ptr noalias %B, ptr noalias %C, i64 %row, i64 %k, i64 %add) {{",
            "entry:", "  br label %loop", "loop:",
            "  %n = phi i64 [0, %entry], [%n1, %loop]",
            "  %a = phi ptr [%A, %entry], [%a1, %loop]",
            "  %b = phi ptr [%B, %entry], [%b1, %loop]",
            *(f"  %c{i}_{j} = phi {vector} [zeroinitializer, %entry], [%s{i}_{j}, %loop]" for i, j in tile),
        ]  # fmt: skip
        for j in range(self.vectors):
            lines += [
                f"  %pb{j} = getelementptr {element}, ptr %b, i64 {j * self.lanes}",
                f"  %y{j} = load {vector}, ptr %pb{j}, align {self.lanes * size}",
            ]
        for i in range(self.rows):
            lines += [
                f"  %pa{i} = getelementptr {element}, ptr %a, i64 {i}",
                f"  %e{i} = load {element}, ptr %pa{i}, align {size}",
                f"  %v{i} = insertelement {vector} poison, {element} %e{i}, i64 0",
                f"  %x{i} = shufflevector {vector} %v{i}, {vector} poison, <{self.lanes} x i32> zeroinitializer",
                *(self._step(i, j, vector, size) for j in range(self.vectors)),
            ]
        lines += [
            f"  %a1 = getelementptr {element}, ptr %a, i64 {self.rows}",
            f"  %b1 = getelementptr {element}, ptr %b, i64 {self.columns}",
            "  %n1 = add nuw nsw i64 %n, 1",
            "  %more = icmp slt i64 %n1, %k",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  %fresh = icmp eq i64 %add, 0",
            "  br i1 %fresh, label %write, label %join",
            *self._out("write", vector, element, size, tile, False),
            *self._out("join", vector, element, size, tile, True),
            "}",
            *self._turn(element, size),
        ]
        return "\n".join(lines)

    def _turn(self, element: str, size: int) -> list[str]:
        """A square of elements after the other, turned by exchanging ever smaller blocks of two rows."""
        n = self.turned
        vector = f"<{n} x {element}>"
        lines = [
            f"define void @{self.turn_symbol}(ptr noalias %out, ptr noalias %x, i64 %row, i64 %step, i64 %k) {{",
            "entry:", "  br label %loop", "loop:",
            "  %n = phi i64 [0, %entry], [%n1, %loop]",
            f"  %from = getelementptr {element}, ptr %x, i64 %n",
            "  %place = mul i64 %n, %step",
            f"  %to = getelementptr {element}, ptr %out, i64 %place",
        ]  # fmt: skip
        for i in range(n):
            lines += [
                f"  %i{i} = mul i64 %row, {i}",
                f"  %p{i} = getelementptr {element}, ptr %from, i64 %i{i}",
                f"  %v{n}_{i} = load {vector}, ptr %p{i}, align {size}",
            ]
        half = n // 2
        while half:
            for i in range(n):
                first = i & half == 0
                a, b = (i, i + half) if first else (i - half, i)
                lane = [(j if first else j + half) if j & half == 0 else n + (j - half if first else j) for j in range(n)]
                mask = ", ".join(f"i32 {m}" for m in lane)
                lines.append(
                    f"  %v{half}_{i} = shufflevector {vector} %v{2 * half}_{a}, {vector} %v{2 * half}_{b}, <{n} x i32> <{mask}>"
                )
            half //= 2
        for i in range(n):
            lines += [
                f"  %o{i} = mul i64 %step, {i}",
                f"  %q{i} = getelementptr {element}, ptr %to, i64 %o{i}",
                f"  store {vector} %v1_{i}, ptr %q{i}, align {size}",
            ]
        lines += [f"  %n1 = add nuw nsw i64 %n, {n}", "  %more = icmp slt i64 %n1, %k", "  br i1 %more, label %loop, label %done"]
        return [*lines, "done:", "  ret void", "}"]

    def _step(self, i: int, j: int, vector: str, size: int) -> str:
        if self.fma:
            return f"  %s{i}_{j} = call {vector} @llvm.fma.v{self.lanes}f{8 * size}({vector} %x{i}, {vector} %y{j}, {vector} %c{i}_{j})"
        return f"  %m{i}_{j} = fmul {vector} %x{i}, %y{j}\n  %s{i}_{j} = fadd {vector} %c{i}_{j}, %m{i}_{j}"

    def _out(self, block: str, vector: str, element: str, size: int, tile: list[tuple[int, int]], add: bool) -> list[str]:
        lines, p = [f"{block}:"], block[0]
        for i, j in tile:
            if j == 0:
                lines += [f"  %{p}o{i} = mul i64 %row, {i}", f"  %{p}r{i} = getelementptr {element}, ptr %C, i64 %{p}o{i}"]
            lines.append(f"  %{p}p{i}_{j} = getelementptr {element}, ptr %{p}r{i}, i64 {j * self.lanes}")
            value = f"%s{i}_{j}"
            if add:
                lines += [
                    f"  %{p}l{i}_{j} = load {vector}, ptr %{p}p{i}_{j}, align {size}",
                    f"  %{p}t{i}_{j} = fadd {vector} %{p}l{i}_{j}, {value}",
                ]
                value = f"%{p}t{i}_{j}"
            lines.append(f"  store {vector} {value}, ptr %{p}p{i}_{j}, align {size}")
        return [*lines, "  ret void"]


def register_tile(kind: str, vector_bytes: int, registers: int, fma: bool) -> RegisterTile:
    """The largest tile that leaves room for the vectors of B and one broadcast; `registers`: how many vector registers there are."""
    lanes = vector_bytes // _ELEMENTS[kind][1]
    vectors = 3 if registers == 32 and vector_bytes == 16 else 2
    rows = (registers - vectors - (1 if fma else 2)) // vectors
    return RegisterTile(kind, lanes, rows - rows % 2, vectors, fma)
