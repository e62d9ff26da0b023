"""The transforms of a convolution by Winograd's method, as LLVM text.

A 3 x 3 kernel over 4 x 4 input elements gives 2 x 2 results, F(2 x 2, 3 x 3) of Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks" (2016): y = A' [(G g G') * (B' d B)] A, with 16 multiplications in place of 36.  Summed
over channels these are 16 products of matrices.  B' and A' hold 0, 1 and -1, G halves besides, so the transforms of the
image and the result only add, and those of the weights multiply exactly.

Errors are bounded by the size of the sums of a 4 x 4 tile and not of a window (Barabasz et al., "Error Analysis and
Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020): about as large as a direct sum's, which
`tests/backends/test_conv.py` checks.  Larger tiles, F(4 x 4, 3 x 3), multiply less and lose a decimal digit.
"""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.kernel_text import KernelText

__all__ = ["TAPS", "Winograd"]

TAPS = 16  # products of matrices

# the transform of a column by element numbers: for each result, the first element and the one added to or subtracted
# from it
_IMAGE = ((0, "-", 2), (1, "+", 2), (2, "-", 1), (1, "-", 3))

_IMAGE_ARGUMENTS = "ptr noalias %out, i64 %apart, ptr noalias %slab, i64 %channel, i64 %row, i64 %phase, i64 %channels, i64 %width, ptr noalias %moves, i64 %n"


class Winograd(KernelText):
    """The transforms for panels of `rows` weights and vectors of `lanes` float32; `text` defines `symbols`.

    `image_symbol(out, apart, slab, channel, row, phase, channels, width, moves, n)` transforms tiles of all channels,
    which are `channel` bytes apart in the slab; its rows are `row` bytes apart, and in a row the odd columns are
    `phase` bytes behind the even ones.  The `moves` are n pairs (from, to) in bytes: `lanes` adjacent tiles, whose 16
    sums go to `out + to`, `apart` bytes apart, `width` bytes further for each channel.  `short_symbol` does it for half
    as many tiles.  The next move or channel overwrites excess elements.

    `weight_symbol(out, apart, panel, first, tap, channel, channels)` transforms a panel of weights, `rows` contiguous
    ones for each channel and tap, to panels [channels][rows] for each of the 16 products; the first tap of the first
    channel is at panel + first, taps are `tap` bytes apart and channels `channel` bytes.

    `result_symbol(out, other, sums, apart, tiles, bias)` transforms vectors of 16 sums, `apart` bytes apart, to two
    rows of results, at `out` and `other`, and adds the bias; it returns 1 if a result of the first `tiles` is not
    finite, else 0 (whatever the other lanes hold).
    """

    __slots__ = ("lanes", "rows")

    def __init__(self, lanes: int, rows: int) -> None:
        self.lanes, self.rows = lanes, rows

    @property
    def short(self) -> int:
        """The number of tiles that `short_symbol` takes."""
        return max(self.lanes // 2, 2)

    @property
    def image_symbol(self) -> str:
        return f"rl_winograd_image_{self.lanes}"

    @property
    def short_symbol(self) -> str:
        return f"rl_winograd_image_{self.short}_short"

    @property
    def weight_symbol(self) -> str:
        return f"rl_winograd_weight_{self.lanes}_{self.rows}"

    @property
    def result_symbol(self) -> str:
        return f"rl_winograd_result_{self.lanes}"

    @property
    def key(self) -> str:
        return f"rl_winograd {self.lanes} {self.rows}"

    @property
    def symbols(self) -> tuple[str, ...]:
        return self.image_symbol, self.short_symbol, self.weight_symbol, self.result_symbol

    @property
    def text(self) -> str:
        images = (*self._image(self.image_symbol, self.lanes), *self._image(self.short_symbol, self.short))
        return "\n".join([*images, *self._weight(), *self._result()])

    def _image(self, symbol: str, lanes: int) -> list[str]:
        vector = f"<{lanes} x float>"
        lines = [
            f"define void @{symbol}({_IMAGE_ARGUMENTS}) {{",
            "entry:", "  br label %channels_", "channels_:",
            "  %c = phi i64 [0, %entry], [%c1, %next]",
            "  %here = phi ptr [%slab, %entry], [%here1, %next]", "  %there = phi ptr [%out, %entry], [%there1, %next]",
            "  br label %loop", "loop:", "  %m = phi i64 [0, %channels_], [%m1, %loop]",
            "  %pair = getelementptr {i64, i64}, ptr %moves, i64 %m", "  %from = load i64, ptr %pair, align 8",
            "  %second = getelementptr i8, ptr %pair, i64 8", "  %to = load i64, ptr %second, align 8",
            "  %x0 = getelementptr i8, ptr %here, i64 %from", "  %y0 = getelementptr i8, ptr %there, i64 %to",
        ]  # fmt: skip
        for i in range(4):
            if i:
                lines.append(f"  %x{i} = getelementptr i8, ptr %x{i - 1}, i64 %row")
            lines.append(f"  %o{i} = getelementptr i8, ptr %x{i}, i64 %phase")
            for j in range(4):
                base = f"%o{i}" if j % 2 else f"%x{i}"
                lines += [
                    f"  %p{i}{j} = getelementptr i8, ptr {base}, i64 {j // 2 * 4}",
                    f"  %d{i}{j} = load {vector}, ptr %p{i}{j}, align 4",
                ]
            lines += _combined(vector, [f"  %e{i}{j} =" for j in range(4)], [f"%d{i}{j}" for j in range(4)])
        for j in range(4):
            lines += _combined(vector, [f"  %f{i}{j} =" for i in range(4)], [f"%e{i}{j}" for i in range(4)])
        for k in range(TAPS):
            if k:
                lines.append(f"  %y{k} = getelementptr i8, ptr %y{k - 1}, i64 %apart")
            lines.append(f"  store {vector} %f{k // 4}{k % 4}, ptr %y{k}, align 4")
        return [
            *lines,
            "  %m1 = add nuw nsw i64 %m, 1",
            "  %again = icmp slt i64 %m1, %n",
            "  br i1 %again, label %loop, label %next",
            "next:",
            "  %here1 = getelementptr i8, ptr %here, i64 %channel",
            "  %there1 = getelementptr i8, ptr %there, i64 %width",
            "  %c1 = add nuw nsw i64 %c, 1",
            "  %more = icmp slt i64 %c1, %channels",
            "  br i1 %more, label %channels_, label %done",
            "done:",
            "  ret void",
            "}",
        ]

    def _weight(self) -> list[str]:
        vector, size = f"<{self.lanes} x float>", 4 * self.rows
        lines = [
            f"define void @{self.weight_symbol}(ptr noalias %out, i64 %apart, ptr noalias %panel, i64 %first, i64 %tap, i64 %channel, i64 %channels) {{",
            "entry:", "  %begin = getelementptr i8, ptr %panel, i64 %first", "  br label %loop", "loop:", "  %c = phi i64 [0, %entry], [%c1, %loop]",
            "  %here = phi ptr [%begin, %entry], [%here1, %loop]", "  %there = phi ptr [%out, %entry], [%there1, %loop]",
        ]  # fmt: skip
        for part in range(-(-self.rows // self.lanes)):
            p = f"{part}_"
            for t in range(9):
                base = f"%q{p}{t - 1}" if t else "%here"
                offset = "%tap" if t else str(4 * self.lanes * part)
                lines += [
                    f"  %q{p}{t} = getelementptr i8, ptr {base}, i64 {offset}",
                    f"  %g{p}{t} = load {vector}, ptr %q{p}{t}, align 4",
                ]
            for i in range(3):
                lines += _weighted(vector, [f"%h{p}{i}{j}" for j in range(4)], [f"%g{p}{3 * i + j}" for j in range(3)])
            for j in range(4):
                lines += _weighted(vector, [f"%u{p}{i}{j}" for i in range(4)], [f"%h{p}{i}{j}" for i in range(3)])
            for k in range(TAPS):
                base, offset = (f"%r{p}{k - 1}", "%apart") if k else ("%there", str(4 * self.lanes * part))
                lines.append(f"  %r{p}{k} = getelementptr i8, ptr {base}, i64 {offset}")
                lines.append(f"  store {vector} %u{p}{k // 4}{k % 4}, ptr %r{p}{k}, align 4")
        return [
            *lines,
            "  %here1 = getelementptr i8, ptr %here, i64 %channel",
            f"  %there1 = getelementptr i8, ptr %there, i64 {size}",
            "  %c1 = add nuw nsw i64 %c, 1",
            "  %more = icmp slt i64 %c1, %channels",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  ret void",
            "}",
        ]

    def _result(self) -> list[str]:
        n = self.lanes
        vector = f"<{n} x float>"
        zip_ = ", ".join(f"i32 {k // 2 + n * (k % 2)}" for k in range(2 * n))
        lines = [
            f"define i64 @{self.result_symbol}(ptr noalias %out, ptr noalias %other, ptr noalias %sums, i64 %apart, i64 %tiles, float %bias) {{",
            "entry:", f"  %up = add i64 %tiles, {n - 1}", f"  %vectors = sdiv i64 %up, {n}", f"  %one = insertelement {vector} poison, float %bias, i64 0",
            f"  %added = shufflevector {vector} %one, {vector} poison, <{n} x i32> zeroinitializer", "  br label %loop", "loop:", "  %v = phi i64 [0, %entry], [%v1, %loop]",
            f"  %seen = phi {vector} [zeroinitializer, %entry], [%kept, %loop]",
            f"  %at = mul i64 %v, {4 * n}", "  %p0 = getelementptr i8, ptr %sums, i64 %at",
            "  %twice = mul i64 %at, 2", "  %y0 = getelementptr i8, ptr %out, i64 %twice", "  %y1 = getelementptr i8, ptr %other, i64 %twice",
        ]  # fmt: skip
        for k in range(TAPS):
            if k:
                lines.append(f"  %p{k} = getelementptr i8, ptr %p{k - 1}, i64 %apart")
            lines.append(f"  %m{k // 4}{k % 4} = load {vector}, ptr %p{k}, align 4")
        for j in range(4):
            lines += _summed(vector, [f"%r{i}{j}" for i in range(2)], [f"%m{i}{j}" for i in range(4)])
        for i in range(2):
            lines += _summed(vector, [f"%q{i}{j}" for j in range(2)], [f"%r{i}{j}" for j in range(4)])
            lines += [
                *(f"  %z{i}{j} = fadd {vector} %q{i}{j}, %added" for j in range(2)),
                f"  %w{i} = shufflevector {vector} %z{i}0, {vector} %z{i}1, <{2 * n} x i32> <{zip_}>",
                f"  store <{2 * n} x float> %w{i}, ptr %y{i}, align 4",
            ]
        seen = "%seen"
        for k in range(4):  # a nonzero product with zero was not finite
            lines += [
                f"  %n{k} = fmul {vector} %z{k // 2}{k % 2}, zeroinitializer",
                f"  %seen{k + 1} = fadd {vector} {seen}, %n{k}",
            ]
            seen = f"%seen{k + 1}"
        word = f"<{n} x i32>"
        lines += [
            f"  %here = mul i64 %v, {n}",
            "  %left = sub i64 %tiles, %here",
            "  %few = trunc i64 %left to i32",
            f"  %first = insertelement {word} poison, i32 %few, i64 0",
            f"  %limit = shufflevector {word} %first, {word} poison, {word} zeroinitializer",
            f"  %there = icmp sgt {word} %limit, <{', '.join(f'i32 {k}' for k in range(n))}>",
            f"  %kept = select <{n} x i1> %there, {vector} %seen4, {vector} %seen",
        ]
        return [
            *lines,
            "  %v1 = add nuw nsw i64 %v, 1",
            "  %more = icmp slt i64 %v1, %vectors",
            "  br i1 %more, label %loop, label %done",
            "done:",
            f"  %odd = fcmp uno {vector} %kept, zeroinitializer",
            f"  %bits = bitcast <{n} x i1> %odd to i{n}",
            f"  %any = icmp ne i{n} %bits, 0",
            "  %flag = zext i1 %any to i64",
            "  ret i64 %flag",
            "}",
        ]


def _combined(vector: str, heads: list[str], x: list[str]) -> list[str]:
    """B' x."""
    return [
        f"{head} {'fsub' if sign == '-' else 'fadd'} {vector} {x[a]}, {x[b]}"
        for head, (a, sign, b) in zip(heads, _IMAGE, strict=True)
    ]


def _weighted(vector: str, names: list[str], g: list[str]) -> list[str]:
    """G g: the outer elements unchanged, half of the sum of all, half of that with the middle one subtracted."""
    half, tag = "splat (float 0.5)", names[0][1:]
    return [
        f"  {names[0]} = fadd {vector} {g[0]}, splat (float -0.0)",
        f"  {names[3]} = fadd {vector} {g[2]}, splat (float -0.0)",
        f"  %a{tag} = fadd {vector} {g[0]}, {g[2]}",
        f"  %b{tag} = fadd {vector} %a{tag}, {g[1]}",
        f"  %c{tag} = fsub {vector} %a{tag}, {g[1]}",
        f"  {names[1]} = fmul {vector} %b{tag}, {half}",
        f"  {names[2]} = fmul {vector} %c{tag}, {half}",
    ]


def _summed(vector: str, names: list[str], m: list[str]) -> list[str]:
    """A' m."""
    tag = names[0][1:]
    return [
        f"  %s{tag} = fadd {vector} {m[0]}, {m[1]}",
        f"  {names[0]} = fadd {vector} %s{tag}, {m[2]}",
        f"  %t{tag} = fsub {vector} {m[1]}, {m[2]}",
        f"  {names[1]} = fsub {vector} %t{tag}, {m[3]}",
    ]
