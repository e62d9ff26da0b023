"""Matrix instructions as functions of the twin: each element of c, its products added in order of k."""

from __future__ import annotations

from rushlight._codegen.scalar import Emitter, ModuleText, Val, reg_type
from rushlight._types.dtype import FLOAT32, INT32

from ..form import WARP
from ..matrices.layouts import FORMS, Fragment, R

__all__ = ["mma_helper"]


def _position(fragment: Fragment, row: int, column: int) -> int:
    """The number (register, then lane) of an element of a fragment."""
    register = sum(
        1 << i for i, (side, bit) in enumerate(fragment.registers) if (row if side == R else column) >> bit & 1
    )
    lane = sum(1 << i for i, (side, bit) in enumerate(fragment.lanes) if (row if side == R else column) >> bit & 1)
    return register * WARP + lane


def _table(module: ModuleText, name: str, fragment: Fragment, rows: int, columns: int) -> str:
    listed = ", ".join(f"i32 {_position(fragment, r, c)}" for r in range(rows) for c in range(columns))
    module.definitions[name] = f"{name} = private constant [{rows * columns} x i32] [{listed}]"
    return name


_COLLECT = """  br label %{l}
{l}:
  %{l}i = phi i64 [0, %{before}], [%{l}n, %{l}]
  %{l}t = getelementptr i32, ptr {table}, i64 %{l}i
  %{l}p = load i32, ptr %{l}t
  %{l}s = getelementptr {type}, ptr {source}, i32 %{l}p
  %{l}v = load {type}, ptr %{l}s
  %{l}d = getelementptr {type}, ptr {target}, i64 %{l}i
  store {type} %{l}v, ptr %{l}d
  %{l}n = add i64 %{l}i, 1
  %{l}m = icmp ult i64 %{l}n, {count}
  br i1 %{l}m, label %{l}, label %{after}
{after}:
"""

_BODY = """define internal void {name}(ptr %a, ptr %b, ptr %c, ptr %d) noinline nounwind {{
entry:
  %aw = alloca [{na} x {n}], align 64
  %bw = alloca [{nb} x {n}], align 64
  %am = alloca [{na} x {n}], align 64
  %bm = alloca [{nb} x {n}], align 64
  %cm = alloca [{nc} x {n}], align 64
{widen}
{collect}
  br label %rows
rows:
  %row = phi i64 [0, %collected], [%row1, %rowend]
  %cr = getelementptr <8 x {n}>, ptr %cm, i64 %row
  %c0 = load <8 x {n}>, ptr %cr, align 4
  br label %steps
steps:
  %k = phi i64 [0, %rows], [%k1, %steps]
  %acc = phi <8 x {n}> [%c0, %rows], [%acc1, %steps]
  %ai0 = mul i64 %row, {k}
  %ai = add i64 %ai0, %k
  %ap = getelementptr {n}, ptr %am, i64 %ai
  %av = load {n}, ptr %ap
  %a1 = insertelement <8 x {n}> poison, {n} %av, i64 0
  %as = shufflevector <8 x {n}> %a1, <8 x {n}> poison, <8 x i32> zeroinitializer
  %bp = getelementptr <8 x {n}>, ptr %bm, i64 %k
  %bv = load <8 x {n}>, ptr %bp, align 4
  %product = {mul} <8 x {n}> %as, %bv
  %acc1 = {add} <8 x {n}> %acc, %product
  %k1 = add i64 %k, 1
  %mk = icmp ult i64 %k1, {k}
  br i1 %mk, label %steps, label %rowend
rowend:
  store <8 x {n}> %acc1, ptr %cr, align 4
  %row1 = add i64 %row, 1
  %mr = icmp ult i64 %row1, {m}
  br i1 %mr, label %rows, label %scatter
scatter:
  %si = phi i64 [0, %rowend], [%sn, %scatter]
  %st = getelementptr i32, ptr {ctable}, i64 %si
  %sp = load i32, ptr %st
  %ss = getelementptr {n}, ptr %cm, i64 %si
  %sv = load {n}, ptr %ss
  %sd = getelementptr {n}, ptr %d, i32 %sp
  store {n} %sv, ptr %sd
  %sn = add i64 %si, 1
  %sm = icmp ult i64 %sn, {nc}
  br i1 %sm, label %scatter, label %done
done:
  ret void
}}
"""


def mma_helper(module: ModuleText, name: str, fma: bool) -> str:
    """The function (a, b, c, d: registers of a warp) of a form of `mma`."""
    form, full = FORMS[name], f"@rl.mma.{name}"
    if full in module.definitions:
        return full
    number = "i32" if form.result is INT32 else "float"
    widen = [
        _widen(module, name, fma, source, target, len(f.registers))
        for source, target, f in (("a", "aw", form.a), ("b", "bw", form.b))
    ]
    parts = [("la", "am", "%aw", form.a, form.m, form.k), ("lb", "bm", "%bw", form.b, form.k, form.n), ("lc", "cm", "%c", form.c, form.m, form.n)]  # fmt: skip
    collect, before, tables = "", "entry", []
    for label, target, source, fragment, rows, columns in parts:
        after = "collected" if label == "lc" else f"{label}end"
        tables.append(_table(module, f"@rl.mma.{name}.{target}", fragment, rows, columns))
        collect += _COLLECT.format(
            l=label,
            before=before,
            after=after,
            table=tables[-1],
            type=number,
            source=source,
            target=f"%{target}",
            count=rows * columns,
        )
        before = after
    module.definitions[full] = _BODY.format(
        name=full, n=number, na=form.m * form.k, nb=form.k * form.n, nc=form.m * form.n, k=form.k, m=form.m, widen="\n".join(widen),
        collect=collect, ctable=tables[-1], mul="mul" if number == "i32" else "fmul", add="add" if number == "i32" else "fadd",
    )  # fmt: skip
    return full


def _widen(module: ModuleText, name: str, fma: bool, source: str, target: str, bits: int) -> str:
    """Registers of operands as those of accumulators: exact, but that TF32 drops the last 13 bits of a float32."""
    form = FORMS[name]
    dtype = form.dtypes[source == "b"]
    em = Emitter(WARP, module, fma=fma, prefix=f"w{source}")
    type = reg_type(dtype)
    for r in range(1 << bits):
        at = em.emit(f"getelementptr <32 x {type}>, ptr %{source}, i64 {r}", "")
        raw = em.emit(f"load <32 x {type}>, ptr {at}, align 4", type)
        if dtype is FLOAT32:
            wide = em.bitcast(raw.bits() & -0x2000, "float")
        else:
            converted = em.op("convert", [raw], [dtype], form.result)
            assert isinstance(converted, Val)
            wide = converted
        to = em.emit(f"getelementptr {wide.vt}, ptr %{target}, i64 {r}", "")
        em.lines.append(f"  store {wide.vt} {wide}, ptr {to}, align 64")
    return "\n".join(em.lines)
