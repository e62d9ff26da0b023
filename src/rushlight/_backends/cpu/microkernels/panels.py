"""Packing for matrix products, as LLVM text: operands of the other layout are transposed in registers.

Panels are those of `register_tile`: words of one or more elements along k, [k / group][width] of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from rushlight._backends.cpu.microkernels.kernel_text import FunctionText, KernelText
from rushlight._base.lazy import LazyModule

if TYPE_CHECKING:
    from rushlight._codegen.scalar import emitter, writer
    from rushlight._types.dtype import DType
else:
    emitter = LazyModule("rushlight._codegen.scalar.emitter")  # not needed for kernels loaded from disk
    writer = LazyModule("rushlight._codegen.scalar.writer")

__all__ = ["Cast", "Pairs", "Panels"]

_ROUNDED = 4  # fewest elements of a vector that processors round by one instruction
_WORDS = {1: "i8", 2: "i16", 4: "i32", 8: "i64", 16: "i64"}  # words of 16 bytes are moved as two of 8


class Panels(KernelText):
    """Packing of words of `size` bytes, each of `group` elements; `text` is LLVM text that defines `symbols`.

    `transpose_symbol(out, x, row, step, k)` packs rows along k: it reads n rows of x, `row` elements apart, of k words
    each (a multiple of n), and writes word w of row i to word w * step + i of out.  `zip_symbol(out, x, row, step, k)`,
    for words of several elements, packs rows across k: it reads k words whose elements are `row` elements apart, of n
    adjacent columns, and writes word w of column i to word w * step + i.  `wide_symbol` does that for `wide` columns, a
    whole cache line at once.
    """

    __slots__ = ("group", "n", "size", "transpose_symbol", "wide", "wide_symbol", "zip_symbol")

    def __init__(self, size: int, group: int, n: int) -> None:
        self.size, self.group, self.n = size, group, n
        self.wide = 4 * n
        self.transpose_symbol, self.zip_symbol = f"rl_transpose_{size}_{group}_{n}", f"rl_zip_{size}_{group}_{n}"
        self.wide_symbol = f"rl_zip_{size}_{group}_{self.wide}"

    @property
    def key(self) -> str:
        return f"panels {self.size} {self.group} {self.n}"

    @property
    def symbols(self) -> tuple[str, ...]:
        return (
            (self.transpose_symbol, self.zip_symbol, self.wide_symbol) if self.group > 1 else (self.transpose_symbol,)
        )

    @property
    def text(self) -> str:
        transposed = transpose_text(self.transpose_symbol, self.n, self.size, self.size // self.group)
        if self.group == 1:
            return transposed
        zips = (
            zip_text(symbol, n, self.group, self.size // self.group)
            for symbol, n in ((self.zip_symbol, self.n), (self.wide_symbol, self.wide))
        )
        return "\n".join([transposed, *zips])


class Cast(FunctionText):
    """`symbol(out, x, n)`: n elements converted from one dtype to another, as the primitive `convert` does it; `text`
    defines it.

    With `rounds`, float32 becomes bfloat16 by the instruction of processors that have it (vcvtneps2bf16), which takes
    subnormal numbers for zeros, as the sums of such processors' products are.
    """

    __slots__ = ("fma", "lanes", "rounds", "source", "target")

    def __init__(self, source: DType, target: DType, lanes: int, fma: bool, rounds: bool = False) -> None:
        self.source, self.target, self.lanes, self.fma, self.rounds = source, target, lanes, fma, rounds
        self.symbol = f"rl_{'round' if rounds else 'cast'}_{source.name}_{target.name}"

    @property
    def key(self) -> str:
        return f"{self.symbol} {self.lanes} {self.fma}"

    @property
    def text(self) -> str:
        module, n = writer.ModuleText(), self.lanes
        lines = [
            f"define void @{self.symbol}(ptr noalias %out, ptr noalias %x, i64 %n) {{", "entry:",
            f"  %left = srem i64 %n, {n}", "  %whole = sub i64 %n, %left", "  %several = icmp sgt i64 %whole, 0",
            f"  br i1 %several, label %vectors, label %few{n // 2}", "vectors:", "  %i = phi i64 [0, %entry], [%j, %vectors]",
            *self._convert(module, n, "%i", "all"), f"  %j = add nuw nsw i64 %i, {n}", "  %more = icmp slt i64 %j, %whole",
            "  br i1 %more, label %vectors, label %rest", "rest:", "  %even = icmp eq i64 %left, 0", "  br i1 %even, label %done, label %end",
            # overlaps the vector before
            "end:", f"  %last = sub i64 %n, {n}", *self._convert(module, n, "%last", "last"), "  br label %done",
        ]  # fmt: skip
        width = n // 2
        while width:
            after = f"few{width // 2}" if width > 1 else "done"
            lines += [
                f"few{width}:",
                f"  %bit{width} = and i64 %n, {width}",
                f"  %has{width} = icmp ne i64 %bit{width}, 0",
                f"  br i1 %has{width}, label %some{width}, label %{after}",
                f"some{width}:",
                f"  %at{width} = and i64 %n, {-2 * width}",
                *self._convert(module, width, f"%at{width}", f"some{width}"),
                f"  br label %{after}",
            ]
            width //= 2
        return "\n".join([str(module), *lines, "done:", "  ret void", "}"])

    def _convert(self, module: writer.ModuleText, width: int, start: str, name: str) -> list[str]:
        """Lines that convert `width` elements from `start` on."""
        if self.rounds and width >= _ROUNDED:
            return [
                f"  %p{name} = getelementptr float, ptr %x, i64 {start}",
                f"  %x{name} = load <{width} x float>, ptr %p{name}, align 4",
                f"  %y{name} = fptrunc <{width} x float> %x{name} to <{width} x bfloat>",
                f"  %q{name} = getelementptr bfloat, ptr %out, i64 {start}",
                f"  store <{width} x bfloat> %y{name}, ptr %q{name}, align 2",
            ]
        em = emitter.Emitter(width, module, fma=self.fma, prefix=f"{name}v")
        source, target = (em.vt(writer.mem_type(d)) for d in (self.source, self.target))
        converted = em.op("convert", [em.wrap(f"%x{name}", self.source)], [self.source], self.target)
        return [
            f"  %p{name} = getelementptr {writer.mem_type(self.source)}, ptr %x, i64 {start}",
            f"  %x{name} = load {source}, ptr %p{name}, align {self.source.itemsize}",
            *em.lines,
            f"  %q{name} = getelementptr {writer.mem_type(self.target)}, ptr %out, i64 {start}",
            f"  store {target} {converted}, ptr %q{name}, align {self.target.itemsize}",
        ]


class Pairs(FunctionText):
    """`symbol(out, x, n)`: converts panels of n complex numbers [k][width] to panels of real ones, for tiles of real
    numbers.

    Complex products through real ones (the "1m" method; Van Zee, "Implementing High-Performance Complex Matrix
    Multiplication via the 1m Method", 2020): rows of C are read as twice as many real columns, real and imaginary parts
    in turn, and k is twice as long.  Of A (`side` "a") each k gives a row of real parts and one of imaginary parts; of
    B one of its numbers unchanged, and one of them times i:

        (a + bi)(c + di) = a (c, d) + b (-d, c)

    `conjugated` operands differ in signs only.  `width` is a multiple of `lanes` / 2.
    """

    __slots__ = ("conjugated", "lanes", "side", "source", "target", "width")

    def __init__(self, source: DType, side: str, width: int, lanes: int, conjugated: bool) -> None:
        self.source, self.target, self.side, self.width, self.lanes, self.conjugated = (
            source,
            source.to_real(),
            side,
            width,
            lanes,
            conjugated,
        )
        self.symbol = f"rl_pairs_{source.name}_{side}{width}{'_conj' if conjugated else ''}"

    @property
    def key(self) -> str:
        return f"{self.symbol} {self.lanes}"

    @property
    def bytes(self) -> int:
        """Bytes that one complex number becomes."""
        return self.source.itemsize * (1 if self.side == "a" else 2)

    @property
    def text(self) -> str:
        return "\n".join(
            [
                f"define void @{self.symbol}(ptr noalias %out, ptr noalias %x, i64 %n) {{",
                "entry:",
                f"  %steps = sdiv i64 %n, {self.width}",
                "  br label %loop",
                "loop:",
                "  %k = phi i64 [0, %entry], [%k1, %body]",
                "  %more = icmp slt i64 %k, %steps",
                "  br i1 %more, label %body, label %done",
                "body:",
                f"  %at = mul i64 %k, {self.width * self.source.itemsize}",
                "  %from = getelementptr i8, ptr %x, i64 %at",
                f"  %offset = mul i64 %k, {self.width * self.bytes}",
                "  %to = getelementptr i8, ptr %out, i64 %offset",
                *(self._split() if self.side == "a" else self._twist()),
                "  %k1 = add nuw nsw i64 %k, 1",
                "  br label %loop",
                "done:",
                "  ret void",
                "}",
            ]
        )

    def _vector(self, n: int) -> str:
        return f"<{n} x i{4 * self.source.itemsize}>"

    def _flipped(self, name: str, n: int, lanes: Callable[[int], bool]) -> tuple[str, str]:
        """A line that flips the sign of some of n lanes, and the name of its result."""
        bits = 4 * self.source.itemsize
        mask = ", ".join(f"i{bits} {-(1 << (bits - 1)) if lanes(i) else 0}" for i in range(n))
        return f"  {name}f = xor {self._vector(n)} {name}, <{mask}>", f"{name}f"

    def _split(self) -> list[str]:
        """A row of real parts, a row of imaginary parts; as many numbers at a time as divide the width."""
        lines, real = [], self.source.itemsize // 2
        n = next(n for n in (8, 4, 2, 1) if self.width % n == 0)
        for v in range(self.width // n):
            pair, half = self._vector(2 * n), self._vector(n)
            lines += [
                f"  %p{v} = getelementptr i8, ptr %from, i64 {v * n * 2 * real}",
                f"  %v{v} = load {pair}, ptr %p{v}, align {real}",
            ]
            for part in range(2):
                name = f"%h{v}_{part}"
                lines.append(f"  {name} = {_shuffled(pair, f'%v{v}', 'poison', [2 * i + part for i in range(n)])}")
                if part and self.conjugated:
                    line, name = self._flipped(name, n, lambda i: True)
                    lines.append(line)
                lines += [
                    f"  %q{v}_{part} = getelementptr i8, ptr %to, i64 {(part * self.width + v * n) * real}",
                    f"  store {half} {name}, ptr %q{v}_{part}, align {real}",
                ]
        return lines

    def _twist(self) -> list[str]:
        """The numbers, and the numbers times i."""
        lines, real, n = [], self.source.itemsize // 2, self.lanes
        vector = self._vector(n)
        for v in range(2 * self.width // n):
            lines += [
                f"  %p{v} = getelementptr i8, ptr %from, i64 {v * n * real}",
                f"  %a{v} = load {vector}, ptr %p{v}, align {real}",
                f"  %b{v} = {_shuffled(vector, f'%a{v}', 'poison', [i ^ 1 for i in range(n)])}",
            ]
            straight = f"%a{v}"
            if self.conjugated:
                line, straight = self._flipped(straight, n, lambda i: i % 2 == 1)
                lines.append(line)
            else:
                line, _ = self._flipped(f"%b{v}", n, lambda i: i % 2 == 0)
                lines.append(line)
            negated = f"%b{v}" if self.conjugated else f"%b{v}f"
            for part, name in enumerate((straight, negated)):
                lines += [
                    f"  %q{v}_{part} = getelementptr i8, ptr %to, i64 {(part * 2 * self.width + v * n) * real}",
                    f"  store {vector} {name}, ptr %q{v}_{part}, align {real}",
                ]
        return lines


def transpose_text(symbol: str, n: int, size: int, element_bytes: int) -> str:
    """`symbol(out, x, row, step, k)`: consecutive squares of n words, transposed by exchanging ever smaller blocks of
    two rows.

    Words have `size` bytes; `row` counts elements, of which a word may have several.
    """
    word, parts = _WORDS[size], 2 if size == 16 else 1
    vector, whole = f"<{n * parts} x {word}>", f"[{parts} x {word}]"
    lines = [
        f"define void @{symbol}(ptr noalias %out, ptr noalias %x, i64 %row, i64 %step, i64 %k) {{",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %n = phi i64 [0, %entry], [%n1, %loop]",
        f"  %from = getelementptr {whole}, ptr %x, i64 %n",
        "  %offset = mul i64 %n, %step",
        f"  %to = getelementptr {whole}, ptr %out, i64 %offset",
    ]
    for i in range(n):
        lines += [
            f"  %i{i} = mul i64 %row, {i * element_bytes}",
            f"  %p{i} = getelementptr i8, ptr %from, i64 %i{i}",
            f"  %v{n}_{i} = load {vector}, ptr %p{i}, align {element_bytes}",
        ]
    half = n // 2
    while half:
        for i in range(n):
            first = i & half == 0
            a, b = (i, i + half) if first else (i - half, i)
            words = [(j if first else j + half) if j & half == 0 else n + (j - half if first else j) for j in range(n)]
            lane = [parts * j + part for j in words for part in range(parts)]
            lines.append(f"  %v{half}_{i} = {_shuffled(vector, f'%v{2 * half}_{a}', f'%v{2 * half}_{b}', lane)}")
        half //= 2
    for i in range(n):
        lines += [
            f"  %o{i} = mul i64 %step, {i}",
            f"  %q{i} = getelementptr {whole}, ptr %to, i64 %o{i}",
            f"  store {vector} %v1_{i}, ptr %q{i}, align {min(size, 8)}",
        ]
    lines += [
        f"  %n1 = add nuw nsw i64 %n, {n}",
        "  %more = icmp slt i64 %n1, %k",
        "  br i1 %more, label %loop, label %done",
    ]
    return "\n".join([*lines, "done:", "  ret void", "}"])


def zip_text(symbol: str, n: int, group: int, element_bytes: int) -> str:
    """`symbol(out, x, row, step, k)`: for each of k words, interleaves n elements of each of `group` rows of x to n
    adjacent words."""
    element = f"i{8 * element_bytes}"
    size = group * element_bytes
    lines = [
        f"define void @{symbol}(ptr noalias %out, ptr noalias %x, i64 %row, i64 %step, i64 %k) {{",
        "entry:",
        f"  %next = mul i64 %row, {element_bytes}",
        f"  %skip = mul i64 %next, {group}",
        f"  %ahead = mul i64 %step, {size}",
        "  br label %loop",
        "loop:",
        "  %n = phi i64 [0, %entry], [%n1, %loop]",
        "  %to = phi ptr [%out, %entry], [%to1, %loop]",
        "  %p0 = phi ptr [%x, %entry], [%from1, %loop]",
        *(f"  %p{g} = getelementptr i8, ptr %p{g - 1}, i64 %next" for g in range(1, group)),
        *(f"  %v{g} = load <{n} x {element}>, ptr %p{g}, align {element_bytes}" for g in range(group)),
    ]
    vectors, width = [f"%v{g}" for g in range(group)], n
    while len(vectors) > 1:  # neighbours first: after the last round each word has its elements in order
        half, zipped = len(vectors) // 2, []
        for g in range(half):
            lane = [i // 2 if i % 2 == 0 else width + i // 2 for i in range(2 * width)]
            name = f"%z{2 * width}_{g}"
            lines.append(f"  {name} = {_shuffled(f'<{width} x {element}>', vectors[g], vectors[g + half], lane)}")
            zipped.append(name)
        vectors, width = zipped, 2 * width
    lines += [
        f"  store <{width} x {element}> {vectors[0]}, ptr %to, align {size}",
        "  %to1 = getelementptr i8, ptr %to, i64 %ahead",
        "  %from1 = getelementptr i8, ptr %p0, i64 %skip",
        "  %n1 = add nuw nsw i64 %n, 1",
        "  %more = icmp slt i64 %n1, %k",
        "  br i1 %more, label %loop, label %done",
        "done:",
        "  ret void",
        "}",
    ]
    return "\n".join(lines)


def _shuffled(vector: str, a: str, b: str, lane: list[int]) -> str:
    mask = ", ".join(f"i32 {m}" for m in lane)
    return f"shufflevector {vector} {a}, {vector} {b}, <{len(lane)} x i32> <{mask}>"
