"""Panels for the tile of a matrix product, gathered from an image: the packing of a convolution, as LLVM text.

A panel [k][width] holds for each step k the elements at `slab + offsets[k] + position`, for `width` positions.
Contiguous positions are moved as whole vectors, in increasing order: the next vector, or the next step, overwrites what
a vector writes beyond its run.  So nothing is masked, and any width and any run of positions will do; room for one
vector follows the panel.
"""

from __future__ import annotations

from rushlight._backends.cpu.microkernels.register_tile import RegisterTile

__all__ = ["Apart", "Every", "PanelGather", "Spaced"]

_ELEMENTS = {"f32": ("float", 4), "f64": ("double", 8), "bf16": ("i16", 2)}
_UNROLLED = 4  # unrolled moves for each step; more of them run in a loop


class PanelGather:
    """The gathering of panels `width` wide for tiles like `tile`; `text` is the LLVM text of `symbol`.

    `symbol(panel, slab, offsets, k, moves, n)`: `offsets` are k offsets in bytes, `moves` n pairs (from, to), also in
    bytes, each of which moves `lanes` elements.  For kind "bf16" the panel is [k / 2][width][2], and for odd k the last
    step is paired with zeros.
    """

    __slots__ = ("kind", "lanes", "symbol", "width")

    def __init__(self, tile: RegisterTile, width: int, lanes: int = 0) -> None:
        self.kind, self.lanes, self.width = tile.kind, lanes or tile.lanes, width
        self.symbol = f"rl_gather_{self.kind}_{width}_{self.lanes}"

    @property
    def paired(self) -> bool:
        """Whether two steps are interleaved."""
        return self.kind == "bf16"

    @property
    def text(self) -> str:
        """The function: one loop over k for each small number of moves, and one with a loop over moves inside."""
        cases = " ".join(f"i64 {n}, label %few{n}" for n in range(1, _UNROLLED + 1))
        lines = [
            f"define void @{self.symbol}(ptr noalias %panel, ptr noalias %slab, ptr noalias %offsets, i64 %k, ptr noalias %moves, i64 %n) {{",
            "entry:",
            f"  %count = {'lshr i64 %k, 1' if self.paired else 'add i64 %k, 0'}",
            "  %none = icmp eq i64 %count, 0",
            "  br i1 %none, label %rest, label %some",
            "some:",
            f"  switch i64 %n, label %many [ {cases} ]",
        ]
        for n in range(1, _UNROLLED + 1):
            lines += self._few(n)
        return "\n".join([*lines, *self._many(), *self._rest(), "}"])

    def _bases(self, p: str, step: str) -> list[str]:
        """The base (or both) of the step, and its destination."""
        _, size = _ELEMENTS[self.kind]
        lines = [f"  %{p}out = phi ptr [%panel, %{p}entry], [%{p}out1, %{p}next]"]
        for i in range(2 if self.paired else 1):
            at = f"%{p}at{i}"
            scaled = (
                f"  {at} = mul i64 {step}, 2"
                if self.paired and i == 0
                else f"  {at} = add i64 {'%' + p + 'at0, 1' if i else step + ', 0'}"
            )
            lines += [
                scaled,
                f"  %{p}po{i} = getelementptr i64, ptr %offsets, i64 {at}",
                f"  %{p}o{i} = load i64, ptr %{p}po{i}, align 8",
                f"  %{p}base{i} = getelementptr i8, ptr %slab, i64 %{p}o{i}",
            ]
        lines.append(f"  %{p}out1 = getelementptr i8, ptr %{p}out, i64 {self.width * size * (2 if self.paired else 1)}")
        return lines

    def _move(self, p: str, m: str, source: str, target: str, alone: bool = False) -> list[str]:
        """Move one vector (for both steps of a pair) from the base to the panel; `alone`: zeros replace the second
        step."""
        element, size = _ELEMENTS[self.kind]
        vector = f"<{self.lanes} x {element}>"
        lines = []
        for i in range(1 if alone or not self.paired else 2):
            lines += [
                f"  %{m}from{i} = getelementptr i8, ptr %{p}base{i}, i64 {source}",
                f"  %{m}v{i} = load {vector}, ptr %{m}from{i}, align {size}",
            ]
        value, whole = f"%{m}v0", vector
        if self.paired:
            mask = ", ".join(f"i32 {n // 2 + (self.lanes if n % 2 else 0)}" for n in range(2 * self.lanes))
            second = "zeroinitializer" if alone else f"%{m}v1"
            value, whole = f"%{m}both", f"<{2 * self.lanes} x {element}>"
            lines.append(
                f"  {value} = shufflevector {vector} %{m}v0, {vector} {second}, <{2 * self.lanes} x i32> <{mask}>"
            )
        return [
            *lines,
            f"  %{m}to = getelementptr i8, ptr %{p}out, i64 {target}",
            f"  store {whole} {value}, ptr %{m}to, align {size}",
        ]

    def _load_move(self, m: str, number: str) -> list[str]:
        return [
            f"  %{m}pair = getelementptr {{i64, i64}}, ptr %moves, i64 {number}",
            f"  %{m}src = load i64, ptr %{m}pair, align 8",
            f"  %{m}second = getelementptr i8, ptr %{m}pair, i64 8",
            f"  %{m}dst = load i64, ptr %{m}second, align 8",
        ]

    def _few(self, n: int) -> list[str]:
        p = f"f{n}"
        lines = [f"few{n}:", *(line for i in range(n) for line in self._load_move(f"{p}m{i}", str(i)))]
        lines += [f"  br label %{p}entry", f"{p}entry:", f"  br label %{p}loop", f"{p}loop:"]
        lines.append(f"  %{p}step = phi i64 [0, %{p}entry], [%{p}step1, %{p}next]")
        lines += self._bases(p, f"%{p}step")
        for i in range(n):
            lines += self._move(p, f"{p}m{i}", f"%{p}m{i}src", f"%{p}m{i}dst")
        return [
            *lines,
            f"  br label %{p}next",
            f"{p}next:",
            f"  %{p}step1 = add nuw nsw i64 %{p}step, 1",
            f"  %{p}more = icmp slt i64 %{p}step1, %count",
            f"  br i1 %{p}more, label %{p}loop, label %rest",
        ]

    def _many(self) -> list[str]:
        return [
            "many:",
            "  br label %gentry",
            "gentry:",
            "  br label %gloop",
            "gloop:",
            "  %gstep = phi i64 [0, %gentry], [%gstep1, %gnext]",
            *self._bases("g", "%gstep"),
            *self._inner("g", "gnext", False),
            "gnext:",
            "  %gstep1 = add nuw nsw i64 %gstep, 1",
            "  %gmore = icmp slt i64 %gstep1, %count",
            "  br i1 %gmore, label %gloop, label %rest",
        ]

    def _inner(self, p: str, after: str, alone: bool) -> list[str]:
        """A loop over all moves of one step."""
        return [
            f"  br label %{p}first",
            f"{p}first:",
            f"  br label %{p}inner",
            f"{p}inner:",
            f"  %{p}i = phi i64 [0, %{p}first], [%{p}i1, %{p}inner]",
            *self._load_move(f"{p}m", f"%{p}i"),
            *self._move(p, f"{p}m", f"%{p}msrc", f"%{p}mdst", alone),
            f"  %{p}i1 = add nuw nsw i64 %{p}i, 1",
            f"  %{p}again = icmp slt i64 %{p}i1, %n",
            f"  br i1 %{p}again, label %{p}inner, label %{after}",
        ]

    def _rest(self) -> list[str]:
        """The last of an odd number of steps, paired with zeros."""
        if not self.paired:
            return ["rest:", "  ret void"]
        _, size = _ELEMENTS[self.kind]
        return [
            "rest:",
            "  %odd = and i64 %k, 1",
            "  %even = icmp eq i64 %odd, 0",
            "  br i1 %even, label %done, label %last",
            "last:",
            "  %lastk = sub i64 %k, 1",
            "  %lpo = getelementptr i64, ptr %offsets, i64 %lastk",
            "  %lo = load i64, ptr %lpo, align 8",
            "  %lbase0 = getelementptr i8, ptr %slab, i64 %lo",
            f"  %loffset = mul i64 %count, {2 * self.width * size}",
            "  %lout = getelementptr i8, ptr %panel, i64 %loffset",
            *self._inner("l", "done", True),
            "done:",
            "  ret void",
        ]


class Every:
    """Every second element: `symbol(out, x, n)` copies element 2 i of x, of `size` bytes, to element i of out, and
    reads nothing beyond the last."""

    __slots__ = ("lanes", "size", "symbol")

    def __init__(self, size: int, vector_bytes: int) -> None:
        self.size, self.lanes, self.symbol = size, max(min(vector_bytes, 32) // size, 2), f"rl_every_second_{size}"

    @property
    def text(self) -> str:
        n, element = self.lanes, f"i{8 * self.size}"
        vector, mask = f"<{2 * n} x {element}>", ", ".join(f"i32 {2 * i}" for i in range(n))
        return "\n".join(
            [
                f"define void @{self.symbol}(ptr noalias %out, ptr noalias %x, i64 %n) {{",
                "entry:",
                f"  %most = sub i64 %n, {n + 1}",  # the vector that ends with the last element would read one more
                "  br label %check",
                "check:",
                "  %i = phi i64 [0, %entry], [%i1, %loop]",
                "  %go = icmp sle i64 %i, %most",
                "  br i1 %go, label %loop, label %singles",
                "loop:",
                "  %at = mul i64 %i, 2",
                f"  %p = getelementptr {element}, ptr %x, i64 %at",
                f"  %v = load {vector}, ptr %p, align {self.size}",
                f"  %e = shufflevector {vector} %v, {vector} poison, <{n} x i32> <{mask}>",
                f"  %q = getelementptr {element}, ptr %out, i64 %i",
                f"  store <{n} x {element}> %e, ptr %q, align {self.size}",
                f"  %i1 = add nsw i64 %i, {n}",
                "  br label %check",
                "singles:",
                "  %j = phi i64 [%i, %check], [%j1, %single]",
                "  %more = icmp slt i64 %j, %n",
                "  br i1 %more, label %single, label %done",
                "single:",
                "  %jat = mul i64 %j, 2",
                f"  %jp = getelementptr {element}, ptr %x, i64 %jat",
                f"  %jv = load {element}, ptr %jp, align {self.size}",
                f"  %jq = getelementptr {element}, ptr %out, i64 %j",
                f"  store {element} %jv, ptr %jq, align {self.size}",
                "  %j1 = add nsw i64 %j, 1",
                "  br label %singles",
                "done:",
                "  ret void",
                "}",
            ]
        )


class Spaced:
    """Padding of channels: `symbol(out, x, n)` copies n positions of `channels` contiguous two-byte elements to
    positions of `padded`, a power of two, with zeros behind them, and reads and writes nothing else."""

    __slots__ = ("given", "held", "lanes", "symbol")

    def __init__(self, channels: int, padded: int, vector_bytes: int) -> None:
        self.given, self.held, self.lanes, self.symbol = (
            channels,
            padded,
            vector_bytes // 2,
            f"rl_spaced_{channels}_{padded}",
        )

    @property
    def text(self) -> str:
        n, channels, padded = self.lanes, self.given, self.held
        vector, positions = f"<{n} x i16>", self.lanes // padded
        mask = ", ".join(f"i32 {i // padded * channels + i % padded if i % padded < channels else n}" for i in range(n))
        return "\n".join(
            [
                f"define void @{self.symbol}(ptr noalias %out, ptr noalias %x, i64 %n) {{",
                "entry:",
                f"  %most = sub i64 %n, {-(-n // channels)}",  # a vector covers more than the positions computed from it
                "  br label %check",
                "check:",
                "  %i = phi i64 [0, %entry], [%i1, %loop]",
                "  %go = icmp sle i64 %i, %most",
                "  br i1 %go, label %loop, label %singles",
                "loop:",
                f"  %at = mul i64 %i, {2 * channels}",
                "  %p = getelementptr i8, ptr %x, i64 %at",
                f"  %v = load {vector}, ptr %p, align 2",
                f"  %s = shufflevector {vector} %v, {vector} zeroinitializer, <{n} x i32> <{mask}>",
                f"  %to = mul i64 %i, {2 * padded}",
                "  %q = getelementptr i8, ptr %out, i64 %to",
                f"  store {vector} %s, ptr %q, align 2",
                f"  %i1 = add nsw i64 %i, {positions}",
                "  br label %check",
                "singles:",
                "  %j = phi i64 [%i, %check], [%j1, %single]",
                "  %more = icmp slt i64 %j, %n",
                "  br i1 %more, label %single, label %done",
                "single:",
                f"  %jat = mul i64 %j, {2 * channels}",
                "  %jp = getelementptr i8, ptr %x, i64 %jat",
                f"  %jto = mul i64 %j, {2 * padded}",
                "  %jq = getelementptr i8, ptr %out, i64 %jto",
                *(line for c in range(padded) for line in self._single(c)),
                "  %j1 = add nsw i64 %j, 1",
                "  br label %singles",
                "done:",
                "  ret void",
                "}",
            ]
        )

    def _single(self, c: int) -> list[str]:
        """One element of a position."""
        read = (
            [f"  %jp{c} = getelementptr i16, ptr %jp, i64 {c}", f"  %jv{c} = load i16, ptr %jp{c}, align 2"]
            if c < self.given
            else []
        )
        value = f"%jv{c}" if c < self.given else "0"
        return [*read, f"  %jq{c} = getelementptr i16, ptr %jq, i64 {c}", f"  store i16 {value}, ptr %jq{c}, align 2"]


class Apart:
    """Strided stores: `symbol(out, x, n, add)` writes n contiguous floats of `kind`, plus `add`, `step` apart, and
    nothing between them, by masked vectors; for machines with fast masked stores."""

    __slots__ = ("kind", "lanes", "step", "symbol")

    def __init__(self, kind: str, lanes: int, step: int) -> None:
        self.kind, self.lanes, self.step, self.symbol = kind, lanes, step, f"rl_apart_{kind}_{lanes}_{step}"

    @property
    def text(self) -> str:
        n, step = self.lanes, self.step
        element, size = ("double", 8) if self.kind == "f64" else ("float", 4)
        vector, masked = f"<{n} x {element}>", f"@llvm.masked.store.v{n}f{8 * size}.p0"
        return "\n".join([
            f"declare void {masked}({vector}, ptr, i32, <{n} x i1>)",
            f"define void @{self.symbol}(ptr noalias %out, ptr noalias %x, i64 %n, {element} %add) {{",
            "entry:",
            f"  %one = insertelement {vector} poison, {element} %add, i64 0",
            f"  %added = shufflevector {vector} %one, {vector} poison, <{n} x i32> zeroinitializer",
            f"  %most = sub i64 %n, {n}", "  br label %check", "check:",
            "  %i = phi i64 [0, %entry], [%i1, %loop]", "  %go = icmp sle i64 %i, %most", "  br i1 %go, label %loop, label %singles", "loop:",
            f"  %p = getelementptr {element}, ptr %x, i64 %i", f"  %v = load {vector}, ptr %p, align {size}", f"  %z = fadd {vector} %v, %added",
            f"  %to = mul i64 %i, {size * step}", "  %q = getelementptr i8, ptr %out, i64 %to",
            *(line for k in range(step) for line in self._part(k, vector, masked, size)),
            f"  %i1 = add nsw i64 %i, {n}", "  br label %check", "singles:",
            "  %j = phi i64 [%i, %check], [%j1, %single]", "  %more = icmp slt i64 %j, %n", "  br i1 %more, label %single, label %done", "single:",
            f"  %jp = getelementptr {element}, ptr %x, i64 %j", f"  %jv = load {element}, ptr %jp, align {size}", f"  %jz = fadd {element} %jv, %add",
            f"  %jto = mul i64 %j, {size * step}", "  %jq = getelementptr i8, ptr %out, i64 %jto", f"  store {element} %jz, ptr %jq, align {size}",
            "  %j1 = add nsw i64 %j, 1", "  br label %singles", "done:", "  ret void", "}",
        ])  # fmt: skip

    def _part(self, k: int, vector: str, masked: str, size: int) -> list[str]:
        """One vector of the output, with the elements that belong in it."""
        n, step = self.lanes, self.step
        positions = range(k * n, (k + 1) * n)
        chosen = ", ".join(f"i32 {at // step}" if at % step == 0 else "i32 poison" for at in positions)
        there = ", ".join(f"i1 {int(at % step == 0)}" for at in positions)
        return [
            f"  %s{k} = shufflevector {vector} %z, {vector} poison, <{n} x i32> <{chosen}>",
            f"  %q{k} = getelementptr i8, ptr %q, i64 {k * n * size}",
            f"  call void {masked}({vector} %s{k}, ptr %q{k}, i32 {size}, <{n} x i1> <{there}>)",
        ]
