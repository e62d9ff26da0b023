"""The inner kernel of a matrix times a vector, where each row of the matrix lies side by side: sums of one row after the other.

Such products read each number of the matrix once, so that memory decides: one stream of addresses is read twice as fast
as four rows side by side, which processors do not all fetch ahead.  A sum is that of `PARTS` vectors of partial sums, added
pair by pair: its bits depend on the number of steps alone, not on how many rows there are.
"""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.kernel_text import FunctionText

__all__ = ["RowTile"]

_TYPES = {"f32": ("float", 4), "f64": ("double", 8)}
PARTS = 4  # vectors of sums: so many additions do not wait for each other


class RowTile(FunctionText):
    """The kernel of a kind ("f32", "f64") for vectors of `lanes` numbers; `text` is its LLVM text.

    `symbol(A, row, x, C, step, rows, k)`: C[i] = A[i, 0] * x[0] + ... + A[i, k - 1] * x[k - 1], for so many rows, k >= 0.
    Rows of A are `row` bytes apart, results `step`.
    """

    __slots__ = ("fma", "kind", "lanes")

    def __init__(self, kind: str, lanes: int, fma: bool) -> None:
        self.kind, self.lanes, self.fma = kind, lanes, fma
        self.symbol = f"rl_rows_{kind}"

    @property
    def key(self) -> str:
        return f"{self.symbol} {self.lanes} {self.fma}"

    @property
    def text(self) -> str:
        (word, size), lanes = _TYPES[self.kind], self.lanes
        vector, suffix, parts = f"<{lanes} x {word}>", f"v{lanes}f{8 * size}", range(PARTS)
        wide, mask = PARTS * lanes, f"<{lanes} x i1>"
        load = f"{vector} @llvm.masked.load.{suffix}.p0(ptr"
        places, zeros = ", ".join(f"i64 {n}" for n in range(lanes)), " zeroinitializer"
        return "\n".join([
            *([f"declare {vector} @llvm.fma.{suffix}({vector}, {vector}, {vector})"] if self.fma else []),
            f"declare {load}, i32, {mask}, {vector})",
            f"define void @{self.symbol}(ptr noalias %A, i64 %row, ptr noalias %x, ptr noalias %C, i64 %step, i64 %rows, i64 %k) {{",
            "entry:",
            f"  %whole = and i64 %k, {-wide}",
            f"  %vectors = and i64 %k, {-lanes}",
            "  %rest = sub i64 %k, %vectors",
            f"  %rest0 = insertelement <{lanes} x i64> poison, i64 %rest, i64 0",
            f"  %rests = shufflevector <{lanes} x i64> %rest0, <{lanes} x i64> poison, <{lanes} x i32>{zeros}",
            f"  %some = icmp slt <{lanes} x i64> <{places}>, %rests",
            "  %any = icmp sgt i64 %rows, 0", "  br i1 %any, label %next, label %end", "next:",
            "  %i = phi i64 [0, %entry], [%i1, %stored]", "  %a = phi ptr [%A, %entry], [%anext, %stored]",
            "  %c = phi ptr [%C, %entry], [%cnext, %stored]",
            "  %long = icmp sgt i64 %whole, 0", "  br i1 %long, label %loop, label %short", "loop:",
            "  %n = phi i64 [0, %next], [%n1, %loop]",
            *(f"  %s{j} = phi {vector} [zeroinitializer, %next], [%t{j}, %loop]" for j in parts),
            *(line for j in parts for line in self._step(f"{j}", f"%n{j}at", f"%s{j}", f"%t{j}", f"add i64 %n, {j * lanes}")),
            f"  %n1 = add i64 %n, {wide}",
            "  %more = icmp slt i64 %n1, %whole", "  br i1 %more, label %loop, label %short", "short:",
            *(f"  %u{j} = phi {vector} [zeroinitializer, %next], [%t{j}, %loop]" for j in parts),
            "  %left = icmp slt i64 %whole, %vectors", "  br i1 %left, label %single, label %tail", "single:",
            "  %p = phi i64 [%whole, %short], [%p1, %single]",
            f"  %v = phi {vector} [%u0, %short], [%w, %single]",
            *self._step("s", "%psat", "%v", "%w", "add i64 %p, 0"),
            f"  %p1 = add i64 %p, {lanes}",
            "  %again = icmp slt i64 %p1, %vectors", "  br i1 %again, label %single, label %tail", "tail:",
            f"  %f = phi {vector} [%u0, %short], [%w, %single]",
            "  %odd = icmp sgt i64 %rest, 0", "  br i1 %odd, label %masked, label %sum", "masked:",
            f"  %pam = getelementptr {word}, ptr %a, i64 %vectors", f"  %pxm = getelementptr {word}, ptr %x, i64 %vectors",
            f"  %am = call {load} %pam, i32 {size}, {mask} %some, {vector}{zeros})",
            f"  %xm = call {load} %pxm, i32 {size}, {mask} %some, {vector}{zeros})",
            *self._add("%am", "%xm", "%f", "%g"),
            "  br label %sum", "sum:",
            f"  %r0 = phi {vector} [%f, %tail], [%g, %masked]",
            *self._total(),
            f"  store {word} %total, ptr %c, align {size}",
            "  br label %stored", "stored:",
            "  %anext = getelementptr i8, ptr %a, i64 %row", "  %cnext = getelementptr i8, ptr %c, i64 %step",
            "  %i1 = add i64 %i, 1", "  %further = icmp slt i64 %i1, %rows",
            "  br i1 %further, label %next, label %end", "end:", "  ret void", "}",
        ])  # fmt: skip

    def _step(self, name: str, at: str, old: str, new: str, place: str) -> list[str]:
        """Add the products of a vector at `place` to the sums `old`."""
        word, size = _TYPES[self.kind]
        vector = f"<{self.lanes} x {word}>"
        return [
            f"  {at} = {place}",
            f"  %pa{name} = getelementptr {word}, ptr %a, i64 {at}",
            f"  %px{name} = getelementptr {word}, ptr %x, i64 {at}",
            f"  %a{name} = load {vector}, ptr %pa{name}, align {size}",
            f"  %x{name} = load {vector}, ptr %px{name}, align {size}",
            *self._add(f"%a{name}", f"%x{name}", old, new),
        ]

    def _add(self, a: str, x: str, old: str, new: str) -> list[str]:
        word, size = _TYPES[self.kind]
        vector = f"<{self.lanes} x {word}>"
        if self.fma:
            terms = f"{vector} {a}, {vector} {x}, {vector} {old}"
            return [f"  {new} = call {vector} @llvm.fma.v{self.lanes}f{8 * size}({terms})"]
        return [f"  {new}m = fmul {vector} {a}, {x}", f"  {new} = fadd {vector} {old}, {new}m"]

    def _total(self) -> list[str]:
        """Add the sums pair by pair: vectors, then halves of a vector."""
        word, _ = _TYPES[self.kind]
        lanes, vector = self.lanes, f"<{self.lanes} x {word}>"
        lines = [
            f"  %d0 = fadd {vector} %r0, %u1",
            f"  %d1 = fadd {vector} %u2, %u3",
            f"  %h{lanes} = fadd {vector} %d0, %d1",
        ]
        while lanes > 1:
            half = lanes // 2
            type_, to = f"<{lanes} x {word}>", f"<{half} x {word}>"
            for side, first in (("l", 0), ("u", half)):
                picked = ", ".join(f"i32 {first + n}" for n in range(half))
                lines.append(
                    f"  %h{lanes}{side} = shufflevector {type_} %h{lanes}, {type_} poison, <{half} x i32> <{picked}>"
                )
            lines.append(f"  %h{half} = fadd {to} %h{lanes}l, %h{lanes}u")
            lanes = half
        return [*lines, f"  %total = extractelement <1 x {word}> %h1, i64 0"]
