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
    from rushlight._codegen.scalar import emitter, writer
    from rushlight._codegen.scalar.writer import Val
else:
    emitter = LazyModule("rushlight._codegen.scalar.emitter")  # not needed for kernels loaded from disk
    writer = LazyModule("rushlight._codegen.scalar.writer")

__all__ = ["MASKS", "AttentionPanel"]

MASKS = (
    "plain",
    "causal",
    "add",
    "pick",
)  # no mask; keys up to the query; a bias is added; a negative bias excludes the key
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
    """

    def __init__(self, kind: str, lanes: int, vectors: int, fma: bool) -> None:
        self.kind, self.lanes, self.vectors, self.fma = kind, lanes, vectors, fma
        self.real, self.size = _LLVM[kind], 4 if kind == "f32" else 8
        self.prefix = f"rl_panel_{kind}_"

    @property
    def key(self) -> str:
        return f"{self.prefix} {self.lanes} {self.vectors} {self.fma}"

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

    def rows(self, first: list[Val], body: Callable[[list[Val]], list[Val]]) -> list[Val]:
        """Run `body` for each of the %n >= 1 rows, with its result for the row before (at first `first`)."""
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
            "  %j1 = add i64 %j, 1",
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
            lane = em.lane_index(type) + v * self.panel.lanes
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
