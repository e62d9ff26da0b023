"""Functions that a twin calls for bulk copies and barriers in memory; those of products are in `group_products`.

A barrier is 32 bytes: how many phases are complete, arrivals that the open one waits for, arrivals of a phase, bytes that it waits
for.  Chunks: the group of products that is open, the last that is done; then for each 16 bytes of shared memory whether a copy
has landed there (2) or not yet (1), and the last group of products that reads them.
"""

from __future__ import annotations

from rushlight._codegen.scalar import ModuleText

from .lines import expanded, messages
from .runtime import space_check

__all__ = ["ENTRY_BYTES", "declare_group"]

ENTRY_BYTES = (
    88  # of a copy that has not landed: record, places of 5 dims, target, bytes, barrier, text of its line, offsets
)

_MESSAGES = {
    "stuck": "%s: waits for a phase of a barrier that nothing completes (phase %lld, %lld arrivals and %lld bytes are missing)",
    "many": "%s: a barrier gets %lld arrivals and expects %lld",
    "early": "%s: products read byte %lld of shared memory, and no copy into it was waited for",
    "late": "%s: a copy into byte %lld of shared memory starts while another or products may use it",
    "box": "%s: a copy of %lld bytes whose box has %lld, to byte %lld of shared memory",
}

_BARRIERS = expanded("""define internal void @rl.mbar.init(ptr %bar, i64 %count) nounwind {
  store i64 0, ptr %bar
  !put %bar 1 p1 i64 %count
  !put %bar 2 p2 i64 %count
  !put %bar 3 p3 i64 0
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
  !get %left %bar 1 p1 i64
  !get %bytes %bar 3 p3 i64
  %either = or i64 %left, %bytes
  %done = icmp eq i64 %either, 0
  br i1 %done, label %next, label %end
next:
  !get %count %bar 2 p2 i64
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
  !get %left %bar 1 p1 i64
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
  !get %old %bar 3 p3 i64
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
  !get %left %bar 1 p1 i64
  !get %bytes %bar 3 p3 i64
  call void @rl.fail(ptr %ctx, i32 719, ptr @rl.stuck.text, ptr %where, i64 %phase, i64 %left, i64 %bytes)
  br label %end
end:
  ret void
}
""")

# A copy is checked and noted when it starts; its bytes are made unusable.
_ISSUE = expanded("""define internal void @rl.tile.issue(ptr %ctx, ptr %queue, ptr %chunks, ptr %record, i64 %c0, i64 %c1, i64 %c2, i64 %c3, i64 %c4,
    i64 %to, i64 %bytes, ptr %bar, ptr %where, i64 %offsets) noinline nounwind {
entry:
  %b0 = getelementptr i64, ptr %record, i64 10
  !get %kind %record 15 kindp i64
  %flag = lshr i64 %kind, 32
  %windows = icmp ne i64 %flag, 0
  %dims = select i1 %windows, i64 2, i64 6
  %item = and i64 %kind, 4294967295
  %by = select i1 %windows, i64 %item, i64 1
  br label %product
product:
  %d = phi i64 [0, %entry], [%d1, %product]
  %sofar = phi i64 [1, %entry], [%next, %product]
  !get %b %b0 %d bp i64
  %next = mul i64 %sofar, %b
  !turn d md %dims product judge
judge:
  !context %shared 24 sp ptr
  !context %room 32 np i64
  %end = add i64 %to, %bytes
  %fits = icmp ule i64 %end, %room
  %whole = mul i64 %next, %by
  %same = icmp eq i64 %whole, %bytes
  %low = and i64 %to, 127
  %aligned = icmp eq i64 %low, 0
  %g0 = and i1 %fits, %same
  %g1 = and i1 %g0, %aligned
  br i1 %g1, label %marks, label %fail
fail:
  call void @rl.fail(ptr %ctx, i32 700, ptr @rl.box.text, ptr %where, i64 %bytes, i64 %whole, i64 %to)
  ret void
marks:
  !get %done %chunks 1 donep i64
  %count = lshr i64 %bytes, 4
  %first = lshr i64 %to, 4
  br label %mark
mark:
  %k = phi i64 [0, %marks], [%k1, %marked]
  %chunk = add i64 %first, %k
  %word = mul i64 %chunk, 2
  %word4 = add i64 %word, 8
  !get %state %chunks %word4 at i64
  !get %reader %at 1 rp i64
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
  !turn k mk %count mark note
note:
  %target = getelementptr i8, ptr %shared, i64 %to
  call void @llvm.memset.p0.i64(ptr %target, i8 -1, i64 %bytes, i1 false)
  %n = load i64, ptr %queue
  %entries = getelementptr i8, ptr %queue, i64 64
  %e = getelementptr [11 x i64], ptr %entries, i64 %n
  store ptr %record, ptr %e
  !put %e 1 e1 i64 %c0
  !put %e 2 e2 i64 %c1
  !put %e 3 e3 i64 %c2
  !put %e 4 e4 i64 %c3
  !put %e 5 e5 i64 %c4
  !put %e 6 e6 i64 %to
  !put %e 7 e7 i64 %bytes
  !put %e 8 e8 ptr %bar
  !put %e 9 e9 ptr %where
  !put %e 10 e10 i64 %offsets
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %queue
  ret void
}
""")

# Copies of one barrier land, the others stay.
_LAND = expanded("""define internal void @rl.tile.land(ptr %ctx, ptr %queue, ptr %chunks, ptr %bar) noinline nounwind {
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
  %e = getelementptr [11 x i64], ptr %entries, i64 %i
  !get %for %e 8 e8 ptr
  %mine = icmp eq ptr %for, %bar
  br i1 %mine, label %land, label %keep
land:
  call void @rl.tile.copy(ptr %ctx, ptr %e)
  !get %bytes %e 7 e7 i64
  !get %to %e 6 e6 i64
  !get %old %bar 3 p3 i64
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
  !put %chunks %word8 at i64 2
  !turn k mk %count mark next
keep:
  %to2 = getelementptr [11 x i64], ptr %entries, i64 %j
  call void @llvm.memmove.p0.p0.i64(ptr %to2, ptr %e, i64 88, i1 false)
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
""")

# Where along a dim a row of a copy lies, and what of the row's number is left for further dims.  Rows of a box are counted
# within it; those of windows go on from position to position, and from image to image.
_PLACE = expanded("""define internal { i64, i64 } @rl.tile.place(ptr %record, ptr %e, i64 %d, i64 %rest) nounwind {
entry:
  !get %kind %record 15 kindp i64
  %flag = lshr i64 %kind, 32
  %windows = icmp ne i64 %flag, 0
  %c0p = getelementptr i64, ptr %e, i64 1
  !get %c %c0p %d cp i64
  br i1 %windows, label %window, label %box
box:
  %box0p = getelementptr i64, ptr %record, i64 10
  !get %b %box0p %d bp i64
  %within = urem i64 %rest, %b
  %outer = udiv i64 %rest, %b
  %inner = add i64 %c, %within
  br label %end
window:
  %last = icmp eq i64 %d, 4
  %image = add i64 %c, %rest
  br i1 %last, label %end, label %position
position:
  %dims = getelementptr i64, ptr %record, i64 11
  !get %w %dims %d wp i64
  %count = lshr i64 %w, 32
  %high = lshr i64 %w, 16
  %short = trunc i64 %high to i16
  %lower = sext i16 %short to i64
  %step = and i64 %w, 65535
  %from = sub i64 %c, %lower
  %first = udiv i64 %from, %step
  %number = add i64 %first, %rest
  %p = urem i64 %number, %count
  %carry = udiv i64 %number, %count
  !get %offsets %e 10 op i64
  %before = sub i64 %d, 1
  %shift = mul i64 %before, 16
  %moved = lshr i64 %offsets, %shift
  %offset = and i64 %moved, 65535
  %scaled = mul i64 %p, %step
  %base = add i64 %scaled, %lower
  %at = add i64 %base, %offset
  br label %end
end:
  %place = phi i64 [%inner, %box], [%image, %window], [%at, %position]
  %left = phi i64 [%outer, %box], [0, %window], [%carry, %position]
  %r0 = insertvalue { i64, i64 } poison, i64 %place, 0
  %r1 = insertvalue { i64, i64 } %r0, i64 %left, 1
  ret { i64, i64 } %r1
}
""")

# The box row by row, 16 bytes at a time, each to its place by the swizzle; zeros outside of the array.
_COPY = expanded("""define internal void @rl.tile.copy(ptr %ctx, ptr %e) noinline nounwind {
entry:
  %delta = load i64, ptr %ctx
  !context %shared 24 sp ptr
  %record = load ptr, ptr %e
  %base = load i64, ptr %record
  !get %kind %record 15 itemp i64
  %item = and i64 %kind, 4294967295
  !get %box0 %record 10 box0p i64
  %pitch = mul i64 %box0, %item
  !get %size0 %record 1 size0p i64
  %width = mul i64 %size0, %item
  !get %c0 %e 1 c0p i64
  %from0 = mul i64 %c0, %item
  !get %to %e 6 top i64
  !get %bytes %e 7 bytesp i64
  !get %where %e 9 wp ptr
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
  %found = call { i64, i64 } @rl.tile.place(ptr %record, ptr %e, i64 %d, i64 %rest)
  %place = extractvalue { i64, i64 } %found, 0
  %rest1 = extractvalue { i64, i64 } %found, 1
  !get %sz %size0p %d szp i64
  %ok = icmp ult i64 %place, %sz
  %in1 = and i1 %in, %ok
  %stp0 = getelementptr i64, ptr %record, i64 5
  !get %st %stp0 %d stp i64
  %step = mul i64 %place, %st
  %at1 = add i64 %at, %step
  !turn d md 5 dim pieces
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
  !turn r mr %rows row done
done:
  ret void
}
""")


def declare_group(module: ModuleText) -> None:
    """Barriers and copies."""
    if "@rl.mbar.init" in module.definitions:
        return
    space_check(module, "global")
    module.definitions.update(messages(_MESSAGES))
    module.definitions["@rl.mbar.init"] = _BARRIERS
    for name, text in (("issue", _ISSUE), ("land", _LAND), ("copy", _COPY), ("place", _PLACE)):
        module.definitions[f"@rl.tile.{name}"] = text
    for kind, more in (("memset.p0.i64", "ptr, i8, i64, i1"), ("memcpy.p0.p0.i64", "ptr, ptr, i64, i1")):
        module.declarations[f"@llvm.{kind}"] = f"declare void @llvm.{kind}({more})"
    module.declarations["@llvm.memmove.p0.p0.i64"] = "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)"
