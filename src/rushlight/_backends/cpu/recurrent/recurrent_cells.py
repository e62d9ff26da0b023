"""One step of a recurrent cell as vector code: the part after the recurrent product, and its derivative.

The formulas are those of `_prims/nn/recurrent_cell.py`, the functions those of all other kernels (`_codegen/scalar`), so
values differ from a chain of operators by rounding alone.  Rows are sequences, columns hidden units; pointers are to
the first row and unit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._codegen.scalar.emitter import Emitter
from rushlight._codegen.scalar.writer import ModuleText, Val
from rushlight._prims.nn.recurrent_cell import GATES, KEPT, SLOPES
from rushlight._types.dtype import FLOAT32, FLOAT64

__all__ = ["BACKWARD_CELL", "FORWARD_CELL", "backward_cell", "forward_cell"]

_DTYPES = {"f32": FLOAT32, "f64": FLOAT64}

# (product, its row length, x, hidden size, bias, h, c, hs, gates or null, cs, rows, units): units are at most the lanes
# of a vector.  The state is overwritten by the next one; rows of x and gates hold their parts `hidden size` apart, and
# so does the bias.
FORWARD_CELL = "void(ptr, i64, ptr, i64, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64)"
_FORWARD = (
    "ptr %z, i64 %zrow, ptr %x, i64 %size, ptr %b, ptr %h, ptr %c, ptr %hs, ptr %g, ptr %cs, i64 %rows, i64 %units"
)
# (dh, dc, cotangents of hs, of gates, of cs, gates, hs, cs, h before, c before, slopes, copies of h before, sums of
# slopes, hidden size, rows, units); only the form for cotangents of gates and cs reads these
BACKWARD_CELL = "void(ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, ptr, i64, i64, i64)"
_BACKWARD = (
    "ptr %dh, ptr %dc, ptr %ct, ptr %ctg, ptr %ctc, ptr %g, ptr %hs, ptr %cs, ptr %hb, ptr %cb, ptr %d, ptr %before, ptr %sums, i64 %size, "
    "i64 %rows, i64 %units"
)


class _Lanes:
    """One vector of units in a row: loads, stores and functions.  `mask` selects the lanes that exist, None for all."""

    def __init__(self, module: ModuleText, kind: str, lanes: int, fma: bool, tag: str, mask: str | None) -> None:
        self.dtype = _DTYPES[kind]
        self.em = Emitter(lanes, module, fma=fma, prefix=f"{tag}v")
        self.module, self.mask, self.lanes = module, mask, lanes
        self.element, self.size = ("float", 4) if kind == "f32" else ("double", 8)
        self.vector = f"<{lanes} x {self.element}>"

    def line(self, text: str) -> None:
        self.em.lines.append(f"  {text}")

    def integer(self, text: str) -> str:
        """An i64 computed by the instruction `text` (once)."""
        return str(self.em.emit(text, "i64"))

    def address(self, base: str, row: str, width: str, part: int = 0) -> str:
        """The address of a vector: part `part` (%size apart) of row `row` (every `width` elements)."""
        offset = self.integer(f"mul i64 {row}, {width}")
        if part:
            offset = self.integer(f"add i64 {offset}, {self.integer(f'mul i64 %size, {part}')}")
        return str(self.em.emit(f"getelementptr {self.element}, ptr {base}, i64 {offset}", "ptr"))

    def moved(self, address: str, offset: Any) -> str:
        return str(self.em.emit(f"getelementptr {self.element}, ptr {address}, i64 {offset}", "ptr"))

    def load(self, address: str) -> Val:
        if self.mask is None:
            return self.em.emit(f"load {self.vector}, ptr {address}, align {self.size}", self.element)
        name = f"@llvm.masked.load.v{self.lanes}f{8 * self.size}.p0"
        flags = f"<{self.lanes} x i1>"
        self.module.declarations[name] = f"declare {self.vector} {name}(ptr, i32, {flags}, {self.vector})"
        return self.em.emit(
            f"call {self.vector} {name}(ptr {address}, i32 {self.size}, {flags} {self.mask}, {self.vector} zeroinitializer)",
            self.element,
        )

    def store(self, value: Val, address: str) -> None:
        if self.mask is None:
            self.line(f"store {self.vector} {value}, ptr {address}, align {self.size}")
            return
        name = f"@llvm.masked.store.v{self.lanes}f{8 * self.size}.p0"
        flags = f"<{self.lanes} x i1>"
        self.module.declarations[name] = f"declare void {name}({self.vector}, ptr, i32, {flags})"
        self.line(f"call void {name}({self.vector} {value}, ptr {address}, i32 {self.size}, {flags} {self.mask})")

    def function(self, name: str, x: Val) -> Any:
        return self.em.op(name, [x], [self.dtype], self.dtype)

    def sigmoid(self, x: Val) -> Any:
        return 1.0 / (1.0 + self.function("exp", -x))

    def tanh(self, x: Val) -> Any:
        return self.function("tanh", x)


def _mask(v: _Lanes, units: str) -> list[str]:
    """The lanes below `units`."""
    n = v.lanes
    ids = ", ".join(f"i32 {k}" for k in range(n))
    return [
        f"  %count = trunc i64 {units} to i32",
        f"  %one = insertelement <{n} x i32> poison, i32 %count, i64 0",
        f"  %all = shufflevector <{n} x i32> %one, <{n} x i32> poison, <{n} x i32> zeroinitializer",
        f"  %mask = icmp slt <{n} x i32> <{ids}>, %all",
    ]


# ***** forward *****


def forward_cell(mode: str, kind: str, lanes: int, fma: bool) -> tuple[str, str]:
    """Symbol and LLVM text of a step of `mode`."""
    symbol, module = f"rl_cell_{mode}_{kind}", ModuleText()
    whole, part = (_Lanes(module, kind, lanes, fma, tag, mask) for tag, mask in (("w", None), ("p", "%mask")))
    lines = [f"define void @{symbol}({_FORWARD}) nounwind {{", "entry:"]
    lines += [f"  %full = icmp sge i64 %units, {lanes}", "  br i1 %full, label %wstart, label %pstart"]
    for tag, v, before in (("w", whole, []), ("p", part, _mask(part, "%units"))):
        lines += [
            f"{tag}start:",
            *before,
            f"  br label %{tag}row",
            f"{tag}row:",
            f"  %{tag}r = phi i64 [0, %{tag}start], [%{tag}r1, %{tag}next]",
        ]
        kept, h = _FORWARD_STEPS[mode](v, f"%{tag}r", mode)
        for base in ("%h", "%hs"):
            v.store(h, v.address(base, f"%{tag}r", "%size"))
        if kept:
            v.line(f"%{tag}null = icmp eq ptr %g, null")
            v.line(f"br i1 %{tag}null, label %{tag}next, label %{tag}keep")
            v.em.lines.append(f"{tag}keep:")
            width = v.integer(f"mul i64 %size, {KEPT[mode]}")
            for k, gate in enumerate(kept[: KEPT[mode]]):
                v.store(gate, v.address("%g", f"%{tag}r", width, k))
            if mode == "lstm":
                v.store(kept[4], v.address("%cs", f"%{tag}r", "%size"))
        v.line(f"br label %{tag}next")
        lines += v.em.lines
        lines += [
            f"{tag}next:",
            f"  %{tag}r1 = add nuw nsw i64 %{tag}r, 1",
            f"  %{tag}more = icmp slt i64 %{tag}r1, %rows",
            f"  br i1 %{tag}more, label %{tag}row, label %done",
        ]
    return symbol, "\n".join([*lines, "done:", "  ret void", "}", str(module)])


def _sums(v: _Lanes, row: str, mode: str) -> tuple[list[Val], list[Val], list[Val]]:
    """Product plus projected input plus bias, by parts."""
    gates = GATES[mode]
    width = v.integer(f"mul i64 %size, {gates}")
    z = v.address("%z", row, "%zrow")
    u = [v.load(v.moved(z, k * v.lanes)) for k in range(gates)]
    x = [v.load(v.address("%x", row, width, k)) for k in range(gates)]
    b = [
        v.load(v.moved("%b", v.integer(f"mul i64 %size, {k}")) if k else "%b")
        for k in range(4 if mode == "gru" else gates)
    ]
    return u, x, b


def _lstm_step(v: _Lanes, row: str, mode: str) -> tuple[list[Any], Any]:
    i, f, g, out = [x + u + b for u, x, b in zip(*_sums(v, row, mode), strict=True)]
    i, f, g, out = v.sigmoid(i), v.sigmoid(f), v.tanh(g), v.sigmoid(out)
    address = v.address("%c", row, "%size")
    c = f * v.load(address) + i * g
    v.store(c, address)
    return [i, f, g, out, c], out * v.tanh(c)


def _gru_step(v: _Lanes, row: str, mode: str) -> tuple[list[Any], Any]:
    (ur, uz, un), (xr, xz, xn), (br, bz, bn, bu) = _sums(v, row, mode)
    r, z, inner = v.sigmoid(xr + ur + br), v.sigmoid(xz + uz + bz), un + bu
    n = v.tanh(xn + bn + r * inner)
    h = v.load(v.address("%h", row, "%size"))
    return [r, z, n, inner], n + z * (h - n)


def _plain_step(v: _Lanes, row: str, mode: str) -> tuple[list[Any], Any]:
    (u,), (x,), (b,) = _sums(v, row, mode)
    total = x + u + b
    return [], v.tanh(total) if mode == "tanh" else v.em.op(
        "maximum", [total, v.em.const(v.element, 0.0)], [v.dtype] * 2, v.dtype
    )


_FORWARD_STEPS: dict[str, Callable[[_Lanes, str, str], tuple[list[Any], Any]]] = {
    "lstm": _lstm_step,
    "gru": _gru_step,
    "tanh": _plain_step,
    "relu": _plain_step,
}


# ***** backward *****


def backward_cell(mode: str, kind: str, lanes: int, fma: bool, extra: bool) -> tuple[str, str]:
    """Symbol and LLVM text of the derivative of a step of `mode`, without the recurrent product; `extra`: gates and
    cells have cotangents too.

    dc becomes the cotangent of the previous cell; for a GRU dh becomes the part of the previous state's cotangent that
    bypasses the product.
    """
    symbol, module = f"rl_back_{mode}_{kind}{'_extra' if extra else ''}", ModuleText()
    whole, part = (_Lanes(module, kind, lanes, fma, tag, mask) for tag, mask in (("w", None), ("p", "%mask")))
    lines = [
        f"define void @{symbol}({_BACKWARD}) nounwind {{",
        "entry:",
        f"  %end = and i64 %units, {-lanes}",
        "  %rest = sub i64 %units, %end",
    ]
    lines += [
        *_mask(part, "%rest"),
        "  br label %row",
        "row:",
        "  %r = phi i64 [0, %entry], [%r1, %next]",
        "  br label %whead",
    ]
    lines += [
        "whead:",
        "  %u = phi i64 [0, %row], [%u1, %wbody]",
        "  %inside = icmp slt i64 %u, %end",
        "  br i1 %inside, label %wbody, label %last",
    ]
    _backward_body(whole, "%u", mode, extra)
    lines += ["wbody:", *whole.em.lines, f"  %u1 = add nuw nsw i64 %u, {lanes}", "  br label %whead"]
    lines += ["last:", "  %some = icmp sgt i64 %rest, 0", "  br i1 %some, label %pbody, label %next"]
    _backward_body(part, "%end", mode, extra)
    lines += ["pbody:", *part.em.lines, "  br label %next"]
    lines += [
        "next:",
        "  %r1 = add nuw nsw i64 %r, 1",
        "  %more = icmp slt i64 %r1, %rows",
        "  br i1 %more, label %row, label %done",
    ]
    return symbol, "\n".join([*lines, "done:", "  ret void", "}", str(module)])


def _backward_body(v: _Lanes, unit: str, mode: str, extra: bool) -> None:
    size = "%size"

    def at(base: str, parts: int = 1, part: int = 0) -> str:
        width = size if parts == 1 else v.integer(f"mul i64 {size}, {parts}")
        return v.moved(v.address(base, "%r", width, part), unit)

    before = v.load(at("%hb"))
    v.store(before, at("%before"))
    dh: Any = v.load(at("%ct")) + v.load(at("%dh"))
    gates = [v.load(at("%g", KEPT[mode], k)) for k in range(KEPT[mode])]

    def plus(x: Any, k: int) -> Any:
        return x + v.load(at("%ctg", KEPT[mode], k)) if extra else x

    if mode == "lstm":
        i, f, g, out = gates
        t = v.tanh(v.load(at("%cs")))
        dc = v.load(at("%dc")) + dh * out * (1.0 - t * t)
        dc = dc + v.load(at("%ctc")) if extra else dc
        before_c = v.load(at("%cb"))
        slopes = [
            plus(dc * g, 0) * (i * (1.0 - i)),
            plus(dc * before_c, 1) * (f * (1.0 - f)),
            plus(dc * i, 2) * (1.0 - g * g),
            plus(dh * t, 3) * (out * (1.0 - out)),
        ]
        v.store(dc * f, at("%dc"))
    elif mode == "gru":
        r, z, n, inner = gates
        dn = plus(dh * (1.0 - z), 2) * (1.0 - n * n)
        slopes = [
            plus(dn * r, 3),
            plus(dn * inner, 0) * (r * (1.0 - r)),
            plus(dh * (before - n), 1) * (z * (1.0 - z)),
            dn,
        ]
        v.store(dh * z, at("%dh"))
    else:
        h = v.load(at("%hs"))
        slopes = [dh * (1.0 - h * h) if mode == "tanh" else v.em.select(h.gt(0.0), dh, 0.0)]
    for k, slope in enumerate(slopes):
        v.store(slope, at("%d", SLOPES[mode], k))
        address = v.moved("%sums", v.integer(f"add i64 {unit}, {v.integer(f'mul i64 %size, {k}')}") if k else unit)
        v.store(v.load(address) + slope, address)
