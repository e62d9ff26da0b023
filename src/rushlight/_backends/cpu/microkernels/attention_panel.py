"""Softmax on panels of scores, as LLVM text: the work of attention between its matrix products.

A panel holds the scores of a few keys for as many queries as a tile has columns: [keys][queries].  A query is a lane,
so its maximum and its sum need no work across lanes, and the weights have the layout of a product's second operand.
The online softmax is Milakov and Gimelshein's ("Online normalizer calculation for softmax", 2018), as in FlashAttention
(Dao et al., 2022, algorithm 1).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rushlight._backends.cpu.microkernels.kernel_text import KernelText
from rushlight._base.lazy import LazyModule
from rushlight._types.dtype import FLOAT32, FLOAT64

if TYPE_CHECKING:
    from rushlight._codegen.scalar import coefficients, emitter, writer
    from rushlight._codegen.scalar.writer import Val
else:
    emitter = LazyModule("rushlight._codegen.scalar.emitter")  # not needed for kernels loaded from disk
    coefficients = LazyModule("rushlight._codegen.scalar.coefficients")
    writer = LazyModule("rushlight._codegen.scalar.writer")

__all__ = ["MASKS", "AttentionPanel"]

# No mask; keys up to the query; a bias is added; a negative bias excludes the key
MASKS = ("plain", "causal", "add", "pick")
_REAL = {"f32": FLOAT32, "f64": FLOAT64}
_LLVM = {"f32": "float", "f64": "double"}


class AttentionPanel(KernelText):
    """The functions of panels whose rows are `vectors` vectors of `lanes` numbers of `kind` ("f32", "f64"); `text`
    defines them.

    S is a panel of n rows; top, total, norm, ... have one number a query; all are aligned to vectors.

    - `peak_MASK(S, n, scale, top, bias, shift)`: S becomes the masked scores S * scale; top the maximum of these and of
      its old value.  `bias` is a panel; key j of the panel counts for query i where j <= i + shift ("causal").
    - `weigh(S, n, top, before, total, factor)`: S becomes exp(S - top); total is rescaled from the maximum `before` to
      `top` and the sums are added; factor: the factor of that rescaling, for other sums; returns whether any factor
      differs from 1.
    - `rescale(O, n, factor)`: O[j] *= factor.
    - `finish(O, n, top, total, norm)`: O[j] /= total; norm = log(total) + top, or inf where every key is excluded.
    - `again_MASK(S, n, scale, norm, bias, shift)`: S becomes exp(S * scale - norm), masked as above.
    - `slope(S, G, n, delta, scale)`: G = S * (G - delta) * scale.
    - `allow(out, x, n)`: n bools as numbers to add: 0 or -inf.
    - `closed(B, n)`: whether a panel of numbers to add excludes every key for every query: whether all of it is -inf.

    With `tiles`, for products by matrix tiles (see `amx_tile`) and an even n, results are bfloat16 as those take them:
    *rows* of a panel as 64 bytes each, or *pairs* of neighbouring rows as words.  Subnormal numbers become zero, and
    exp is 2**y with y a rounded product: its relative error is below 2**-23 (|y| + 1).

    - `weigh_pairs(S, n, top, before, total, factor, pairs)`: `weigh`, but the weights become pairs.
    - `slopes_MASK(S, G, n, scale, norm, delta, bias, shift, weights, rows, pairs)`: the weights of `again_MASK` as
      rows, their slopes (`slope`) as rows and as pairs.
    """

    def __init__(self, kind: str, lanes: int, vectors: int, fma: bool, tiles: bool = False) -> None:
        self.kind, self.lanes, self.vectors, self.fma, self.tiles = kind, lanes, vectors, fma, tiles
        self.real, self.size = _LLVM[kind], 4 if kind == "f32" else 8
        self.prefix = f"rl_panel_{kind}_"

    @property
    def key(self) -> str:
        return f"{self.prefix} {self.lanes} {self.vectors} {self.fma}{' tiles' if self.tiles else ''}"

    @property
    def symbols(self) -> tuple[str, ...]:
        names = [
            *(f"{part}_{mask}" for part in ("peak", "again") for mask in MASKS),
            "weigh",
            "rescale",
            "finish",
            "slope",
            "allow",
            "closed",
            *(("weigh_pairs", *(f"slopes_{mask}" for mask in MASKS)) if self.tiles else ()),
        ]
        return tuple([self.prefix + name for name in names])

    @property
    def text(self) -> str:
        return _Functions(self).text()


class _Functions:
    """Emits the functions of panels."""

    def __init__(self, panel: AttentionPanel) -> None:
        self.panel, self.real, self.vectors = panel, panel.real, panel.vectors
        self.module = writer.ModuleText()

    def text(self) -> str:
        parts = [self._peak(mask) for mask in MASKS] + [self._again(mask) for mask in MASKS]
        parts += [self._weigh(), self._rescale(), self._finish(), self._slope(), self._allow(), self._closed()]
        if self.panel.tiles:
            parts += [self._weigh_pairs(), *(self._slopes(mask) for mask in MASKS)]
        return "\n".join([str(self.module), *parts])

    # ***** the parts *****

    def _peak(self, mask: str) -> str:
        f = _Function(
            self.panel,
            self.module,
            f"peak_{mask}",
            f"ptr %S, i64 %n, {self.real} %scale, ptr %top, ptr %bias, i64 %shift",
        )
        scale = f.em.splat("%scale", self.real)
        tops = f.load_all("%top")

        def row(tops: list[Val]) -> list[Val]:
            maxima = []
            for v, top in enumerate(tops):
                x = f.masked(mask, f.load_row("%S", v) * scale, v)
                f.store_row(x, "%S", v)
                maxima.append(f.em.select(x.gt(top), x, top))
            return maxima

        f.store_all(f.rows(tops, row), "%top")
        return f.text()

    def _again(self, mask: str) -> str:
        f = _Function(
            self.panel,
            self.module,
            f"again_{mask}",
            f"ptr %S, i64 %n, {self.real} %scale, ptr %norm, ptr %bias, i64 %shift",
        )
        scale = f.em.splat("%scale", self.real)
        norms = f.load_all("%norm")

        def row(state: list[Val]) -> list[Val]:
            for v, norm in enumerate(norms):
                f.store_row(f.exp(f.masked(mask, f.load_row("%S", v) * scale, v) - norm), "%S", v)
            return []

        f.rows([], row)
        return f.text()

    def _weigh(self) -> str:
        f = _Function(
            self.panel, self.module, "weigh", "ptr %S, i64 %n, ptr %top, ptr %before, ptr %total, ptr %factor", "i32"
        )
        tops, before = f.load_all("%top"), f.load_all("%before")
        bases = [f.em.select(top.eq(-math.inf), 0.0, top) for top in tops]
        factors = [f.exp(old - base) for old, base in zip(before, bases, strict=True)]
        f.store_all(factors, "%factor")
        f.store_all(tops, "%before")

        def row(totals: list[Val]) -> list[Val]:
            sums = []
            for v, total in enumerate(totals):
                x = f.exp(f.load_row("%S", v) - bases[v])
                f.store_row(x, "%S", v)
                sums.append(total + x)
            return sums

        sums = f.rows([f.em.const(self.real, 0.0)] * self.vectors, row)
        f.store_all(
            [f.em.fma(total, factor, x) for total, factor, x in zip(f.load_all("%total"), factors, sums, strict=True)],
            "%total",
        )
        return f.text(f"i32 {f.any([factor.ne(1.0) for factor in factors])}")

    def _weigh_pairs(self) -> str:
        f = _Function(
            self.panel,
            self.module,
            "weigh_pairs",
            "ptr %S, i64 %n, ptr %top, ptr %before, ptr %total, ptr %factor, ptr %pairs",
            "i32",
        )
        n, tops, before = self.vectors, f.load_all("%top"), f.load_all("%before")
        bases = [f.em.select(top.eq(-math.inf), 0.0, top) for top in tops]
        factors = [f.exp(old - base) for old, base in zip(before, bases, strict=True)]
        f.store_all(factors, "%factor")
        f.store_all(tops, "%before")

        def rows(totals: list[Val]) -> list[Val]:
            weights = [f.exp_lite(f.load_row("%S", v) - bases[v % n]) for v in range(2 * n)]
            for v in range(n):
                f.store_pairs(weights[v], weights[n + v], "%pairs", v)
            return [total + x for total, x in zip(totals, weights, strict=True)]

        sums = f.rows([f.em.const(self.real, 0.0)] * (2 * n), rows, 2)
        f.store_all(
            [f.em.fma(total, factors[v], sums[v] + sums[n + v]) for v, total in enumerate(f.load_all("%total"))],
            "%total",
        )
        return f.text(f"i32 {f.any([factor.ne(1.0) for factor in factors])}")

    def _slopes(self, mask: str) -> str:
        f = _Function(
            self.panel,
            self.module,
            f"slopes_{mask}",
            f"ptr %S, ptr %G, i64 %n, {self.real} %scale, ptr %norm, ptr %delta, ptr %bias, i64 %shift, "
            "ptr %weights, ptr %rows, ptr %pairs",
        )
        n, scale = self.vectors, f.em.splat("%scale", self.real)
        norms, deltas = f.load_all("%norm"), f.load_all("%delta")

        def rows(state: list[Val]) -> list[Val]:
            weights = [f.exp_lite(f.masked(mask, f.load_row("%S", v) * scale, v) - norms[v % n]) for v in range(2 * n)]
            slopes = [x * (f.load_row("%G", v) - deltas[v % n]) * scale for v, x in enumerate(weights)]
            for v in (0, n):
                f.store_rounded(weights[v], weights[v + 1], "%weights", v)
                f.store_rounded(slopes[v], slopes[v + 1], "%rows", v)
            for v in range(n):
                f.store_pairs(slopes[v], slopes[n + v], "%pairs", v)
            return []

        f.rows([], rows, 2)
        return f.text()

    def _rescale(self) -> str:
        f = _Function(self.panel, self.module, "rescale", "ptr %O, i64 %n, ptr %factor")
        factors = f.load_all("%factor")

        def row(state: list[Val]) -> list[Val]:
            for v, factor in enumerate(factors):
                f.store_row(f.load_row("%O", v) * factor, "%O", v)
            return []

        f.rows([], row)
        return f.text()

    def _finish(self) -> str:
        f = _Function(self.panel, self.module, "finish", "ptr %O, i64 %n, ptr %top, ptr %total, ptr %norm")
        dtype = _REAL[self.panel.kind]
        tops = f.load_all("%top")
        dead = [top.eq(-math.inf) for top in tops]
        totals = [f.em.select(d, 1.0, total) for d, total in zip(dead, f.load_all("%total"), strict=True)]
        logs = [f.em.op("log", [total], [dtype], dtype) for total in totals]
        norms = [f.em.select(d, math.inf, log + top) for d, log, top in zip(dead, logs, tops, strict=True)]  # type: ignore[operator]
        f.store_all(norms, "%norm")

        def row(state: list[Val]) -> list[Val]:
            for v, total in enumerate(totals):
                f.store_row(f.load_row("%O", v) / total, "%O", v)
            return []

        f.rows([], row)
        return f.text()

    def _slope(self) -> str:
        f = _Function(self.panel, self.module, "slope", f"ptr %S, ptr %G, i64 %n, ptr %delta, {self.real} %scale")
        scale = f.em.splat("%scale", self.real)
        deltas = f.load_all("%delta")

        def row(state: list[Val]) -> list[Val]:
            for v, delta in enumerate(deltas):
                f.store_row(f.load_row("%S", v) * (f.load_row("%G", v) - delta) * scale, "%G", v)
            return []

        f.rows([], row)
        return f.text()

    def _closed(self) -> str:
        f = _Function(self.panel, self.module, "closed", "ptr %B, i64 %n", "i32")

        def row(state: list[Val]) -> list[Val]:
            return [f.em.select(f.load_row("%B", v).eq(-math.inf), open_, 1.0) for v, open_ in enumerate(state)]

        opened = f.rows([f.em.const(self.real, 0.0)] * self.vectors, row)
        any_open = f.any([x.ne(0.0) for x in opened])
        f.em.lines.append(f"  %closed = xor i32 {any_open}, 1")
        return f.text("i32 %closed")

    def _allow(self) -> str:
        """Whole vectors, then single elements."""
        p, lines = self.panel, []
        for width, here, after in ((p.lanes, "a", "b"), (1, "b", "done")):
            em = emitter.Emitter(width, self.module, fma=p.fma, prefix=here)
            i, bools = f"%i{here}", em.vt("i8")
            kept = em.val(str(em.emit(f"load {bools}, ptr %x{here}, align 1", "i8")), "i8").ne(0)
            number = em.select(kept, em.const(self.real, 0.0), -math.inf)
            start, stop, before = ("0", "%whole", "entry") if here == "a" else ("%whole", "%n", "a")
            lines += [f"{here}:", f"  {i} = phi i64 [{start}, %{before}], [{i}n, %{here}.body]"]
            lines += [
                f"  {i}m = icmp slt i64 {i}, {stop}",
                f"  br i1 {i}m, label %{here}.body, label %{after}",
                f"{here}.body:",
            ]
            lines += [
                f"  %x{here} = getelementptr i8, ptr %x, i64 {i}",
                *em.lines,
                f"  %o{here} = getelementptr {self.real}, ptr %out, i64 {i}",
            ]
            lines += [
                f"  store {number.vt} {number}, ptr %o{here}, align {p.size}",
                f"  {i}n = add i64 {i}, {width}",
                f"  br label %{here}",
            ]
        head = [
            f"define void @{p.prefix}allow(ptr %out, ptr %x, i64 %n) nounwind {{",
            "entry:",
            f"  %whole = and i64 %n, {-p.lanes}",
            "  br label %a",
        ]
        return "\n".join([*head, *lines, "done:", "  ret void", "}"])


class _Function:
    """The emitter of one function over the rows of panels."""

    def __init__(
        self, panel: AttentionPanel, module: writer.ModuleText, name: str, parameters: str, result: str = "void"
    ) -> None:
        self.panel, self.result = panel, result
        self.head = f"define {result} @{panel.prefix}{name}({parameters}) nounwind {{\nentry:"
        self.em = emitter.Emitter(panel.lanes, module, fma=panel.fma)

    def _address(self, base: str, offset: str) -> str:
        return str(self.em.emit(f"getelementptr {self.panel.real}, ptr {base}, i64 {offset}", "ptr"))

    def _load(self, address: str) -> Val:
        p = self.panel
        return self.em.emit(f"load {self.em.vt(p.real)}, ptr {address}, align {p.size}", p.real)

    def _store(self, x: Val, address: str) -> None:
        self.em.lines.append(f"  store {x.vt} {x}, ptr {address}, align {self.panel.size}")

    def load_all(self, base: str) -> list[Val]:
        """Load one number a query."""
        return [self._load(self._address(base, str(v * self.panel.lanes))) for v in range(self.panel.vectors)]

    def store_all(self, values: Sequence[Val], base: str) -> None:
        for v, x in enumerate(values):
            self._store(x, self._address(base, str(v * self.panel.lanes)))

    def _row(self, base: str, v: int) -> str:
        return self._address(self._address(base, "%at"), str(v * self.panel.lanes))

    def load_row(self, base: str, v: int) -> Val:
        """Load vector v of the current row."""
        return self._load(self._row(base, v))

    def store_row(self, x: Val, base: str, v: int) -> None:
        self._store(x, self._row(base, v))

    def rounded(self, low: Val, high: Val) -> Val:
        """Two vectors as one of bfloat16."""
        name, wide = "@llvm.x86.avx512bf16.cvtne2ps2bf16.512", low.vt
        self.em.module.declarations.setdefault(name, f"declare <32 x bfloat> {name}({wide}, {wide})")
        return self.em.at(32).emit(f"call <32 x bfloat> {name}({wide} {high}, {wide} {low})", "bfloat")

    def store_rounded(self, low: Val, high: Val, base: str, v: int) -> None:
        """Store two vectors of the current row as bfloat16; v counts vectors of numbers."""
        at = self._half_address(base, v)
        self.em.lines.append(f"  store <32 x bfloat> {self.rounded(low, high)}, ptr {at}, align 64")

    def store_pairs(self, even: Val, odd: Val, base: str, v: int) -> None:
        """Store vector v of two neighbouring rows as words of two bfloat16."""
        both, mask = self.rounded(even, odd), ", ".join(f"i32 {i // 2 + i % 2 * 16}" for i in range(32))
        words = self.em.at(32).emit(
            f"shufflevector <32 x bfloat> {both}, <32 x bfloat> poison, <32 x i32> <{mask}>", "bfloat"
        )
        at = self._half_address(base, 2 * v)
        self.em.lines.append(f"  store <32 x bfloat> {words}, ptr {at}, align 64")

    def _half_address(self, base: str, v: int) -> str:
        at = self.em.emit("getelementptr i16, ptr " + base + ", i64 %at", "ptr")
        return str(self.em.emit(f"getelementptr i16, ptr {at}, i64 {v * self.panel.lanes}", "ptr"))

    def exp_lite(self, x: Val) -> Val:
        """exp(x) for numbers that are rounded to bfloat16, on machines with vscalefps; 0 where it were subnormal.

        Subnormal results, those of -inf among them, take a hundred times longer: they are masked.
        """
        em, wide, name = self.em, x.vt, "@llvm.x86.avx512.mask.scalef.ps.512"
        y = x * math.log2(math.e)
        whole = em.call("llvm.roundeven", y)
        part = y - whole
        power = em.fma(part, em.horner(part, coefficients.EXP2_F32), 1.0)
        normal = y.compare("uge", -126.0)
        mask = em.at(1).emit(f"bitcast {normal.vt} {normal} to i16", "i16")
        em.module.declarations.setdefault(name, f"declare {wide} {name}({wide}, {wide}, {wide}, i16, i32)")
        return em.emit(
            f"call {wide} {name}({wide} {power}, {wide} {whole}, {wide} zeroinitializer, i16 {mask}, i32 4)", x.type
        )

    def rows(self, first: list[Val], body: Callable[[list[Val]], list[Val]], step: int = 1) -> list[Val]:
        """Run `body` for each of the %n >= 1 rows, with its result for the row before (at first `first`); `step` rows
        at a time, whose vectors are numbered through."""
        em, lines = self.em, self.em.lines
        lines += ["  br label %loop", "loop:"]
        mark = len(lines)
        lines += ["  %j = phi i64 [0, %entry], [%j1, %loop]"]
        state = [em.val(f"%state{k}", x.type) for k, x in enumerate(first)]
        width = self.panel.lanes * self.panel.vectors
        begin = len(lines)
        lines.append(f"  %at = mul i64 %j, {width}")
        results = body(state)
        phis = [
            f"  {h} = phi {h.vt} [{x}, %entry], [{y}, %loop]" for h, x, y in zip(state, first, results, strict=True)
        ]
        lines[begin:begin] = phis
        assert mark < begin
        lines += [
            f"  %j1 = add i64 %j, {step}",
            "  %more = icmp slt i64 %j1, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
        ]
        return results

    def masked(self, mask: str, x: Val, v: int) -> Val:
        """The scaled score of vector v of the row, masked."""
        em = self.em
        if mask == "causal":
            type = "i32" if self.panel.kind == "f32" else "i64"
            behind = em.at(1).emit("sub i64 %j, %shift", "i64")
            behind = behind if type == "i64" else em.at(1).emit(f"trunc i64 {behind} to i32", "i32")
            row, v = divmod(v, self.panel.vectors)
            lane = em.lane_index(type) + (v * self.panel.lanes - row)
            return em.select(lane.ge(em.splat(behind, type)), x, -math.inf)
        if mask == "add":
            return x + self.load_row("%bias", v)
        if mask == "pick":
            return em.select(self.load_row("%bias", v).lt(0.0), -math.inf, x)
        return x

    def exp(self, x: Val) -> Val:
        dtype = _REAL[self.panel.kind]
        y = self.em.op("exp", [x], [dtype], dtype)
        return y  # type: ignore[return-value]

    def any(self, flags: Sequence[Val]) -> str:
        """An i32: 1 if any lane of any vector is set, else 0."""
        flag_set = self.em.any_lane(flags[0])
        for flag in flags[1:]:
            flag_set = self.em.at(1).emit(f"or i1 {flag_set}, {self.em.any_lane(flag)}", "i1")
        return str(self.em.at(1).emit(f"zext i1 {flag_set} to i32", "i32"))

    def text(self, result: str = "void") -> str:
        return "\n".join([self.head, *self.em.lines, f"  ret {result}", "}"])
