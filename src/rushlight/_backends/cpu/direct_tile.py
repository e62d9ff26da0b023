"""The inner kernels of direct convolution: a block of results in registers, over rows that lie ready with their borders.

A block is `outs` channels by `rows` rows by `vectors` vectors.  Each vector of the input is loaded once for every place in a kernel's row and
serves all results that need it (several rows, several channels), as in Zhang, Franchetti and Low, "High Performance Zero-Memory Overhead
Direct Convolutions" (2018), but along the width (or over channels that lie together, each with weights of its own).
"""

from __future__ import annotations

__all__ = ["DirectTile", "RowMover", "WeightTile"]

_ELEMENTS = {"f32": ("float", 4), "f64": ("double", 8)}
_ARGUMENTS = (
    "ptr noalias %x", "i64 %pitch", "i64 %plane", "i64 %planes", "i64 %step", "i64 %steps", "i64 %phase", "ptr noalias %taps",
    "ptr noalias %start", "ptr noalias %out", "i64 %row", "i64 %channel", "i64 %vector", "i64 %valid",
)  # fmt: skip
_SUM_ARGUMENTS = (
    "ptr noalias %x", "i64 %pitch", "i64 %phase", "ptr noalias %y", "i64 %row", "ptr noalias %sums", "i64 %count", "i64 %valid",
)  # fmt: skip


class _Lanes:
    """Vectors of one kind: `lanes` elements of "f32" or "f64"."""

    __slots__ = ("element", "fma", "kind", "lanes", "size", "vector")

    def __init__(self, kind: str, lanes: int, fma: bool) -> None:
        self.kind, self.lanes, self.fma = kind, lanes, fma
        self.element, self.size = _ELEMENTS[kind]
        self.vector = f"<{lanes} x {self.element}>"

    @property
    def declared(self) -> str:
        return f"declare {self.vector} @llvm.fma.v{self.lanes}f{8 * self.size}({self.vector}, {self.vector}, {self.vector})"

    def multiply_add(self, to: str, a: str, b: str, c: str) -> list[str]:
        """`to` = a * b + c, rounded once where the machine does so."""
        if self.fma:
            v = self.vector
            return [f"  {to} = call {v} @llvm.fma.v{self.lanes}f{8 * self.size}({v} {a}, {v} {b}, {v} {c})"]
        return [f"  {to}m = fmul {self.vector} {a}, {b}", f"  {to} = fadd {self.vector} {c}, {to}m"]

    def load(self, to: str, base: str, offset: int | str) -> list[str]:
        """A vector at `base` plus bytes."""
        return [f"  {to}p = getelementptr i8, ptr {base}, i64 {offset}", f"  {to} = load {self.vector}, ptr {to}p, align {self.size}"]

    def spread(self, to: str, base: str, offset: int) -> list[str]:
        """One element in all lanes."""
        return [
            f"  {to}p = getelementptr i8, ptr {base}, i64 {offset}",
            f"  {to}e = load {self.element}, ptr {to}p, align {self.size}",
            f"  {to}v = insertelement {self.vector} poison, {self.element} {to}e, i64 0",
            f"  {to} = shufflevector {self.vector} {to}v, {self.vector} poison, <{self.lanes} x i32> zeroinitializer",
        ]

    def mask(self, to: str, count: str) -> list[str]:
        """Which lanes are below `count`."""
        n = self.lanes
        numbers = ", ".join(f"i64 {k}" for k in range(n))
        return [
            f"  {to}i = insertelement <{n} x i64> poison, i64 {count}, i64 0",
            f"  {to}s = shufflevector <{n} x i64> {to}i, <{n} x i64> poison, <{n} x i32> zeroinitializer",
            f"  {to} = icmp slt <{n} x i64> <{numbers}>, {to}s",
        ]


def _shifted(n: _Lanes, row: str, at: tuple[int, int], name: str, whole: bool, made: set[str]) -> list[str]:
    """Lines that load a vector from `at` (a phase of the row at %here + %row, and an element in it), or put it together from two whole ones."""
    phase, place = at
    lines: list[str] = []
    base = f"%q{row}_{phase}"
    if base not in made:
        made.add(base)
        lines += [f"  %g{row}_{phase} = mul i64 %phase, {phase}", f"  {base} = getelementptr i8, ptr %row{row}, i64 %g{row}_{phase}"]
    rest = place % n.lanes
    if rest == 0 or not whole:
        return [*lines, *n.load(name, base, place * n.size)]
    halves = []
    for k in (place // n.lanes, place // n.lanes + 1):
        halves.append(f"%u{row}_{phase}_{k}")
        if halves[-1] not in made:
            made.add(halves[-1])
            lines += n.load(halves[-1], base, k * n.lanes * n.size)
    mask = ", ".join(f"i32 {k + rest}" for k in range(n.lanes))
    return [*lines, f"  {name} = shufflevector {n.vector} {halves[0]}, {n.vector} {halves[1]}, <{n.lanes} x i32> <{mask}>"]


def _served(row: int, rows: int, stride: int, height: int, dilation: int) -> list[tuple[int, int]]:
    """The (result row, kernel row) that meet in an input row."""
    found = ((r, row - r * stride) for r in range(rows))
    return [(r, k // dilation) for r, k in found if k >= 0 and k % dilation == 0 and k // dilation < height]


class DirectTile:
    """A block of results: `text` is the LLVM text of its kernel, `symbol`.

    `symbol(x, pitch, plane, planes, step, steps, phase, taps, start, out, row, channel, vector, valid)`: x points to the first input row of the
    block, rows lie `pitch` bytes apart, `planes` planes of input `plane` bytes apart; kernel column j begins at `places[j]`: a phase (`phase`
    bytes apart) and an element in it.  With `whole` only whole vectors are loaded, and what lies across two is put together from them.  A
    kernel of `height` rows (`stride` input rows lie between result rows, `dilation` between kernel rows) is applied `steps` times, `step`
    bytes further each time.  `taps` holds the weights in the order plane, step, kernel row, kernel column, channel: numbers, or vectors
    of them where `channelwise`; `start` in the same manner one for each channel, which is added in the end.  Results go to out + channel,
    row and vector in bytes; only `valid` lanes of a row's last vector (of every vector where `channelwise`) are written.  With `stream` whole
    vectors of results bypass the caches: they must be aligned.
    """

    __slots__ = ("channelwise", "dilation", "height", "lanes", "outs", "places", "rows", "stream", "stride", "symbol", "vectors", "whole", "width")

    def __init__(
        self, kind: str, lanes: int, fma: bool, *, outs: int, rows: int, vectors: int, height: int, width: int, stride: int, dilation: int,
        places: tuple[tuple[int, int], ...], channelwise: bool, whole: bool, stream: bool = False,
    ) -> None:  # fmt: skip
        self.lanes, self.stream = _Lanes(kind, lanes, fma), stream
        self.outs, self.rows, self.vectors, self.height, self.width = outs, rows, vectors, height, width
        self.stride, self.dilation, self.channelwise = stride, dilation, channelwise
        self.places, self.whole = places, whole
        word = "_".join(map(str, (
            lanes, outs, rows, vectors, height, width, stride, dilation, int(channelwise), int(whole), int(stream),
            *(v for place in places for v in place),
        )))  # fmt: skip
        self.symbol = f"rl_direct_{kind}_{word}"

    @property
    def text(self) -> str:
        n = self.lanes
        block = [(o, r, v) for o in range(self.outs) for r in range(self.rows) for v in range(self.vectors)]
        tap = n.size * (n.lanes if self.channelwise else 1)
        body, last = self._body(n, tap)
        names = {at: last.get(at, "%a{}_{}_{}".format(*at)) for at in block}
        count = (self.rows - 1) * self.stride + (self.height - 1) * self.dilation + 1
        lines = [
            n.declared,
            f"declare void @llvm.masked.store.v{n.lanes}f{8 * n.size}.p0({n.vector}, ptr, i32, <{n.lanes} x i1>)",
            f"define void @{self.symbol}({', '.join(_ARGUMENTS)}) {{",
            "entry:",
            *(f"  %down{i} = mul i64 %pitch, {i}" for i in range(count)),
            "  %total = mul i64 %planes, %steps",
            "  br label %loop", "loop:",
            "  %n = phi i64 [0, %entry], [%n1, %loop]",
            "  %s = phi i64 [0, %entry], [%s2, %loop]",
            "  %here = phi ptr [%x, %entry], [%here2, %loop]",
            "  %first = phi ptr [%x, %entry], [%first2, %loop]",
            "  %t = phi ptr [%taps, %entry], [%t1, %loop]",
            *("  %a{}_{}_{} = phi {} [zeroinitializer, %entry], [{}, %loop]".format(*at, n.vector, names[at]) for at in block),
            *body,
            f"  %t1 = getelementptr i8, ptr %t, i64 {tap * self.height * self.width * self.outs}",
            "  %s1 = add i64 %s, 1", "  %over = icmp eq i64 %s1, %steps", "  %s2 = select i1 %over, i64 0, i64 %s1",
            "  %next = getelementptr i8, ptr %first, i64 %plane", "  %first2 = select i1 %over, ptr %next, ptr %first",
            "  %below = getelementptr i8, ptr %here, i64 %step", "  %here2 = select i1 %over, ptr %next, ptr %below",
            "  %n1 = add nuw nsw i64 %n, 1", "  %more = icmp slt i64 %n1, %total", "  br i1 %more, label %loop, label %done", "done:",
            *(line for o in range(self.outs) for line in (n.load if self.channelwise else n.spread)(f"%b{o}", "%start", tap * o)),
            *("  %z{0}_{1}_{2} = fadd {3} {4}, %b{0}".format(*at, n.vector, names[at]) for at in block),
            f"  %whole = icmp eq i64 %valid, {n.lanes}", "  br i1 %whole, label %write, label %part",
            *self._out("write", n, names, False), *self._out("part", n, names, True), "}",
            *(["!0 = !{i32 1}"] if self.stream else []),
        ]  # fmt: skip
        return "\n".join(lines)

    def _body(self, n: _Lanes, tap: int) -> tuple[list[str], dict[tuple[int, int, int], str]]:
        lines: list[str] = []
        last: dict[tuple[int, int, int], str] = {}
        count = (self.rows - 1) * self.stride + (self.height - 1) * self.dilation + 1
        for k in range(self.height):
            for j in range(self.width):
                for o in range(self.outs):
                    at = tap * ((k * self.width + j) * self.outs + o)
                    lines += n.load(f"%w{k}_{j}_{o}", "%t", at) if self.channelwise else n.spread(f"%w{k}_{j}_{o}", "%t", at)
        for i in range(count):
            served = _served(i, self.rows, self.stride, self.height, self.dilation)
            if not served:
                continue
            lines.append(f"  %row{i} = getelementptr i8, ptr %here, i64 %down{i}")
            made: set[str] = set()
            for v in range(self.vectors):
                for j in range(self.width):
                    phase, at = self.places[j]
                    lines += _shifted(n, str(i), (phase, at + v * n.lanes), f"%x{i}_{j}_{v}", self.whole, made)
                    for r, k in served:
                        for o in range(self.outs):
                            to = f"%a{o}_{r}_{v}_{i}_{j}"
                            lines += n.multiply_add(to, f"%x{i}_{j}_{v}", f"%w{k}_{j}_{o}", last.get((o, r, v), f"%a{o}_{r}_{v}"))
                            last[o, r, v] = to
        return lines, last

    def _out(self, block: str, n: _Lanes, names: dict[tuple[int, int, int], str], masked: bool) -> list[str]:
        p = block[0]
        lines = [f"{block}:", *(n.mask("%mask", "%valid") if masked else [])]
        for o, r, v in names:
            value = f"%z{o}_{r}_{v}"
            if v == 0:
                if r == 0:
                    lines += [f"  %{p}c{o} = mul i64 %channel, {o}", f"  %{p}o{o} = getelementptr i8, ptr %out, i64 %{p}c{o}"]
                lines += [f"  %{p}d{o}_{r} = mul i64 %row, {r}", f"  %{p}r{o}_{r} = getelementptr i8, ptr %{p}o{o}, i64 %{p}d{o}_{r}"]
            at = f"{o}_{r}_{v}"
            lines += [f"  %{p}s{at} = mul i64 %vector, {v}", f"  %{p}p{at} = getelementptr i8, ptr %{p}r{o}_{r}, i64 %{p}s{at}"]
            if masked and (self.channelwise or v == self.vectors - 1):
                store = f"@llvm.masked.store.v{n.lanes}f{8 * n.size}.p0"
                lines.append(f"  call void {store}({n.vector} {value}, ptr %{p}p{at}, i32 {n.size}, <{n.lanes} x i1> %mask)")
            else:
                how = f"align {n.lanes * n.size}, !nontemporal !0" if self.stream else f"align {n.size}"
                lines.append(f"  store {n.vector} {value}, ptr %{p}p{at}, {how}")
        return [*lines, "  ret void"]


AHEAD = 4096  # bytes that are asked for before they are copied: rows of images larger than the caches come from far away


class RowMover:
    """Brings rows to where blocks read them: `text` holds the kernels `copy`, `part` and `places`, and of float32 `widened` and `narrowed`.

    `copy(to, x, n)` copies n elements; `part(to, other, x, n)` sends the even ones of 2 n to `to`, the odd ones to `other`;
    `places(to, step, x, gap, n)` copies n vectors, that lie `gap` bytes apart, to where they lie `step` bytes apart; `widened` does so with
    vectors of bfloat16, which become float32, and `narrowed` rounds them on the way back.
    """

    __slots__ = ("copy", "kind", "lanes", "narrowed", "part", "places", "widened")

    def __init__(self, kind: str, lanes: int) -> None:
        self.kind, self.lanes = kind, _Lanes(kind, lanes, False)
        self.copy, self.part, self.places = (f"rl_row_{what}_{kind}_{lanes}" for what in ("copy", "part", "places"))
        self.widened, self.narrowed = (f"rl_row_{what}_{lanes}" for what in ("widened", "narrowed"))

    @property
    def symbols(self) -> list[str]:
        """What `text` defines."""
        return [self.copy, self.part, self.places, *([self.widened, self.narrowed] if self.kind == "f32" else [])]

    @property
    def text(self) -> str:
        n = self.lanes
        masked = f"{n.vector}, ptr, i32, <{n.lanes} x i1>"
        word = f"v{n.lanes}f{8 * n.size}.p0"
        lines = [f"declare void @llvm.masked.store.{word}({masked})",
                 f"declare {n.vector} @llvm.masked.load.{word}(ptr, i32, <{n.lanes} x i1>, {n.vector})"]  # fmt: skip
        lines += [*self._copy(n, word), *self._part(n, word), *self._places(n, self.places, n.size, n.load("%v", "%q", 0), n.vector)]
        if self.kind == "f32":
            lines += self._places(n, self.widened, 2, self._widen(n), n.vector) + self._places(n, self.narrowed, n.size, self._narrow(n), f"<{n.lanes} x i16>")
        return "\n".join(lines)

    def _widen(self, n: _Lanes) -> list[str]:
        word = f"<{n.lanes} x i32>"
        return [
            f"  %h = load <{n.lanes} x i16>, ptr %q, align 2", f"  %w = zext <{n.lanes} x i16> %h to {word}", f"  %u = shl {word} %w, splat (i32 16)",
            f"  %v = bitcast {word} %u to {n.vector}",
        ]  # fmt: skip

    def _narrow(self, n: _Lanes) -> list[str]:
        """Rounded to nearest, ties to even; NaN stays one."""
        word = f"<{n.lanes} x i32>"
        return [
            *n.load("%f", "%q", 0), f"  %b = bitcast {n.vector} %f to {word}", f"  %s = lshr {word} %b, splat (i32 16)",
            f"  %last = and {word} %s, splat (i32 1)", f"  %half = add {word} %last, splat (i32 32767)", f"  %up = add {word} %b, %half",
            f"  %cut = lshr {word} %up, splat (i32 16)", f"  %nan = fcmp uno {n.vector} %f, %f",
            f"  %whole = select <{n.lanes} x i1> %nan, {word} splat (i32 32704), {word} %cut", f"  %v = trunc {word} %whole to <{n.lanes} x i16>",
        ]  # fmt: skip

    def _loop(self, n: _Lanes) -> list[str]:
        return [
            "entry:", f"  %whole = sdiv i64 %n, {n.lanes}", "  %any = icmp sgt i64 %whole, 0", "  br i1 %any, label %loop, label %rest", "loop:",
            "  %k = phi i64 [0, %entry], [%k1, %loop]",
            f"  %at = mul i64 %k, {n.lanes * n.size}", "  %p = getelementptr i8, ptr %to, i64 %at",
        ]  # fmt: skip

    def _next(self, n: _Lanes) -> list[str]:
        return [
            "  %k1 = add nuw nsw i64 %k, 1", "  %more = icmp slt i64 %k1, %whole", "  br i1 %more, label %loop, label %rest", "rest:",
            f"  %got = mul i64 %whole, {n.lanes}", "  %left = sub i64 %n, %got", "  %some = icmp sgt i64 %left, 0",
            "  br i1 %some, label %tail, label %done", "tail:", *n.mask("%mask", "%left"),
            f"  %off = mul i64 %got, {n.size}", "  %tp = getelementptr i8, ptr %to, i64 %off",
        ]  # fmt: skip

    def _places(self, n: _Lanes, symbol: str, size: int, read: list[str], vector: str) -> list[str]:
        """A loop over places: `read` makes %v, of type `vector`, of what lies at %q, elements of `size` bytes."""
        return [
            f"define void @{symbol}(ptr noalias %to, i64 %step, ptr noalias %x, i64 %gap, i64 %n) {{", "entry:",
            f"  %ahead = mul i64 %gap, {AHEAD // (n.lanes * size)}",
            "  %any = icmp sgt i64 %n, 0", "  br i1 %any, label %loop, label %done", "loop:", "  %k = phi i64 [0, %entry], [%k1, %loop]",
            "  %p = phi ptr [%to, %entry], [%p1, %loop]", "  %q = phi ptr [%x, %entry], [%q1, %loop]", *read,
            "  %soon = getelementptr i8, ptr %q, i64 %ahead", "  call void @llvm.prefetch.p0(ptr %soon, i32 0, i32 3, i32 1)",
            f"  store {vector} %v, ptr %p, align {2 if vector != n.vector else n.size}", "  %p1 = getelementptr i8, ptr %p, i64 %step",
            "  %q1 = getelementptr i8, ptr %q, i64 %gap", "  %k1 = add nuw nsw i64 %k, 1", "  %more = icmp slt i64 %k1, %n",
            "  br i1 %more, label %loop, label %done", "done:", "  ret void", "}",
        ]  # fmt: skip

    def _copy(self, n: _Lanes, word: str) -> list[str]:
        return [
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            f"define void @{self.copy}(ptr noalias %to, ptr noalias %x, i64 %n) {{", *self._loop(n), *n.load("%v", "%x", "%at"),
            f"  %soon = getelementptr i8, ptr %vp, i64 {AHEAD}", "  call void @llvm.prefetch.p0(ptr %soon, i32 0, i32 3, i32 1)",
            f"  store {n.vector} %v, ptr %p, align {n.size}", *self._next(n), "  %tx = getelementptr i8, ptr %x, i64 %off",
            f"  %tv = call {n.vector} @llvm.masked.load.{word}(ptr %tx, i32 {n.size}, <{n.lanes} x i1> %mask, {n.vector} zeroinitializer)",
            f"  call void @llvm.masked.store.{word}({n.vector} %tv, ptr %tp, i32 {n.size}, <{n.lanes} x i1> %mask)",
            "  br label %done", "done:", "  ret void", "}",
        ]  # fmt: skip

    def _part(self, n: _Lanes, word: str) -> list[str]:
        lanes = n.lanes
        even, odd = (", ".join(f"i32 {2 * k + first}" for k in range(lanes)) for first in (0, 1))
        both = ", ".join(f"i64 {k}" for k in range(lanes))
        high = ", ".join(f"i64 {k + lanes}" for k in range(lanes))
        shuffle = lambda to, a, b, which: f"  {to} = shufflevector {n.vector} {a}, {n.vector} {b}, <{lanes} x i32> <{which}>"
        return [
            f"define void @{self.part}(ptr noalias %to, ptr noalias %other, ptr noalias %x, i64 %n) {{", *self._loop(n),
            "  %q = getelementptr i8, ptr %other, i64 %at", "  %twice = mul i64 %at, 2", *n.load("%a", "%x", "%twice"),
            "  %next = getelementptr i8, ptr %x, i64 %twice", *n.load("%b", "%next", lanes * n.size),
            shuffle("%e", "%a", "%b", even), shuffle("%o", "%a", "%b", odd), f"  store {n.vector} %e, ptr %p, align {n.size}",
            f"  store {n.vector} %o, ptr %q, align {n.size}", *self._next(n), "  %tq = getelementptr i8, ptr %other, i64 %off",
            "  %off2 = mul i64 %off, 2", "  %tx = getelementptr i8, ptr %x, i64 %off2", f"  %ty = getelementptr i8, ptr %tx, i64 {lanes * n.size}",
            "  %cl = mul i64 %left, 2", f"  %ci = insertelement <{lanes} x i64> poison, i64 %cl, i64 0",
            f"  %cs = shufflevector <{lanes} x i64> %ci, <{lanes} x i64> poison, <{lanes} x i32> zeroinitializer",
            f"  %ma = icmp slt <{lanes} x i64> <{both}>, %cs", f"  %mb = icmp slt <{lanes} x i64> <{high}>, %cs",
            f"  %ta = call {n.vector} @llvm.masked.load.{word}(ptr %tx, i32 {n.size}, <{lanes} x i1> %ma, {n.vector} zeroinitializer)",
            f"  %tb = call {n.vector} @llvm.masked.load.{word}(ptr %ty, i32 {n.size}, <{lanes} x i1> %mb, {n.vector} zeroinitializer)",
            shuffle("%te", "%ta", "%tb", even), shuffle("%to2", "%ta", "%tb", odd),
            f"  call void @llvm.masked.store.{word}({n.vector} %te, ptr %tp, i32 {n.size}, <{lanes} x i1> %mask)",
            f"  call void @llvm.masked.store.{word}({n.vector} %to2, ptr %tq, i32 {n.size}, <{lanes} x i1> %mask)",
            "  br label %done", "done:", "  ret void", "}",
        ]  # fmt: skip


class WeightTile:
    """Sums over places for the gradient by the weights: `text` is the LLVM text of its kernel, `symbol`.

    `symbol(x, pitch, phase, y, row, sums, count, valid)`: x points to the first input row as in `DirectTile`, y to `rows` rows of cotangents, `row`
    bytes apart, each of `count` vectors, of which `valid` lanes of the last are used.  The vectors at `sums`, one for each kernel row and
    column, grow by the products of cotangents with what their kernel place meets.
    """

    __slots__ = ("dilation", "height", "lanes", "places", "rows", "stride", "symbol", "whole", "width")

    def __init__(
        self, kind: str, lanes: int, fma: bool, *, rows: int, height: int, width: int, stride: int, dilation: int,
        places: tuple[tuple[int, int], ...], whole: bool,
    ) -> None:  # fmt: skip
        self.lanes = _Lanes(kind, lanes, fma)
        self.rows, self.height, self.width, self.stride, self.dilation = rows, height, width, stride, dilation
        self.places, self.whole = places, whole
        word = "_".join(map(str, (lanes, rows, height, width, stride, dilation, int(whole), *(v for place in places for v in place))))
        self.symbol = f"rl_weights_{kind}_{word}"

    @property
    def text(self) -> str:
        n = self.lanes
        block = [(k, j) for k in range(self.height) for j in range(self.width)]
        count = (self.rows - 1) * self.stride + (self.height - 1) * self.dilation + 1
        body, last = self._body(n, "l", {at: f"%a{at[0]}_{at[1]}" for at in block})
        rest, end = self._body(n, "t", {at: f"%f{at[0]}_{at[1]}" for at in block})
        step = n.lanes * n.size
        places = lambda word, value: (
            line for k, j in block
            for line in (f"  %{word}p{k}_{j} = getelementptr i8, ptr %sums, i64 {step * (k * self.width + j)}", value(word, k, j))
        )  # fmt: skip
        lines = [
            n.declared,
            f"define void @{self.symbol}({', '.join(_SUM_ARGUMENTS)}) {{",
            "entry:",
            *(f"  %down{i} = mul i64 %pitch, {i}" for i in range(count)),
            *(f"  %over{r} = mul i64 %row, {r}" for r in range(self.rows)),
            *places("s", lambda word, k, j: f"  %s{k}_{j} = load {n.vector}, ptr %sp{k}_{j}, align {n.size}"),
            f"  %cut = icmp slt i64 %valid, {n.lanes}", "  %less = zext i1 %cut to i64", "  %whole = sub i64 %count, %less",
            "  %any = icmp sgt i64 %whole, 0", "  br i1 %any, label %loop, label %end", "loop:",
            "  %n = phi i64 [0, %entry], [%n1, %loop]", "  %here = phi ptr [%x, %entry], [%here1, %loop]",
            "  %yl = phi ptr [%y, %entry], [%y1, %loop]",
            *(f"  %a{k}_{j} = phi {n.vector} [%s{k}_{j}, %entry], [{last[k, j]}, %loop]" for k, j in block),
            *body, f"  %here1 = getelementptr i8, ptr %here, i64 {step}", f"  %y1 = getelementptr i8, ptr %yl, i64 {step}",
            "  %n1 = add nuw nsw i64 %n, 1", "  %more = icmp slt i64 %n1, %whole", "  br i1 %more, label %loop, label %end", "end:",
            "  %heret = phi ptr [%x, %entry], [%here1, %loop]", "  %yt = phi ptr [%y, %entry], [%y1, %loop]",
            *(f"  %f{k}_{j} = phi {n.vector} [%s{k}_{j}, %entry], [{last[k, j]}, %loop]" for k, j in block),
            "  br i1 %cut, label %tail, label %done", "tail:", *n.mask("%mask", "%valid"), *rest, "  br label %done", "done:",
            *(f"  %z{k}_{j} = phi {n.vector} [%f{k}_{j}, %end], [{end[k, j]}, %tail]" for k, j in block),
            *places("d", lambda word, k, j: f"  store {n.vector} %z{k}_{j}, ptr %dp{k}_{j}, align {n.size}"), "  ret void", "}",
        ]  # fmt: skip
        return "\n".join(lines)

    def _body(self, n: _Lanes, word: str, last: dict[tuple[int, int], str]) -> tuple[list[str], dict[tuple[int, int], str]]:
        """The products of one vector of each row; of some of its lanes in the tail."""
        lines = [line for r in range(self.rows) for line in n.load(f"%c{word}{r}", "%y" + word, f"%over{r}")]
        here = "%here" if word == "l" else "%heret"
        for i in range((self.rows - 1) * self.stride + (self.height - 1) * self.dilation + 1):
            served = _served(i, self.rows, self.stride, self.height, self.dilation)
            made: set[str] = set()
            if served:
                lines.append(f"  %row{word}{i} = getelementptr i8, ptr {here}, i64 %down{i}")
            for j in range(self.width if served else 0):
                name = f"%x{word}{i}_{j}"
                lines += _shifted(n, f"{word}{i}", self.places[j], name, self.whole, made)
                if word == "t":
                    lines.append(f"  {name}k = select <{n.lanes} x i1> %mask, {n.vector} {name}, {n.vector} zeroinitializer")
                    name += "k"
                for r, k in served:
                    to = f"%p{word}{k}_{j}_{i}"
                    lines += n.multiply_add(to, name, f"%c{word}{r}", last[k, j])
                    last[k, j] = to
        return lines, last
