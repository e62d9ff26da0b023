"""The inner kernels of direct convolution: a block of results in registers, over prepared rows with their borders.

A block is `outs` channels by `rows` rows by `vectors` vectors.  Each input vector is loaded once for every column of
the kernel's row and serves all results that need it (several rows, several channels), as in Zhang, Franchetti and Low,
"High Performance Zero-Memory Overhead Direct Convolutions" (2018), but along the width (or over contiguous channels,
each with weights of its own).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rushlight._backends.cpu.conv.direct_descriptor import T

__all__ = ["MIXED", "Block", "DirectTile", "Reads", "RowMover", "VectorKind", "WeightTile", "Window"]

MIXED = (2, 4, 8)  # channels of a group that may share a vector with other groups
_ELEMENTS = {"f32": ("float", 4), "f64": ("double", 8)}
_ARGUMENTS = (
    "ptr noalias %desc",
    "ptr noalias %lines",
    "i64 %from",
    "ptr noalias %weights",
    "ptr noalias %out",
    "i64 %count",
)
_SUM_ARGUMENTS = (
    "ptr noalias %x", "i64 %pitch", "i64 %phase", "ptr noalias %y", "i64 %row", "ptr noalias %sums", "i64 %other",
    "i64 %count", "i64 %valid",
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
        """`to` = a * b + c, with one rounding where the machine has a fused instruction."""
        if self.fma:
            v = self.vector
            return [f"  {to} = call {v} @llvm.fma.v{self.lanes}f{8 * self.size}({v} {a}, {v} {b}, {v} {c})"]
        return [f"  {to}m = fmul {self.vector} {a}, {b}", f"  {to} = fadd {self.vector} {c}, {to}m"]

    def load(self, to: str, base: str, offset: int | str) -> list[str]:
        """Load a vector at `base` plus bytes."""
        return [
            f"  {to}p = getelementptr i8, ptr {base}, i64 {offset}",
            f"  {to} = load {self.vector}, ptr {to}p, align {self.size}",
        ]

    def spread(self, to: str, base: str, offset: int) -> list[str]:
        """Broadcast one element to all lanes."""
        return [
            f"  {to}p = getelementptr i8, ptr {base}, i64 {offset}",
            f"  {to}e = load {self.element}, ptr {to}p, align {self.size}",
            f"  {to}v = insertelement {self.vector} poison, {self.element} {to}e, i64 0",
            f"  {to} = shufflevector {self.vector} {to}v, {self.vector} poison, <{self.lanes} x i32> zeroinitializer",
        ]

    def of_group(self, to: str, vector: str, channels: int, i: int) -> str:
        """Broadcast the i-th lane of each group of `channels` lanes within its group."""
        mask = ", ".join(f"i32 {k // channels * channels + i}" for k in range(self.lanes))
        return f"  {to} = shufflevector {self.vector} {vector}, {self.vector} poison, <{self.lanes} x i32> <{mask}>"

    def inside(self, to: str, first: str, count: str) -> list[str]:
        """Mask of the lanes that, counted from `first`, are below `count`."""
        word = f"<{self.lanes} x i32>"
        numbers = ", ".join(f"i32 {k}" for k in range(self.lanes))
        spread = lambda at, value: [
            f"  {to}{at}w = trunc i64 {value} to i32",
            f"  {to}{at}i = insertelement {word} poison, i32 {to}{at}w, i64 0",
            f"  {to}{at}s = shufflevector {word} {to}{at}i, {word} poison, <{self.lanes} x i32> zeroinitializer",
        ]
        return [
            *spread("a", first),
            *spread("b", count),
            f"  {to}n = add {word} {to}as, <{numbers}>",
            f"  {to} = icmp ult {word} {to}n, {to}bs",
        ]

    def mask(self, to: str, count: str) -> list[str]:
        """Mask of the lanes below `count`."""
        n = self.lanes
        numbers = ", ".join(f"i64 {k}" for k in range(n))
        return [
            f"  {to}i = insertelement <{n} x i64> poison, i64 {count}, i64 0",
            f"  {to}s = shufflevector <{n} x i64> {to}i, <{n} x i64> poison, <{n} x i32> zeroinitializer",
            f"  {to} = icmp slt <{n} x i64> <{numbers}>, {to}s",
        ]


# Lines that load a vector: its name, start of the phase, phase, element in it
_Read = Callable[[str, str, int, int], list[str]]


def _shifted(
    n: _Lanes, row: str, at: tuple[int, int], name: str, whole: bool, loaded: set[str], read: _Read | None = None
) -> list[str]:
    """Lines that load a vector from `at` (phase of the row at %here + %row, element in it), or combine it from two
    whole ones."""
    read = read or (lambda to, base, phase, element: n.load(to, base, element * n.size))
    phase, element = at
    lines: list[str] = []
    base = f"%q{row}_{phase}"
    if base not in loaded:
        loaded.add(base)
        lines += [
            f"  %g{row}_{phase} = mul i64 %phase, {phase}",
            f"  {base} = getelementptr i8, ptr %row{row}, i64 %g{row}_{phase}",
        ]
    rest = element % n.lanes
    if rest == 0 or not whole:
        return [*lines, *read(name, base, phase, element)]
    halves = []
    for k in (element // n.lanes, element // n.lanes + 1):
        halves.append(f"%u{row}_{phase}_{k}")
        if halves[-1] not in loaded:
            loaded.add(halves[-1])
            lines += read(halves[-1], base, phase, k * n.lanes)
    mask = ", ".join(f"i32 {k + rest}" for k in range(n.lanes))
    return [
        *lines,
        f"  {name} = shufflevector {n.vector} {halves[0]}, {n.vector} {halves[1]}, <{n.lanes} x i32> <{mask}>",
    ]


def _served(row: int, rows: int, stride: int, height: int, dilation: int) -> list[tuple[int, int]]:
    """The (result row, kernel row) pairs that meet in an input row."""
    pairs = ((r, row - r * stride) for r in range(rows))
    return [(r, k // dilation) for r, k in pairs if k >= 0 and k % dilation == 0 and k // dilation < height]


class VectorKind(NamedTuple):
    """Vectors of `lanes` elements of `kind` ("f32", "f64")."""

    kind: str
    lanes: int
    fma: bool


class Block(NamedTuple):
    """The size of a block of results: channels, rows, vectors."""

    outs: int
    rows: int
    vectors: int


class Window(NamedTuple):
    """A kernel over prepared rows: `stride` input rows between result rows, `dilation` between kernel rows.

    Kernel column j begins at `columns[j]`: a phase and an element in it.
    """

    height: int
    width: int
    stride: int
    dilation: int
    columns: tuple[tuple[int, int], ...]


class Reads(NamedTuple):
    """Loads and stores of a block: `whole` vectors only, `stream` past the caches, rows that may end (`edge`)."""

    whole: bool
    stream: bool = False
    edge: bool = False


class DirectTile:
    """A block of results: `text` is the LLVM text of its kernel, `symbol`.

    `symbol(desc, lines, from, weights, out, count)`: lines[0...] are addresses of the block's input rows, `desc` is its
    descriptor (`direct_descriptor.T`).  Kernel column j begins at `columns[j]`: a phase (`phase` bytes apart) and an
    element in it, counted from `from` positions (`position` bytes apart).  With `whole` only whole vectors are loaded,
    and vectors that straddle two are combined from them.  A kernel of `height` rows (`stride` input rows between result
    rows, `dilation` between kernel rows) is applied `steps` times, each `step` bytes of lines further, to each of
    `planes` planes of input, whose lines are `plane` bytes apart.  `weights` begin with one number for each channel
    that is added in the end, or a vector of them where `channelwise`; the weights follow in the same form, in the order
    plane, step, kernel row, kernel column, channel.  Results go to out + channel, row and vector in bytes; only `valid`
    lanes of a row's last vector (of every vector where `channelwise`) are written.  With `stream` whole vectors of
    results bypass the caches: they must be aligned.

    There are `count` blocks, each with lines `down` bytes, input `along` bytes and results `on` bytes further.  Rows
    are prepared: every element read exists.  With `edge` they need not be: elements before the first of a row's `width`
    positions, or behind the last, count as zero and are not read.  Channelwise, positions are counted, `stride` of them
    between results, and `channels` lanes of them exist; else elements are counted, and there is one phase.

    Where `channelwise`, input vectors are `unit` bytes apart, and groups may have `mix` channels: one lane of each
    group at a time is broadcast to all lanes of its group, and there are `mix` times as many weights, ordered by
    channel within the group first.
    """

    __slots__ = (
        "channelwise", "columns", "dilation", "edge", "height", "lanes", "mix", "outs", "rows", "stream", "stride", "symbol", "vectors", "whole",
        "width",
    )  # fmt: skip

    def __init__(self, kind: VectorKind, block: Block, window: Window, reads: Reads, mix: int = 0) -> None:
        """`mix`: channels of a group where `channelwise`, else 0."""
        self.lanes, self.stream, self.edge = _Lanes(*kind), reads.stream, reads.edge
        self.outs, self.rows, self.vectors = outs, rows, vectors = block
        self.height, self.width, self.stride, self.dilation, self.columns = height, width, stride, dilation, columns = (
            window
        )
        self.channelwise, self.mix, self.whole = mix > 0, max(mix, 1), reads.whole
        word = "_".join(map(str, (
            kind.lanes, outs, rows, vectors, height, width, stride, dilation, mix, *map(int, reads),
            *(v for column in columns for v in column),
        )))  # fmt: skip
        self.symbol = f"rl_direct_{kind.kind}_{word}"

    def _read(self) -> list[tuple[int, int]]:
        """The vectors of a row that are loaded: phase and element."""
        lanes = self.lanes.lanes
        met = {(phase, at + v * lanes) for phase, at in self.columns for v in range(self.vectors)}
        if self.whole:
            met = {(phase, (at + more) // lanes * lanes) for phase, at in met for more in (0, lanes - 1)}
        return sorted(met)

    def _load(self, to: str, base: str, phase: int, element: int) -> list[str]:
        n = self.lanes
        offset: int | str = f"%unit{element // n.lanes}" if self.channelwise else element * n.size
        if not self.edge:
            return n.load(to, base, offset)
        masked = f"@llvm.masked.load.v{n.lanes}f{8 * n.size}.p0(ptr {to}p, i32 {n.size}, <{n.lanes} x i1> %in{phase}_{element}, {n.vector} zeroinitializer)"
        return [f"  {to}p = getelementptr i8, ptr {base}, i64 {offset}", f"  {to} = call {n.vector} {masked}"]

    def _inside(self) -> list[str]:
        """%in<phase>_<element>: mask of the lanes of an input vector that exist."""
        n, lines = self.lanes, []
        for phase, element in self._read():
            at = f"%in{phase}_{element}"
            if self.channelwise:
                lines += [
                    f"  {at}k = mul i64 %stride, {element // n.lanes}",
                    f"  {at}u = add i64 {at}k, {phase}",
                    f"  {at}f = add i64 {at}u, %from",
                    f"  {at}t = icmp ult i64 {at}f, %width",
                    f"  {at}c = select i1 {at}t, i64 %channels, i64 0",
                    *n.inside(at, "0", f"{at}c"),
                ]
            else:
                lines += [f"  {at}f = add i64 %from, {element}", *n.inside(at, f"{at}f", "%width")]
        return lines

    @property
    def text(self) -> str:
        n = self.lanes
        block = [(o, r, v) for o in range(self.outs) for r in range(self.rows) for v in range(self.vectors)]
        tap = n.size * (n.lanes if self.channelwise else 1)
        body, names = self._body(n, tap, block)
        masked = f"v{n.lanes}f{8 * n.size}.p0"
        lines = [
            n.declared,
            f"declare void @llvm.masked.store.{masked}({n.vector}, ptr, i32, <{n.lanes} x i1>)",
            f"declare {n.vector} @llvm.masked.load.{masked}(ptr, i32, <{n.lanes} x i1>, {n.vector})",
            f"define void @{self.symbol}({', '.join(_ARGUMENTS)}) {{",
            "entry:",
            *(line for k, name in enumerate(T) for line in (
                f"  %{name}p = getelementptr i64, ptr %desc, i64 {k}", f"  %{name} = load i64, ptr %{name}p, align 8",
            )),
            *(f"  %unit{k} = mul i64 %unit, {k}" for k in sorted({element // n.lanes for _, element in self._read()} if self.channelwise else ())),
            *(self._inside() if self.edge else ()),
            "  %total = mul i64 %planes, %steps", "  %begin = mul i64 %from, %position",
            f"  %taps = getelementptr i8, ptr %weights, i64 {tap * self.outs}",
            "  br label %block", "block:",
            "  %block_no = phi i64 [0, %entry], [%block1, %next]",
            "  %line = phi ptr [%lines, %entry], [%line1, %next]",
            "  %off = phi i64 [%begin, %entry], [%off1, %next]",
            "  %to = phi ptr [%out, %entry], [%to1, %next]",
            "  br label %loop", "loop:",
            "  %n = phi i64 [0, %block], [%n1, %end]",
            "  %s = phi i64 [0, %block], [%s2, %end]",
            "  %here = phi ptr [%line, %block], [%here2, %end]",
            "  %first = phi ptr [%line, %block], [%first2, %end]",
            "  %t = phi ptr [%taps, %block], [%t1, %end]",
            *("  %a{}_{}_{} = phi {} [zeroinitializer, %block], [{}, %end]".format(*at, n.vector, names[at]) for at in block),
            # LLVM shares loads within a basic block only: each channel of the groups has its own
            *body, "  br label %end", "end:",
            f"  %t1 = getelementptr i8, ptr %t, i64 {tap * self.height * self.width * self.outs * self.mix}",
            "  %s1 = add i64 %s, 1", "  %over = icmp eq i64 %s1, %steps", "  %s2 = select i1 %over, i64 0, i64 %s1",
            "  %other = getelementptr i8, ptr %first, i64 %plane", "  %first2 = select i1 %over, ptr %other, ptr %first",
            "  %below = getelementptr i8, ptr %here, i64 %step", "  %here2 = select i1 %over, ptr %other, ptr %below",
            "  %n1 = add nuw nsw i64 %n, 1", "  %more = icmp slt i64 %n1, %total", "  br i1 %more, label %loop, label %done", "done:",
            *(line for o in range(self.outs) for line in (n.load if self.channelwise else n.spread)(f"%b{o}", "%weights", tap * o)),
            *("  %z{0}_{1}_{2} = fadd {3} {4}, %b{0}".format(*at, n.vector, names[at]) for at in block),
            f"  %whole = icmp eq i64 %valid, {n.lanes}", "  br i1 %whole, label %write, label %part",
            *self._out("write", n, names, False), *self._out("part", n, names, True), "next:",
            "  %line1 = getelementptr i8, ptr %line, i64 %down", "  %off1 = add i64 %off, %along", "  %to1 = getelementptr i8, ptr %to, i64 %on",
            "  %block1 = add nuw nsw i64 %block_no, 1", "  %again = icmp slt i64 %block1, %count", "  br i1 %again, label %block, label %over_", "over_:",
            "  ret void", "}",
            *(["!0 = !{i32 1}"] if self.stream else []),
        ]  # fmt: skip
        return "\n".join(lines)

    def _body(
        self, n: _Lanes, tap: int, block: list[tuple[int, int, int]]
    ) -> tuple[list[str], dict[tuple[int, int, int], str]]:
        """Lines for one kernel row, or for all of them; returns the names of the sums after it."""
        lines: list[str] = []
        last = {at: "%a{}_{}_{}".format(*at) for at in block}
        for channel in range(self.mix):
            if channel:
                lines += [f"  br label %channel{channel}", f"channel{channel}:"]
            lines += self._channel(n, tap, channel, last)
        return lines, last

    def _channel(self, n: _Lanes, tap: int, channel: int, last: dict[tuple[int, int, int], str]) -> list[str]:
        """Add the products of one channel of each group to the sums named by `last`, and rename these."""
        lines: list[str] = []
        p = f"{channel}_" if channel else ""  # of names
        for k in range(self.height):
            for j in range(self.width):
                for o in range(self.outs):
                    at = tap * (((channel * self.height + k) * self.width + j) * self.outs + o)
                    lines += (n.load if self.channelwise else n.spread)(f"%w{p}{k}_{j}_{o}", "%t", at)
        for i in range((self.rows - 1) * self.stride + (self.height - 1) * self.dilation + 1):
            served = _served(i, self.rows, self.stride, self.height, self.dilation)
            if not served:
                continue
            lines += [
                f"  %lp{p}{i} = getelementptr ptr, ptr %here, i64 {i}",
                f"  %l{p}{i} = load ptr, ptr %lp{p}{i}, align 8",
                f"  %row{p}{i} = getelementptr i8, ptr %l{p}{i}, i64 %off",
            ]
            loaded: set[str] = set()
            for v in range(self.vectors):
                for j in range(self.width):
                    phase, at = self.columns[j]
                    at += v * n.lanes
                    name = f"%x{p}{i}_{j}_{v}"
                    if self.mix == 1:
                        lines += _shifted(n, f"{p}{i}", (phase, at), name, self.whole, loaded, self._load)
                    else:
                        name = f"%x{p}{i}at{phase}_{at}"  # a position that several kernel columns use
                        if name not in loaded:
                            loaded.add(name)
                            lines += [
                                *_shifted(n, f"{p}{i}", (phase, at), f"{name}v", self.whole, loaded, self._load),
                                n.of_group(name, f"{name}v", self.mix, channel),
                            ]
                    for r, k in served:
                        for o in range(self.outs):
                            to = f"%a{p}{o}_{r}_{v}_{i}_{j}"
                            lines += n.multiply_add(to, name, f"%w{p}{k}_{j}_{o}", last[o, r, v])
                            last[o, r, v] = to
        return lines

    def _out(self, block: str, n: _Lanes, names: dict[tuple[int, int, int], str], masked: bool) -> list[str]:
        p = block[0]
        lines = [f"{block}:", *(n.mask("%mask", "%valid") if masked else [])]
        for o, r, v in names:
            value = f"%z{o}_{r}_{v}"
            if v == 0:
                if r == 0:
                    lines += [
                        f"  %{p}c{o} = mul i64 %channel, {o}",
                        f"  %{p}o{o} = getelementptr i8, ptr %to, i64 %{p}c{o}",
                    ]
                lines += [
                    f"  %{p}d{o}_{r} = mul i64 %row, {r}",
                    f"  %{p}r{o}_{r} = getelementptr i8, ptr %{p}o{o}, i64 %{p}d{o}_{r}",
                ]
            at = f"{o}_{r}_{v}"
            lines += [
                f"  %{p}s{at} = mul i64 %vector, {v}",
                f"  %{p}p{at} = getelementptr i8, ptr %{p}r{o}_{r}, i64 %{p}s{at}",
            ]
            if masked and (self.channelwise or v == self.vectors - 1):
                store = f"@llvm.masked.store.v{n.lanes}f{8 * n.size}.p0"
                lines.append(
                    f"  call void {store}({n.vector} {value}, ptr %{p}p{at}, i32 {n.size}, <{n.lanes} x i1> %mask)"
                )
            else:
                how = f"align {n.lanes * n.size}, !nontemporal !0" if self.stream else f"align {n.size}"
                lines.append(f"  store {n.vector} {value}, ptr %{p}p{at}, {how}")
        return [*lines, "  br label %next"]


AHEAD = 4096  # bytes prefetched before they are copied: rows of images larger than the caches come from memory


class RowMover:
    """Copies of rows for blocks: `text` holds the kernels `copy`, `part` and `positions`, and for float32 `widened` and
    `narrowed`.

    `copy(to, x, n)` copies n elements; `part(to, other, x, n)` sends the even ones of 2 n to `to`, the odd ones to
    `other`; `positions(to, step, x, gap, n, valid)` copies n vectors from `gap` to `step` bytes apart, with zeros for
    all but the first `valid` elements; `widened` does so with vectors of bfloat16, which become float32, and `narrowed`
    rounds them on the way back (and writes `valid` elements).
    """

    __slots__ = ("copy", "kind", "lanes", "narrowed", "part", "positions", "widened")

    def __init__(self, kind: str, lanes: int) -> None:
        self.kind, self.lanes = kind, _Lanes(kind, lanes, False)
        self.copy, self.part, self.positions = (
            f"rl_row_{what}_{kind}_{lanes}" for what in ("copy", "part", "positions")
        )
        self.widened, self.narrowed = (f"rl_row_{what}_{lanes}" for what in ("widened", "narrowed"))

    @property
    def symbols(self) -> list[str]:
        """The symbols that `text` defines."""
        return [self.copy, self.part, self.positions, *([self.widened, self.narrowed] if self.kind == "f32" else [])]

    @property
    def text(self) -> str:
        n = self.lanes
        masked = f"{n.vector}, ptr, i32, <{n.lanes} x i1>"
        word = f"v{n.lanes}f{8 * n.size}.p0"
        lines = [
            f"declare void @llvm.masked.store.{word}({masked})",
            f"declare {n.vector} @llvm.masked.load.{word}(ptr, i32, <{n.lanes} x i1>, {n.vector})",
        ]
        lines += [
            *self._copy(n, word),
            *self._part(n, word),
            *self._positions(n, self.positions, n.size, lambda p: self._plain(n, p), n.vector),
        ]
        if self.kind == "f32":
            half = f"<{n.lanes} x i16>"
            lines += [
                f"declare {half} @llvm.masked.load.v{n.lanes}i16.p0(ptr, i32, <{n.lanes} x i1>, {half})",
                f"declare void @llvm.masked.store.v{n.lanes}i16.p0({half}, ptr, i32, <{n.lanes} x i1>)",
            ]
            lines += self._positions(n, self.widened, 2, lambda p: self._widen(n, p), n.vector)
            lines += self._positions(n, self.narrowed, n.size, lambda p: self._narrow(n, p), half)
        return "\n".join(lines)

    def _plain(self, n: _Lanes, p: str) -> list[str]:
        """Load %v from %q, whole or (loop "some") masked by %mask; names begin with `p`."""
        if p == "all":
            return n.load(f"%{p}v", f"%{p}q", 0)
        masked = f"@llvm.masked.load.v{n.lanes}f{8 * n.size}.p0(ptr %{p}q, i32 {n.size}, <{n.lanes} x i1> %mask, {n.vector} zeroinitializer)"
        return [f"  %{p}v = call {n.vector} {masked}"]

    def _widen(self, n: _Lanes, p: str) -> list[str]:
        word, half = f"<{n.lanes} x i32>", f"<{n.lanes} x i16>"
        read = f"load {half}, ptr %{p}q, align 2"
        if p != "all":
            read = f"call {half} @llvm.masked.load.v{n.lanes}i16.p0(ptr %{p}q, i32 2, <{n.lanes} x i1> %mask, {half} zeroinitializer)"
        return [
            f"  %{p}h = {read}",
            f"  %{p}w = zext {half} %{p}h to {word}",
            f"  %{p}u = shl {word} %{p}w, splat (i32 16)",
            f"  %{p}v = bitcast {word} %{p}u to {n.vector}",
        ]

    def _narrow(self, n: _Lanes, p: str) -> list[str]:
        """Round to nearest, ties to even; NaN stays NaN."""
        word = f"<{n.lanes} x i32>"
        return [
            *n.load(f"%{p}f", f"%{p}q", 0),
            f"  %{p}b = bitcast {n.vector} %{p}f to {word}",
            f"  %{p}s = lshr {word} %{p}b, splat (i32 16)",
            f"  %{p}last = and {word} %{p}s, splat (i32 1)",
            f"  %{p}half = add {word} %{p}last, splat (i32 32767)",
            f"  %{p}up = add {word} %{p}b, %{p}half",
            f"  %{p}cut = lshr {word} %{p}up, splat (i32 16)",
            f"  %{p}nan = fcmp uno {n.vector} %{p}f, %{p}f",
            f"  %{p}whole = select <{n.lanes} x i1> %{p}nan, {word} splat (i32 32704), {word} %{p}cut",
            f"  %{p}v = trunc {word} %{p}whole to <{n.lanes} x i16>",
        ]

    def _loop(self, n: _Lanes) -> list[str]:
        return [
            "entry:",
            f"  %whole = sdiv i64 %n, {n.lanes}",
            "  %any = icmp sgt i64 %whole, 0",
            "  br i1 %any, label %loop, label %rest",
            "loop:",
            "  %k = phi i64 [0, %entry], [%k1, %loop]",
            f"  %at = mul i64 %k, {n.lanes * n.size}",
            "  %p = getelementptr i8, ptr %to, i64 %at",
        ]

    def _next(self, n: _Lanes) -> list[str]:
        return [
            "  %k1 = add nuw nsw i64 %k, 1",
            "  %more = icmp slt i64 %k1, %whole",
            "  br i1 %more, label %loop, label %rest",
            "rest:",
            f"  %got = mul i64 %whole, {n.lanes}",
            "  %left = sub i64 %n, %got",
            "  %some = icmp sgt i64 %left, 0",
            "  br i1 %some, label %tail, label %done",
            "tail:",
            *n.mask("%mask", "%left"),
            f"  %off = mul i64 %got, {n.size}",
            "  %tp = getelementptr i8, ptr %to, i64 %off",
        ]

    def _positions(self, n: _Lanes, symbol: str, size: int, read: Callable[[str], list[str]], vector: str) -> list[str]:
        """Loops over positions, for whole and masked vectors: `read` lines load %v, of type `vector`, from %q; elements
        have `size` bytes."""
        return [
            f"define void @{symbol}(ptr noalias %to, i64 %step, ptr noalias %x, i64 %gap, i64 %n, i64 %valid) {{",
            "entry:",
            f"  %ahead = mul i64 %gap, {AHEAD // (n.lanes * size)}",
            *n.mask("%mask", "%valid"),
            "  %any = icmp sgt i64 %n, 0",
            "  br i1 %any, label %begin, label %done",
            "begin:",
            f"  %whole = icmp sge i64 %valid, {n.lanes}",
            "  br i1 %whole, label %all, label %some",
            *self._each_position(n, "all", read("all"), vector),
            *self._each_position(n, "some", read("some"), vector),
            "done:",
            "  ret void",
            "}",
        ]

    def _each_position(self, n: _Lanes, p: str, read: list[str], vector: str) -> list[str]:
        store = f"  store {vector} %{p}v, ptr %{p}p, align {2 if vector != n.vector else n.size}"
        if p != "all" and vector != n.vector:
            store = f"  call void @llvm.masked.store.v{n.lanes}i16.p0({vector} %{p}v, ptr %{p}p, i32 2, <{n.lanes} x i1> %mask)"
        return [
            f"{p}:",
            f"  %{p}k = phi i64 [0, %begin], [%{p}k1, %{p}]",
            f"  %{p}p = phi ptr [%to, %begin], [%{p}p1, %{p}]",
            f"  %{p}q = phi ptr [%x, %begin], [%{p}q1, %{p}]",
            *read,
            f"  %{p}soon = getelementptr i8, ptr %{p}q, i64 %ahead",
            f"  call void @llvm.prefetch.p0(ptr %{p}soon, i32 0, i32 3, i32 1)",
            store,
            f"  %{p}p1 = getelementptr i8, ptr %{p}p, i64 %step",
            f"  %{p}q1 = getelementptr i8, ptr %{p}q, i64 %gap",
            f"  %{p}k1 = add nuw nsw i64 %{p}k, 1",
            f"  %{p}more = icmp slt i64 %{p}k1, %n",
            f"  br i1 %{p}more, label %{p}, label %done",
        ]

    def _copy(self, n: _Lanes, word: str) -> list[str]:
        return [
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            f"define void @{self.copy}(ptr noalias %to, ptr noalias %x, i64 %n) {{",
            *self._loop(n),
            *n.load("%v", "%x", "%at"),
            f"  %soon = getelementptr i8, ptr %vp, i64 {AHEAD}",
            "  call void @llvm.prefetch.p0(ptr %soon, i32 0, i32 3, i32 1)",
            f"  store {n.vector} %v, ptr %p, align {n.size}",
            *self._next(n),
            "  %tx = getelementptr i8, ptr %x, i64 %off",
            f"  %tv = call {n.vector} @llvm.masked.load.{word}(ptr %tx, i32 {n.size}, <{n.lanes} x i1> %mask, {n.vector} zeroinitializer)",
            f"  call void @llvm.masked.store.{word}({n.vector} %tv, ptr %tp, i32 {n.size}, <{n.lanes} x i1> %mask)",
            "  br label %done",
            "done:",
            "  ret void",
            "}",
        ]

    def _part(self, n: _Lanes, word: str) -> list[str]:
        lanes = n.lanes
        even, odd = (", ".join(f"i32 {2 * k + first}" for k in range(lanes)) for first in (0, 1))
        both = ", ".join(f"i64 {k}" for k in range(lanes))
        high = ", ".join(f"i64 {k + lanes}" for k in range(lanes))
        shuffle = lambda to, a, b, which: (
            f"  {to} = shufflevector {n.vector} {a}, {n.vector} {b}, <{lanes} x i32> <{which}>"
        )
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
    """Sums over positions for the gradient by the weights: `text` is the LLVM text of its kernel, `symbol`.

    `symbol(x, pitch, phase, y, row, sums, other, count, valid)`: x points to the first input row as in `DirectTile`, y
    to `rows` rows of cotangents, `row` bytes apart, each of `count` vectors, of which `valid` lanes of the last are
    used.  The vectors at `sums`, one for each kernel row and column, grow by the products of cotangents and the inputs
    at their kernel tap.

    Where lanes are channels of groups of `mix`, there are `mix` sets of sums, `other` bytes apart: one for each channel
    that a group's lanes meet.
    """

    __slots__ = ("columns", "dilation", "height", "lanes", "mix", "rows", "stride", "symbol", "whole", "width")

    def __init__(self, kind: VectorKind, rows: int, window: Window, whole: bool, mix: int = 1) -> None:
        self.lanes, self.rows, self.whole, self.mix = _Lanes(*kind), rows, whole, mix
        self.height, self.width, self.stride, self.dilation, self.columns = window
        numbers = (kind.lanes, rows, *window[:4], int(whole), mix, *(v for column in self.columns for v in column))
        self.symbol = f"rl_weights_{kind.kind}_{'_'.join(map(str, numbers))}"

    @property
    def text(self) -> str:
        n = self.lanes
        lines = [
            n.declared,
            f"define void @{self.symbol}({', '.join(_SUM_ARGUMENTS)}) {{",
            "entry:",
            *(f"  %down{i} = mul i64 %pitch, {i}" for i in range((self.rows - 1) * self.stride + (self.height - 1) * self.dilation + 1)),
            *(f"  %over{r} = mul i64 %row, {r}" for r in range(self.rows)),
            f"  %cut = icmp slt i64 %valid, {n.lanes}", "  %less = zext i1 %cut to i64", "  %whole = sub i64 %count, %less",
            "  %any = icmp sgt i64 %whole, 0", *n.mask("%mask", "%valid"), "  br label %begin0",
            *(line for channel in range(self.mix) for line in self._channel(n, channel)), f"begin{self.mix}:", "  ret void", "}",
        ]  # fmt: skip
        return "\n".join(lines)

    def _channel(self, n: _Lanes, channel: int) -> list[str]:
        """The sums over a row, from label begin<channel> to the next."""
        block, c, step = [(k, j) for k in range(self.height) for j in range(self.width)], channel, n.lanes * n.size
        body, last = self._body(n, f"l{c}", {at: f"%a{c}_{at[0]}_{at[1]}" for at in block}, channel)
        rest, end = self._body(n, f"t{c}", {at: f"%f{c}_{at[0]}_{at[1]}" for at in block}, channel)
        columns = lambda word, value: (
            line
            for k, j in block
            for line in (
                f"  %{word}p{c}_{k}_{j} = getelementptr i8, ptr %sums{c}, i64 {step * (k * self.width + j)}",
                value(word, k, j),
            )
        )
        each = lambda name: (name.format(c=c, k=k, j=j, v=n.vector, last=last[k, j], end=end[k, j]) for k, j in block)
        return [
            f"begin{c}:", f"  %set{c} = mul i64 %other, {c}", f"  %sums{c} = getelementptr i8, ptr %sums, i64 %set{c}",
            *columns("s", lambda word, k, j: f"  %s{c}_{k}_{j} = load {n.vector}, ptr %sp{c}_{k}_{j}, align {n.size}"),
            f"  br i1 %any, label %loop{c}, label %end{c}", f"loop{c}:",
            f"  %n{c} = phi i64 [0, %begin{c}], [%m{c}, %loop{c}]", f"  %herel{c} = phi ptr [%x, %begin{c}], [%next{c}, %loop{c}]",
            f"  %yl{c} = phi ptr [%y, %begin{c}], [%z{c}, %loop{c}]", *each("  %a{c}_{k}_{j} = phi {v} [%s{c}_{k}_{j}, %begin{c}], [{last}, %loop{c}]"),
            *body, f"  %next{c} = getelementptr i8, ptr %herel{c}, i64 {step}", f"  %z{c} = getelementptr i8, ptr %yl{c}, i64 {step}",
            f"  %m{c} = add nuw nsw i64 %n{c}, 1", f"  %more{c} = icmp slt i64 %m{c}, %whole", f"  br i1 %more{c}, label %loop{c}, label %end{c}",
            f"end{c}:", f"  %heret{c} = phi ptr [%x, %begin{c}], [%next{c}, %loop{c}]", f"  %yt{c} = phi ptr [%y, %begin{c}], [%z{c}, %loop{c}]",
            *each("  %f{c}_{k}_{j} = phi {v} [%s{c}_{k}_{j}, %begin{c}], [{last}, %loop{c}]"),
            f"  br i1 %cut, label %tail{c}, label %done{c}", f"tail{c}:", *rest, f"  br label %done{c}", f"done{c}:",
            *each("  %z{c}_{k}_{j} = phi {v} [%f{c}_{k}_{j}, %end{c}], [{end}, %tail{c}]"),
            *columns("d", lambda word, k, j: f"  store {n.vector} %z{c}_{k}_{j}, ptr %dp{c}_{k}_{j}, align {n.size}"), f"  br label %begin{c + 1}",
        ]  # fmt: skip

    def _body(
        self, n: _Lanes, word: str, last: dict[tuple[int, int], str], channel: int
    ) -> tuple[list[str], dict[tuple[int, int], str]]:
        """The products of one vector of each row; of some of its lanes in the tail."""
        lines = [line for r in range(self.rows) for line in n.load(f"%c{word}_{r}", "%y" + word, f"%over{r}")]
        for i in range((self.rows - 1) * self.stride + (self.height - 1) * self.dilation + 1):
            served = _served(i, self.rows, self.stride, self.height, self.dilation)
            loaded: set[str] = set()
            if served:
                lines.append(f"  %row{word}_{i} = getelementptr i8, ptr %here{word}, i64 %down{i}")
            for j in range(self.width if served else 0):
                name = f"%x{word}_{i}_{j}"
                lines += _shifted(n, f"{word}_{i}", self.columns[j], name, self.whole, loaded)
                if word[0] == "t":
                    lines.append(
                        f"  {name}k = select <{n.lanes} x i1> %mask, {n.vector} {name}, {n.vector} zeroinitializer"
                    )
                    name += "k"
                if self.mix > 1:
                    lines.append(n.of_group(f"{name}g", name, self.mix, channel))
                    name += "g"
                for r, k in served:
                    to = f"%p{word}_{k}_{j}_{i}"
                    lines += n.multiply_add(to, name, f"%c{word}_{r}", last[k, j])
                    last[k, j] = to
        return lines, last
