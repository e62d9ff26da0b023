"""Functions that a twin calls for bulk copies, barriers in memory and products of warpgroups.

A barrier is 32 bytes: how many phases are complete, arrivals that the open one waits for, arrivals of a phase, bytes that it waits
for.  Chunks: the group of products that is open, the last that is done; then for each 16 bytes of shared memory whether a copy
has landed there (2) or not yet (1), and the last group of products that reads them.
"""

from __future__ import annotations

from rushlight._codegen.scalar import Emitter, ModuleText, Val, mem_type
from rushlight._types.dtype import FLOAT32, INT32

from .form import WARP
from .group_products import GROUP_FORMS
from .twin_runtime import constant_text, space_check

__all__ = ["ENTRY_BYTES", "declare_group", "wgmma_helper"]

ENTRY_BYTES = 80  # of a copy that has not landed: record, places of 5 dims, target, bytes, barrier, text of its line

_MESSAGES = {
    "stuck": "%s: waits for a phase of a barrier that nothing completes (phase %lld, %lld arrivals and %lld bytes are missing)",
    "many": "%s: a barrier gets %lld arrivals and expects %lld",
    "early": "%s: products read byte %lld of shared memory, and no copy into it was waited for",
    "late": "%s: a copy into byte %lld of shared memory starts while another or products may use it",
    "box": "%s: a copy of %lld bytes whose box has %lld, to byte %lld of shared memory",
}

_BARRIERS = """define internal void @rl.mbar.init(ptr %bar, i64 %count) nounwind {
  store i64 0, ptr %bar
  %p1 = getelementptr i64, ptr %bar, i64 1
  store i64 %count, ptr %p1
  %p2 = getelementptr i64, ptr %bar, i64 2
  store i64 %count, ptr %p2
  %p3 = getelementptr i64, ptr %bar, i64 3
  store i64 0, ptr %p3
  ret void
}
define internal i1 @rl.mbar.test(ptr %bar, i64 %parity) nounwind {
  %phase = load i64, ptr %bar
  %odd = and i64 %phase, 1
  %done = icmp ne i64 %odd, %parity
  ret i1 %done
}
define internal void @rl.mbar.settle(ptr %bar) nounwind {
entry:
  %p1 = getelementptr i64, ptr %bar, i64 1
  %left = load i64, ptr %p1
  %p3 = getelementptr i64, ptr %bar, i64 3
  %bytes = load i64, ptr %p3
  %either = or i64 %left, %bytes
  %done = icmp eq i64 %either, 0
  br i1 %done, label %next, label %end
next:
  %p2 = getelementptr i64, ptr %bar, i64 2
  %count = load i64, ptr %p2
  store i64 %count, ptr %p1
  %phase = load i64, ptr %bar
  %phase1 = add i64 %phase, 1
  store i64 %phase1, ptr %bar
  br label %end
end:
  ret void
}
define internal void @rl.mbar.arrive(ptr %ctx, ptr %bar, i64 %count, ptr %where) nounwind {
entry:
  %none = icmp eq i64 %count, 0
  br i1 %none, label %end, label %some
some:
  %p1 = getelementptr i64, ptr %bar, i64 1
  %left = load i64, ptr %p1
  %rest = sub i64 %left, %count
  %many = icmp slt i64 %rest, 0
  br i1 %many, label %fail, label %fine
fail:
  call void @rl.fail(ptr %ctx, i32 719, ptr @rl.many.text, ptr %where, i64 %count, i64 %left, i64 0)
  ret void
fine:
  store i64 %rest, ptr %p1
  call void @rl.mbar.settle(ptr %bar)
  br label %end
end:
  ret void
}
define internal void @rl.mbar.expect(ptr %ctx, ptr %bar, i64 %bytes, ptr %where) nounwind {
  %p3 = getelementptr i64, ptr %bar, i64 3
  %old = load i64, ptr %p3
  %new = add i64 %old, %bytes
  store i64 %new, ptr %p3
  call void @rl.mbar.arrive(ptr %ctx, ptr %bar, i64 1, ptr %where)
  ret void
}
define internal void @rl.mbar.wait(ptr %ctx, ptr %bar, i64 %parity, ptr %queue, ptr %chunks, ptr %where) nounwind {
entry:
  %done = call i1 @rl.mbar.test(ptr %bar, i64 %parity)
  br i1 %done, label %end, label %land
land:
  call void @rl.tile.land(ptr %ctx, ptr %queue, ptr %chunks, ptr %bar)
  %now = call i1 @rl.mbar.test(ptr %bar, i64 %parity)
  br i1 %now, label %end, label %fail
fail:
  %phase = load i64, ptr %bar
  %p1 = getelementptr i64, ptr %bar, i64 1
  %left = load i64, ptr %p1
  %p3 = getelementptr i64, ptr %bar, i64 3
  %bytes = load i64, ptr %p3
  call void @rl.fail(ptr %ctx, i32 719, ptr @rl.stuck.text, ptr %where, i64 %phase, i64 %left, i64 %bytes)
  br label %end
end:
  ret void
}
"""

# A copy is checked and noted when it starts; its bytes are made unusable.
_ISSUE = """define internal void @rl.tile.issue(ptr %ctx, ptr %queue, ptr %chunks, ptr %record, i64 %c0, i64 %c1, i64 %c2, i64 %c3, i64 %c4,
    i64 %to, i64 %bytes, ptr %bar, ptr %where) noinline nounwind {
entry:
  %b0 = getelementptr i64, ptr %record, i64 10
  br label %product
product:
  %d = phi i64 [0, %entry], [%d1, %product]
  %sofar = phi i64 [1, %entry], [%next, %product]
  %bp = getelementptr i64, ptr %b0, i64 %d
  %b = load i64, ptr %bp
  %next = mul i64 %sofar, %b
  %d1 = add i64 %d, 1
  %md = icmp ult i64 %d1, 6
  br i1 %md, label %product, label %judge
judge:
  %sp = getelementptr i8, ptr %ctx, i64 24
  %shared = load ptr, ptr %sp
  %np = getelementptr i8, ptr %ctx, i64 32
  %room = load i64, ptr %np
  %end = add i64 %to, %bytes
  %fits = icmp ule i64 %end, %room
  %same = icmp eq i64 %next, %bytes
  %low = and i64 %to, 127
  %aligned = icmp eq i64 %low, 0
  %g0 = and i1 %fits, %same
  %g1 = and i1 %g0, %aligned
  br i1 %g1, label %marks, label %fail
fail:
  call void @rl.fail(ptr %ctx, i32 700, ptr @rl.box.text, ptr %where, i64 %bytes, i64 %next, i64 %to)
  ret void
marks:
  %donep = getelementptr i64, ptr %chunks, i64 1
  %done = load i64, ptr %donep
  %count = lshr i64 %bytes, 4
  %first = lshr i64 %to, 4
  br label %mark
mark:
  %k = phi i64 [0, %marks], [%k1, %marked]
  %chunk = add i64 %first, %k
  %word = mul i64 %chunk, 2
  %word4 = add i64 %word, 8
  %at = getelementptr i64, ptr %chunks, i64 %word4
  %state = load i64, ptr %at
  %rp = getelementptr i64, ptr %at, i64 1
  %reader = load i64, ptr %rp
  %open = icmp eq i64 %state, 1
  %read = icmp sgt i64 %reader, %done
  %bad = or i1 %open, %read
  br i1 %bad, label %late, label %marked
late:
  %byte = shl i64 %chunk, 4
  call void @rl.fail(ptr %ctx, i32 719, ptr @rl.late.text, ptr %where, i64 %byte, i64 0, i64 0)
  br label %marked
marked:
  store i64 1, ptr %at
  %k1 = add i64 %k, 1
  %mk = icmp ult i64 %k1, %count
  br i1 %mk, label %mark, label %note
note:
  %target = getelementptr i8, ptr %shared, i64 %to
  call void @llvm.memset.p0.i64(ptr %target, i8 -1, i64 %bytes, i1 false)
  %n = load i64, ptr %queue
  %entries = getelementptr i8, ptr %queue, i64 64
  %e = getelementptr [10 x i64], ptr %entries, i64 %n
  store ptr %record, ptr %e
  %e1 = getelementptr i64, ptr %e, i64 1
  store i64 %c0, ptr %e1
  %e2 = getelementptr i64, ptr %e, i64 2
  store i64 %c1, ptr %e2
  %e3 = getelementptr i64, ptr %e, i64 3
  store i64 %c2, ptr %e3
  %e4 = getelementptr i64, ptr %e, i64 4
  store i64 %c3, ptr %e4
  %e5 = getelementptr i64, ptr %e, i64 5
  store i64 %c4, ptr %e5
  %e6 = getelementptr i64, ptr %e, i64 6
  store i64 %to, ptr %e6
  %e7 = getelementptr i64, ptr %e, i64 7
  store i64 %bytes, ptr %e7
  %e8 = getelementptr i64, ptr %e, i64 8
  store ptr %bar, ptr %e8
  %e9 = getelementptr i64, ptr %e, i64 9
  store ptr %where, ptr %e9
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %queue
  ret void
}
"""

# Copies of one barrier land, the others stay.
_LAND = """define internal void @rl.tile.land(ptr %ctx, ptr %queue, ptr %chunks, ptr %bar) noinline nounwind {
entry:
  %n = load i64, ptr %queue
  %entries = getelementptr i8, ptr %queue, i64 64
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %next]
  %j = phi i64 [0, %entry], [%j1, %next]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %look, label %done
look:
  %e = getelementptr [10 x i64], ptr %entries, i64 %i
  %e8 = getelementptr i64, ptr %e, i64 8
  %for = load ptr, ptr %e8
  %mine = icmp eq ptr %for, %bar
  br i1 %mine, label %land, label %keep
land:
  call void @rl.tile.copy(ptr %ctx, ptr %e)
  %e7 = getelementptr i64, ptr %e, i64 7
  %bytes = load i64, ptr %e7
  %e6 = getelementptr i64, ptr %e, i64 6
  %to = load i64, ptr %e6
  %p3 = getelementptr i64, ptr %bar, i64 3
  %old = load i64, ptr %p3
  %new = sub i64 %old, %bytes
  store i64 %new, ptr %p3
  call void @rl.mbar.settle(ptr %bar)
  %count = lshr i64 %bytes, 4
  %first = lshr i64 %to, 4
  br label %mark
mark:
  %k = phi i64 [0, %land], [%k1, %mark]
  %chunk = add i64 %first, %k
  %word = mul i64 %chunk, 2
  %word8 = add i64 %word, 8
  %at = getelementptr i64, ptr %chunks, i64 %word8
  store i64 2, ptr %at
  %k1 = add i64 %k, 1
  %mk = icmp ult i64 %k1, %count
  br i1 %mk, label %mark, label %next
keep:
  %to2 = getelementptr [10 x i64], ptr %entries, i64 %j
  call void @llvm.memmove.p0.p0.i64(ptr %to2, ptr %e, i64 80, i1 false)
  br label %next
next:
  %less = phi i64 [0, %mark], [1, %keep]
  %i1 = add i64 %i, 1
  %j1 = add i64 %j, %less
  br label %loop
done:
  store i64 %j, ptr %queue
  ret void
}
"""

# The box row by row, 16 bytes at a time, each to its place by the swizzle; zeros outside of the array.
_COPY = """define internal void @rl.tile.copy(ptr %ctx, ptr %e) noinline nounwind {
entry:
  %delta = load i64, ptr %ctx
  %sp = getelementptr i8, ptr %ctx, i64 24
  %shared = load ptr, ptr %sp
  %record = load ptr, ptr %e
  %base = load i64, ptr %record
  %itemp = getelementptr i64, ptr %record, i64 15
  %item = load i64, ptr %itemp
  %box0p = getelementptr i64, ptr %record, i64 10
  %box0 = load i64, ptr %box0p
  %pitch = mul i64 %box0, %item
  %size0p = getelementptr i64, ptr %record, i64 1
  %size0 = load i64, ptr %size0p
  %width = mul i64 %size0, %item
  %c0p = getelementptr i64, ptr %e, i64 1
  %c0 = load i64, ptr %c0p
  %from0 = mul i64 %c0, %item
  %top = getelementptr i64, ptr %e, i64 6
  %to = load i64, ptr %top
  %bytesp = getelementptr i64, ptr %e, i64 7
  %bytes = load i64, ptr %bytesp
  %wp = getelementptr i64, ptr %e, i64 9
  %where = load ptr, ptr %wp
  %rows = udiv i64 %bytes, %pitch
  br label %row
row:
  %r = phi i64 [0, %entry], [%r1, %rowend]
  br label %dim
dim:
  %d = phi i64 [1, %row], [%d1, %dim]
  %rest = phi i64 [%r, %row], [%rest1, %dim]
  %at = phi i64 [%base, %row], [%at1, %dim]
  %in = phi i1 [true, %row], [%in1, %dim]
  %bp = getelementptr i64, ptr %box0p, i64 %d
  %b = load i64, ptr %bp
  %within = urem i64 %rest, %b
  %rest1 = udiv i64 %rest, %b
  %cp = getelementptr i64, ptr %c0p, i64 %d
  %c = load i64, ptr %cp
  %place = add i64 %c, %within
  %szp = getelementptr i64, ptr %size0p, i64 %d
  %sz = load i64, ptr %szp
  %ok = icmp ult i64 %place, %sz
  %in1 = and i1 %in, %ok
  %stp0 = getelementptr i64, ptr %record, i64 5
  %stp = getelementptr i64, ptr %stp0, i64 %d
  %st = load i64, ptr %stp
  %step = mul i64 %place, %st
  %at1 = add i64 %at, %step
  %d1 = add i64 %d, 1
  %md = icmp ult i64 %d1, 5
  br i1 %md, label %dim, label %pieces
pieces:
  %q = phi i64 [0, %dim], [%q1, %piece.end]
  %off = add i64 %from0, %q
  %left = sub i64 %width, %off
  %neg = icmp slt i64 %left, 0
  %l0 = select i1 %neg, i64 0, i64 %left
  %big = icmp sgt i64 %l0, 16
  %l1 = select i1 %big, i64 16, i64 %l0
  %valid = select i1 %in1, i64 %l1, i64 0
  %line = mul i64 %r, %pitch
  %lin0 = add i64 %to, %line
  %lin = add i64 %lin0, %q
  %hi = lshr i64 %lin, 3
  %mix = and i64 %hi, 112
  %swz = xor i64 %lin, %mix
  %target = getelementptr i8, ptr %shared, i64 %swz
  call void @llvm.memset.p0.i64(ptr %target, i8 0, i64 16, i1 false)
  %some = icmp ne i64 %valid, 0
  br i1 %some, label %fetch, label %piece.end
fetch:
  %address = add i64 %at1, %off
  %a0 = insertelement <32 x i64> poison, i64 %address, i64 0
  %good = call i32 @rl.check.global(ptr %ctx, <32 x i64> %a0, i32 1, i64 %valid, ptr %where)
  %fine = icmp ne i32 %good, 0
  br i1 %fine, label %move, label %piece.end
move:
  %real = add i64 %address, %delta
  %source = inttoptr i64 %real to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %valid, i1 false)
  br label %piece.end
piece.end:
  %q1 = add i64 %q, 16
  %mq = icmp ult i64 %q1, %pitch
  br i1 %mq, label %pieces, label %rowend
rowend:
  %r1 = add i64 %r, 1
  %mr = icmp ult i64 %r1, %rows
  br i1 %mr, label %row, label %done
done:
  ret void
}
"""


def declare_group(module: ModuleText) -> None:
    """Barriers and copies."""
    if "@rl.mbar.init" in module.definitions:
        return
    space_check(module, "global")
    for key, text in _MESSAGES.items():
        module.definitions[f"@rl.{key}.text"] = constant_text(f"@rl.{key}.text", text)
    module.definitions["@rl.mbar.init"] = _BARRIERS
    for name, text in (("issue", _ISSUE), ("land", _LAND), ("copy", _COPY)):
        module.definitions[f"@rl.tile.{name}"] = text
    for kind, more in (("memset.p0.i64", "ptr, i8, i64, i1"), ("memcpy.p0.p0.i64", "ptr, ptr, i64, i1")):
        module.declarations[f"@llvm.{kind}"] = f"declare void @llvm.{kind}({more})"
    module.declarations["@llvm.memmove.p0.p0.i64"] = "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)"


# ***** products *****

# Elements of an operand, by its descriptor, to a row-major array with `k` running fastest (a) or slowest (b).  {o} is the number along
# rows of a or columns of b.
_GATHER = """define internal void {name}(ptr %ctx, ptr %chunks, i64 %desc, ptr %to, ptr %where) noinline nounwind {{
entry:
  %sp = getelementptr i8, ptr %ctx, i64 24
  %shared = load ptr, ptr %sp
  %np = getelementptr i8, ptr %ctx, i64 32
  %room = load i64, ptr %np
  %group = load i64, ptr %chunks
  %s0 = and i64 %desc, 16383
  %start = shl i64 %s0, 4
  %l0 = lshr i64 %desc, 16
  %l1 = and i64 %l0, 16383
  %lead = shl i64 %l1, 4
  %t0 = lshr i64 %desc, 32
  %t1 = and i64 %t0, 16383
  %stride = shl i64 %t1, 4
  br label %outer
outer:
  %o = phi i64 [0, %entry], [%o1, %outerend]
  br label %inner
inner:
  %k = phi i64 [0, %outer], [%k1, %next]
{address}
  %hi = lshr i64 %lin, 3
  %mix = and i64 %hi, 112
  %at = xor i64 %lin, %mix
  %fits = icmp ult i64 %at, %room
  br i1 %fits, label %inside, label %fail
inside:
  %chunk = lshr i64 %at, 4
  %word = mul i64 %chunk, 2
  %word8 = add i64 %word, 8
  %cp = getelementptr i64, ptr %chunks, i64 %word8
  %state = load i64, ptr %cp
  %rp = getelementptr i64, ptr %cp, i64 1
  store i64 %group, ptr %rp
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
next:
  %k1 = add i64 %k, 1
  %mk = icmp ult i64 %k1, {depth}
  br i1 %mk, label %inner, label %outerend
outerend:
  %o1 = add i64 %o, 1
  %mo = icmp ult i64 %o1, {count}
  br i1 %mo, label %outer, label %done
done:
  ret void
}}
"""

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

_PRODUCT = """define internal void {name}(ptr %ctx, ptr %chunks, i64 %da, i64 %db, ptr %c, ptr %d, i1 %counts, ptr %where) noinline nounwind {{
entry:
  %ar = alloca [{na} x {raw}], align 64
  %br = alloca [{nb} x {raw}], align 64
  %aw = alloca [{na} x {n}], align 64
  %bw = alloca [{nb} x {n}], align 64
  call void @llvm.memset.p0.i64(ptr %ar, i8 0, i64 {abytes}, i1 false)
  call void @llvm.memset.p0.i64(ptr %br, i8 0, i64 {bbytes}, i1 false)
  call void {gather_a}(ptr %ctx, ptr %chunks, i64 %da, ptr %ar, ptr %where)
  call void {gather_b}(ptr %ctx, ptr %chunks, i64 %db, ptr %br, ptr %where)
{widen}
  br label %rows
rows:
  %row = phi i64 [0, %{last}], [%row1, %rowend]
  %warp = lshr i64 %row, 4
  %r8 = lshr i64 %row, 3
  %half = and i64 %r8, 1
  %r7 = and i64 %row, 7
  %w0 = mul i64 %warp, {warp_words}
  %w1 = mul i64 %half, 64
  %w2 = mul i64 %r7, 4
  %w3 = add i64 %w0, %w1
  %first = add i64 %w3, %w2
  br label %columns
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
  %a1 = insertelement <8 x {n}> poison, {n} %av, i64 0
  %as = shufflevector <8 x {n}> %a1, <8 x {n}> poison, <8 x i32> zeroinitializer
  %bi0 = mul i64 %k, {eighths}
  %bi = add i64 %bi0, %j
  %bp = getelementptr <8 x {n}>, ptr %bw, i64 %bi
  %bv = load <8 x {n}>, ptr %bp, align 4
  %product = {mul} <8 x {n}> %as, %bv
  %acc1 = {add} <8 x {n}> %acc, %product
  %k1 = add i64 %k, 1
  %mk = icmp ult i64 %k1, {depth}
  br i1 %mk, label %steps, label %columnend
columnend:
  %e1 = shufflevector <8 x {n}> %acc1, <8 x {n}> poison, <4 x i32> <i32 0, i32 1, i32 2, i32 3>
  %o1 = shufflevector <8 x {n}> %acc1, <8 x {n}> poison, <4 x i32> <i32 4, i32 5, i32 6, i32 7>
  %edp = getelementptr {n}, ptr %d, i64 %even
  %odp = getelementptr {n}, ptr %d, i64 %odd
  store <4 x {n}> %e1, ptr %edp, align 4
  store <4 x {n}> %o1, ptr %odp, align 4
  %j1 = add i64 %j, 1
  %mj = icmp ult i64 %j1, {eighths}
  br i1 %mj, label %columns, label %rowend
rowend:
  %row1 = add i64 %row, 1
  %mr = icmp ult i64 %row1, 64
  br i1 %mr, label %rows, label %done
done:
  ret void
}}
"""


def wgmma_helper(module: ModuleText, kinds: str, n: int, dense_k: tuple[bool, bool], fma: bool) -> str:
    """The function (context, chunks, descriptors of a and b, registers of four warps c and d, whether c counts, where)."""
    form = GROUP_FORMS[kinds]
    full = f"@rl.wgmma.{kinds}.{n}.{int(dense_k[0])}{int(dense_k[1])}"
    if full in module.definitions:
        return full
    names, depth, item = [], form.k, form.a.itemsize
    for side, count, dense in ((0, 64, dense_k[0]), (1, n, dense_k[1])):
        names.append(f"@rl.gather.{item}.{count}.{side}{int(dense)}")
        address = (_DENSE_K if dense else _DENSE_OUTER).format(item=item)
        position = (_COLUMN_OF_B if side else _ROW_OF_A).format(depth=depth, count=count)
        module.definitions[names[-1]] = _GATHER.format(
            name=names[-1], address=address, position=position, type=f"i{8 * item}", depth=depth, count=count
        )
    number = "i32" if form.result is INT32 else "float"
    na, nb = 64 * depth, n * depth
    widen = [_widen(module, kinds, fma, "a", na), _widen(module, kinds, fma, "b", nb)]
    module.definitions[full] = _PRODUCT.format(
        name=full, na=na, nb=nb, raw=f"i{8 * item}", n=number, abytes=na * item, bbytes=nb * item, gather_a=names[0], gather_b=names[1],
        widen="\n".join(widen), last="wb.done", warp_words=n // 2 * WARP, depth=depth, eighths=n // 8,
        mul="mul" if number == "i32" else "fmul", add="add" if number == "i32" else "fadd",
    )  # fmt: skip
    return full


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
