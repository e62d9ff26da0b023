"""The function that a twin calls for a product of warpgroups: operands by their descriptors, then the definition.

Every operand must lie where a copy has landed; which group of products reads it is noted (see `group_runtime`).
"""

from __future__ import annotations

from rushlight._codegen.scalar import Emitter, ModuleText, Val, mem_type, reg_type
from rushlight._types.dtype import FLOAT32, INT32

from ..form import WARP
from ..warpgroups.find_products import GROUP_FORMS, GroupForm
from .lines import expanded

__all__ = ["wgmma_helper"]

# A function that runs over the elements of an operand: {row} for each number o along rows of a or columns of b, {element} for each k.
_ELEMENTS = expanded("""define internal void {name}({parameters}) noinline nounwind {{
entry:
{entry}  br label %outer
outer:
  %o = phi i64 [0, %entry], [%o1, %outerend]
{row}  br label %inner
inner:
  %k = phi i64 [0, %outer], [%k1, %{last}]
{element}
  !turn k mk {depth} inner outerend
outerend:
  !turn o mo {count} outer done
done:
  ret void
}}
""")

# Elements of an operand, by its descriptor, to a row-major array with `k` running fastest (a) or slowest (b).
_GATHER_PARAMETERS = "ptr %ctx, ptr %chunks, i64 %desc, ptr %to, ptr %where"
_GATHER_ENTRY = expanded("""  !context %shared 24 sp ptr
  !context %room 32 np i64
  %group = load i64, ptr %chunks
  %s0 = and i64 %desc, 16383
  %start = shl i64 %s0, 4
  %l0 = lshr i64 %desc, 16
  %l1 = and i64 %l0, 16383
  %lead = shl i64 %l1, 4
  %t0 = lshr i64 %desc, 32
  %t1 = and i64 %t0, 16383
  %stride = shl i64 %t1, 4
""")
_GATHER_ELEMENT = expanded("""{address}
  %hi = lshr i64 %lin, 3
  %mix = and i64 %hi, 112
  %at = xor i64 %lin, %mix
  %fits = icmp ult i64 %at, %room
  br i1 %fits, label %inside, label %fail
inside:
  %chunk = lshr i64 %at, 4
  %word = mul i64 %chunk, 2
  %word8 = add i64 %word, 8
  !get %state %chunks %word8 cp i64
  !put %cp 1 rp i64 %group
  %ready = icmp eq i64 %state, 2
  br i1 %ready, label %next0, label %fail
fail:
  call void @rl.fail(ptr %ctx, i32 719, ptr @rl.early.text, ptr %where, i64 %at, i64 0, i64 0)
  br label %next
next0:
  %from = getelementptr i8, ptr %shared, i64 %at
  %v = load {type}, ptr %from
{position}
  %tp = getelementptr {type}, ptr %to, i64 %place
  store {type} %v, ptr %tp
  br label %next
next:""")

# ((8, m), (T, 2k)) : ((8 T, SBO), (1, T)), of neighbours along k
_DENSE_K = """  %o8 = lshr i64 %o, 3
  %o7 = and i64 %o, 7
  %x0 = mul i64 %o8, %stride
  %x1 = mul i64 %o7, 128
  %x2 = mul i64 %k, {item}
  %y0 = add i64 %start, %x0
  %y1 = add i64 %y0, %x1
  %lin = add i64 %y1, %x2"""
# ((T, 8, m), (8, k)) : ((1, T, LBO), (8 T, SBO)), of neighbours along rows of a or columns of b
_DENSE_OUTER = """  %ob = mul i64 %o, {item}
  %o8 = lshr i64 %ob, 7
  %o7 = and i64 %ob, 127
  %k8 = lshr i64 %k, 3
  %k7 = and i64 %k, 7
  %x0 = mul i64 %o8, %lead
  %x1 = mul i64 %k7, 128
  %x2 = mul i64 %k8, %stride
  %y0 = add i64 %start, %x0
  %y1 = add i64 %y0, %o7
  %y2 = add i64 %y1, %x1
  %lin = add i64 %y2, %x2"""
_ROW_OF_A = "  %p0 = mul i64 %o, {depth}\n  %place = add i64 %p0, %k"
# even columns of eight neighbours, then the odd ones, as registers hold them
_COLUMN_OF_B = """  %j8 = and i64 %o, -8
  %j1 = and i64 %o, 1
  %j7 = and i64 %o, 7
  %h0 = shl i64 %j1, 2
  %h1 = lshr i64 %j7, 1
  %q0 = add i64 %h0, %h1
  %q1 = add i64 %q0, %j8
  %p0 = mul i64 %k, {count}
  %place = add i64 %p0, %q1"""

_PRODUCT = expanded("""define internal void {name}(ptr %ctx, ptr %chunks, {a} %da, i64 %db, ptr %c, ptr %d, i1 %counts,
    ptr %where) noinline nounwind {{
entry:
  %ar = alloca [{na} x {raw}], align 64
  %br = alloca [{nb} x {raw}], align 64
  %aw = alloca [{na} x {n}], align 64
  %bw = alloca [{nb} x {n}], align 64
  call void @llvm.memset.p0.i64(ptr %ar, i8 0, i64 {abytes}, i1 false)
  call void @llvm.memset.p0.i64(ptr %br, i8 0, i64 {bbytes}, i1 false)
{left}
  call void {gather_b}(ptr %ctx, ptr %chunks, i64 %db, ptr %br, ptr %where)
{widen}
  br label %rows
rows:
  %row = phi i64 [0, %{last}], [%row1, %rowend]
{first}  br label %columns
columns:
  %j = phi i64 [0, %rows], [%j1, %columnend]
  %jw = mul i64 %j, 128
  %even = add i64 %first, %jw
  %odd = add i64 %even, 32
  %ep = getelementptr {n}, ptr %c, i64 %even
  %op = getelementptr {n}, ptr %c, i64 %odd
  %e0 = load <4 x {n}>, ptr %ep, align 4
  %o0 = load <4 x {n}>, ptr %op, align 4
  %both = shufflevector <4 x {n}> %e0, <4 x {n}> %o0, <8 x i32> <i32 0, i32 1, i32 2, i32 3, i32 4, i32 5, i32 6, i32 7>
  %begin = select i1 %counts, <8 x {n}> %both, <8 x {n}> zeroinitializer
  br label %steps
steps:
  %k = phi i64 [0, %columns], [%k1, %steps]
  %acc = phi <8 x {n}> [%begin, %columns], [%acc1, %steps]
  %ai0 = mul i64 %row, {depth}
  %ai = add i64 %ai0, %k
  %ap = getelementptr {n}, ptr %aw, i64 %ai
  %av = load {n}, ptr %ap
  !splat %as a1 <8 x {n}> {n} %av
  %bi0 = mul i64 %k, {eighths}
  %bi = add i64 %bi0, %j
  %bp = getelementptr <8 x {n}>, ptr %bw, i64 %bi
  %bv = load <8 x {n}>, ptr %bp, align 4
  %product = {mul} <8 x {n}> %as, %bv
  %acc1 = {add} <8 x {n}> %acc, %product
  !turn k mk {depth} steps columnend
columnend:
  %e1 = shufflevector <8 x {n}> %acc1, <8 x {n}> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %o1 = shufflevector <8 x {n}> %acc1, <8 x {n}> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %edp = getelementptr {n}, ptr %d, i64 %even
  %odp = getelementptr {n}, ptr %d, i64 %odd
  store <4 x {n}> %e1, ptr %edp, align 4
  store <4 x {n}> %o1, ptr %odp, align 4
  !turn j mj {eighths} columns rowend
rowend:
  !turn row mr 64 rows done
done:
  ret void
}}
""")


# The first word of a row in the registers of four warps, `{words}` of each: two columns of a lane, in registers 0 and 1 for the lower
# eight rows of a warp, 2 and 3 for the upper ones.
_FIRST_WORD = """  %warp = lshr i64 {row}, 4
  %r8 = lshr i64 {row}, 3
  %half = and i64 %r8, 1
  %r7 = and i64 {row}, 7
  %w0 = mul i64 %warp, {words}
  %w1 = mul i64 %half, 64
  %w2 = mul i64 %r7, 4
  %w3 = add i64 %w0, %w1
  %first = add i64 %w3, %w2
"""
# An element of a fragment: the upper eight columns are four registers on.
_FRAGMENT_ELEMENT = """  %k8 = lshr i64 %k, 3
  %odd = and i64 %k, 1
  %k7 = and i64 %k, 7
  %pair = lshr i64 %k7, 1
  %x0 = mul i64 %k8, 128
  %x1 = mul i64 %odd, 32
  %x2 = add i64 %x0, %x1
  %x3 = add i64 %x2, %pair
  %at = add i64 %first, %x3
  %fp = getelementptr {type}, ptr %from, i64 %at
  %v = load {type}, ptr %fp
  %p0 = mul i64 %o, 16
  %place = add i64 %p0, %k
  %tp = getelementptr {type}, ptr %to, i64 %place
  store {type} %v, ptr %tp"""


def wgmma_helper(module: ModuleText, kinds: str, n: int, dense_k: tuple[bool | None, bool], fma: bool) -> str:
    """The function (context, chunks, descriptors of a and b, registers of four warps c and d, whether c counts, where).

    `dense_k` is None for a left operand in registers, whose address stands in the place of its descriptor.
    """
    form = GROUP_FORMS[kinds]
    full = f"@rl.wgmma.{kinds}.{n}.{'r' if dense_k[0] is None else int(dense_k[0])}{int(dense_k[1])}"
    if full in module.definitions:
        return full
    depth, item = form.k, form.a.itemsize
    if dense_k[0] is None:
        left = f"  call void {_fragment(module, form)}(ptr %da, ptr %ar)"
    else:
        left = f"  call void {_gather(module, form, 0, 64, dense_k[0])}(ptr %ctx, ptr %chunks, i64 %da, ptr %ar, ptr %where)"
    number = "i32" if form.result is INT32 else "float"
    na, nb = 64 * depth, n * depth
    widen = [_widen(module, kinds, fma, "a", na), _widen(module, kinds, fma, "b", nb)]
    module.definitions[full] = _PRODUCT.format(
        name=full, na=na, nb=nb, raw=f"i{8 * item}", n=number, abytes=na * item, bbytes=nb * item, left=left,
        a="ptr" if dense_k[0] is None else "i64", gather_b=_gather(module, form, 1, n, dense_k[1]),
        widen="\n".join(widen), last="wb.done", first=_FIRST_WORD.format(row="%row", words=n // 2 * WARP), depth=depth,
        eighths=n // 8, mul="mul" if number == "i32" else "fmul", add="add" if number == "i32" else "fadd",
    )  # fmt: skip
    return full


def _fragment(module: ModuleText, form: GroupForm) -> str:
    """The function (from, to) that reads a left operand of 64 rows from registers."""
    name = f"@rl.fragment.{form.a.itemsize}"
    module.definitions[name] = _ELEMENTS.format(
        name=name, parameters="ptr %from, ptr %to", entry="", row=_FIRST_WORD.format(row="%o", words=256),
        element=_FRAGMENT_ELEMENT.format(type=reg_type(form.a)), last="inner", depth=16, count=64,
    )  # fmt: skip
    return name


def _gather(module: ModuleText, form: GroupForm, side: int, count: int, dense_k: bool) -> str:
    """The function (context, chunks, descriptor, to, where) that reads an operand, b where `side` is 1, from shared memory."""
    depth, item = form.k, form.a.itemsize
    name = f"@rl.gather.{item}.{count}.{side}{int(dense_k)}"
    address = (_DENSE_K if dense_k else _DENSE_OUTER).format(item=item)
    position = (_COLUMN_OF_B if side else _ROW_OF_A).format(depth=depth, count=count)
    module.definitions[name] = _ELEMENTS.format(
        name=name, parameters=_GATHER_PARAMETERS, entry=_GATHER_ENTRY, row="", last="next", depth=depth, count=count,
        element=_GATHER_ELEMENT.format(address=address, position=position, type=f"i{8 * item}"),
    )  # fmt: skip
    return name


def _widen(module: ModuleText, kinds: str, fma: bool, side: str, count: int) -> str:
    """Numbers of operands as those of accumulators, 32 at a time: exact, but that TF32 drops the last 13 bits of a float32."""
    form = GROUP_FORMS[kinds]
    dtype = form.a if side == "a" else form.b
    em = Emitter(WARP, module, fma=fma, prefix=f"w{side}")
    before = "entry" if side == "a" else "wa.done"
    index = f"%w{side}.i"
    em.lines += [f"  br label %w{side}", f"w{side}:", f"  {index} = phi i64 [0, %{before}], [{index}1, %w{side}]"]
    type = mem_type(dtype)
    at = em.emit(f"getelementptr <32 x {type}>, ptr %{side}r, i64 {index}", "")
    raw = em.emit(f"load <32 x {type}>, ptr {at}, align 4", type)
    if dtype is FLOAT32:
        wide = em.bitcast(raw.bits() & -0x2000, "float")
    else:
        given = em.from_memory(raw.name, dtype)
        converted = em.op("convert", [given], [dtype], form.result)
        assert isinstance(converted, Val)
        wide = converted
    to = em.emit(f"getelementptr {wide.vt}, ptr %{side}w, i64 {index}", "")
    em.lines += [f"  store {wide.vt} {wide}, ptr {to}, align 64", f"  {index}1 = add i64 {index}, 1"]
    em.lines += [
        f"  {index}m = icmp ult i64 {index}1, {count // WARP}",
        f"  br i1 {index}m, label %w{side}, label %w{side}.done",
    ]
    return "\n".join([*em.lines, f"w{side}.done:"])
