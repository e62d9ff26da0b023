"""Functions that a twin calls: memory of the device and shared memory, with every access checked; races; messages.

The vectors of these functions are the 32 lanes of a warp.  An access outside of memory, or one that races with another
thread's, fills the report and sets the code that the twin gives in the end; it is then left out.

`Context` of the caller, by offset: delta 0, grid 8, code 20, shared 24, shared bytes 32, base of memory 48, its bytes
56, report 64.
"""

from __future__ import annotations

from rushlight._codegen.scalar import ModuleText

from .lines import expanded, messages

__all__ = ["ASSERT", "ILLEGAL", "MISALIGNED", "RACE", "RUNTIME", "atomic_helper", "cas_helper", "group_helper", "copy_helpers", "load_helper", "space_check", "store_helper"]  # fmt: skip

# results of a twin: the numbers of the CUDA driver's errors
ILLEGAL, ASSERT, MISALIGNED, RACE = 700, 710, 716, 719

_FUNCTIONS = expanded("""declare i32 @snprintf(ptr, i64, ptr, ...)
declare ptr @aligned_alloc(i64, i64)
declare ptr @calloc(i64, i64)
declare void @free(ptr)
declare i32 @llvm.cttz.i32(i32, i1)

define internal void @rl.fail(ptr %ctx, i32 %code, ptr %text, ptr %where, i64 %a, i64 %b, i64 %c) noinline cold nounwind {
  !context %old 20 cell i32
  %first = icmp eq i32 %old, 0
  br i1 %first, label %note, label %done
note:
  store i32 %code, ptr %cell
  !context %report 64 at ptr
  %none = icmp eq ptr %report, null
  br i1 %none, label %done, label %say
say:
  %n = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %report, i64 1024, ptr %text, ptr %where, i64 %a, i64 %b, i64 %c)
  br label %done
done:
  ret void
}

define internal void @rl.race(ptr %ctx, ptr %shadow, i64 %offset, i64 %size, i32 %thread, i32 %kind, ptr %where) noinline nounwind {
entry:
  %epoch = load i32, ptr %shadow
  %entries = getelementptr i8, ptr %shadow, i64 16
  %part = and i64 %size, 3
  %whole = icmp eq i64 %part, 0
  %apart = icmp ne i32 %kind, 2
  %quick = and i1 %whole, %apart
  br i1 %quick, label %words, label %bytes
words:
  !splat %ev e0 <16 x i32> i32 %epoch
  !splat %tv t0 <16 x i32> i32 %thread
  %store = icmp eq i32 %kind, 1
  %reads = select i1 %store, i16 4369, i16 0
  br label %word
word:
  %at4 = phi i64 [0, %words], [%next4, %mark]
  %start = add i64 %offset, %at4
  %four = getelementptr [4 x i32], ptr %entries, i64 %start
  %q = load <16 x i32>, ptr %four, align 4
  %e = icmp eq <16 x i32> %q, %ev
  %t = icmp ne <16 x i32> %q, %tv
  %eb = bitcast <16 x i1> %e to i16
  %tb = bitcast <16 x i1> %t to i16
  %t1 = lshr i16 %tb, 1
  %e2 = lshr i16 %eb, 2
  %t3 = lshr i16 %tb, 3
  %c0 = and i16 %eb, %t1
  %c1 = and i16 %c0, 4369
  %c2 = and i16 %e2, %t3
  %c3 = and i16 %c2, %reads
  %c4 = or i16 %c1, %c3
  %clash = icmp ne i16 %c4, 0
  br i1 %clash, label %bytes, label %mark
mark:
  !shuffle %es <16 x i1> %e poison 0 0 0 2 0 0 0 6 0 0 0 10 0 0 0 14
  %several = and <16 x i1> %es, %t
  %reader = select <16 x i1> %several, <16 x i32> splat (i32 -1), <16 x i32> %tv
  !shuffle %lefts <16 x i32> %ev %tv 0 16 0 16 0 16 0 16 0 16 0 16 0 16 0 16
  !shuffle %written <16 x i32> %lefts %q 0 1 18 19 4 5 22 23 8 9 26 27 12 13 30 31
  !shuffle %rights <16 x i32> %ev %reader 0 1 2 19 4 5 6 23 8 9 10 27 12 13 14 31
  !shuffle %seen <16 x i32> %rights %q 16 17 2 3 20 21 6 7 24 25 10 11 28 29 14 15
  %marked = select i1 %store, <16 x i32> %written, <16 x i32> %seen
  store <16 x i32> %marked, ptr %four, align 4
  %next4 = add i64 %at4, 4
  %further = icmp ult i64 %next4, %size
  br i1 %further, label %word, label %finished
finished:
  ret void
bytes:
  br label %loop
loop:
  %k = phi i64 [0, %bytes], [%k1, %next]
  %byte = add i64 %offset, %k
  %at = getelementptr [4 x i32], ptr %entries, i64 %byte
  %we = load i32, ptr %at
  %wtp = getelementptr i32, ptr %at, i64 1
  %wt = load i32, ptr %wtp
  %rep = getelementptr i32, ptr %at, i64 2
  %re = load i32, ptr %rep
  %rtp = getelementptr i32, ptr %at, i64 3
  %rt = load i32, ptr %rtp
  %wnow = icmp eq i32 %we, %epoch
  %wother = icmp ne i32 %wt, %thread
  %adds = icmp eq i32 %kind, 2
  %wadd = icmp eq i32 %wt, -2
  %both = and i1 %adds, %wadd
  %notboth = xor i1 %both, true
  %w0 = and i1 %wnow, %wother
  %w1 = and i1 %w0, %notboth
  %rnow = icmp eq i32 %re, %epoch
  %rother = icmp ne i32 %rt, %thread
  %writes = icmp ne i32 %kind, 0
  %r0 = and i1 %rnow, %rother
  %r1 = and i1 %r0, %writes
  %bad = or i1 %w1, %r1
  br i1 %bad, label %races, label %usual
races:
  %who = select i1 %w1, i32 %wt, i32 %rt
  %who64 = sext i32 %who to i64
  %me64 = sext i32 %thread to i64
  call void @rl.fail(ptr %ctx, i32 719, ptr @rl.race.text, ptr %where, i64 %who64, i64 %me64, i64 %byte)
  ret void
usual:
  br i1 %writes, label %write, label %read
write:
  %mine = select i1 %adds, i32 -2, i32 %thread
  store i32 %epoch, ptr %at
  store i32 %mine, ptr %wtp
  br label %next
read:
  %many = select i1 %r0, i32 -1, i32 %thread
  store i32 %epoch, ptr %rep
  store i32 %many, ptr %rtp
  br label %next
next:
  !turn k more %size loop done
done:
  ret void
}
""")

_MESSAGES = {
    "outside": "%s: %lld bytes at 0x%llx, which is outside of the memory of the device",
    "shared": "%s: %lld bytes at %lld of shared memory, which lie outside of it",
    "vector": "%s: threads move %lld bytes at once at 0x%llx, which are no aligned run of elements",
    "race": "%s: threads %lld and %lld touch byte %lld of shared memory without a barrier between them",
    "uniform": "%s: a value that is to be uniform differs from thread to thread",
    "assert": "%s",
    "rows": "%s: a row of a matrix begins at no multiple of 16 bytes of shared memory",
}


RUNTIME = _FUNCTIONS + "".join(text + "\n" for text in messages(_MESSAGES).values())

_CHECK = expanded("""define internal i32 @rl.check.{space}(ptr %ctx, <32 x i64> %addr, i32 %bits, i64 %size, ptr %where) noinline nounwind {{
entry:
  %bp = getelementptr i8, ptr %ctx, i64 {base}
  %base = {load_base}
  !context %bytes {bytes} np i64
  %last = sub i64 %bytes, %size
  !splat %bv b0 <32 x i64> i64 %base
  !splat %lv l0 <32 x i64> i64 %last
  %off = sub <32 x i64> %addr, %bv
  %in = icmp ule <32 x i64> %off, %lv
  %inbits0 = bitcast <32 x i1> %in to i32
  %short = icmp slt i64 %last, 0
  %inbits = select i1 %short, i32 0, i32 %inbits0
  %out = xor i32 %inbits, -1
  %bad = and i32 %bits, %out
  %any = icmp ne i32 %bad, 0
  br i1 %any, label %fail, label %fine
fail:
  %lane = call i32 @llvm.cttz.i32(i32 %bad, i1 false)
  %first = extractelement <32 x i64> %addr, i32 %lane
  call void @rl.fail(ptr %ctx, i32 700, ptr @rl.{text}.text, ptr %where, i64 %size, i64 %first, i64 0)
  br label %fine
fine:
  %good = and i32 %bits, %inbits
  ret i32 %good
}}
""")


def space_check(module: ModuleText, space: str) -> None:
    """The check of addresses, in global or shared memory."""
    if space == "global":
        text = _CHECK.format(space=space, base=48, bytes=56, load_base="load i64, ptr %bp", text="outside")
    else:
        text = _CHECK.format(space=space, base=24, bytes=32, load_base="add i64 0, 0", text="shared")
    module.definitions.setdefault(f"@rl.check.{space}", text)


def _origin(space: str) -> str:
    """Code for the offset from an address of this space to memory."""
    if space == "global":
        return "  %op = getelementptr i8, ptr %ctx, i64 0\n  %origin = load i64, ptr %op\n"
    return (
        "  %op = getelementptr i8, ptr %ctx, i64 24\n  %sp = load ptr, ptr %op\n  %origin = ptrtoint ptr %sp to i64\n"
    )


# one turn for each lane whose bit is set; {each} does it, for lane %i, at address %p
_LANES = expanded("""  %abuf = alloca [32 x i64], align 64
  store <32 x i64> %addr, ptr %abuf, align 64
{prepare}  br label %loop
loop:
  %i = phi i64 [0, %{entry}], [%i1, %next]
  %i32 = trunc i64 %i to i32
  %sh = lshr i32 %good, %i32
  %b = trunc i32 %sh to i1
  br i1 %b, label %do, label %next
do:
  !get %a %abuf %i ap i64
  %x = add i64 %a, %origin
  %p = inttoptr i64 %x to ptr
{each}  br label %next
next:
  !turn i more 32 loop end
end:
""")

_RACE = """  %t64 = add i64 %thread, %i
  %t = trunc i64 %t64 to i32
  call void @rl.race(ptr %ctx, ptr %shadow, i64 %a, i64 {size}, i32 %t, i32 {kind}, ptr %where)
"""


def _race(space: str, size: int, kind: int, races: bool) -> str:
    return _RACE.format(size=size, kind=kind) if space == "shared" and races else ""


def _lanes(entry: str, prepare: str, each: str) -> str:
    return _LANES.format(entry=entry, prepare=prepare, each=each)


def _hoisted(text: str) -> str:
    """The function with its memory of the stack taken at its begin."""
    lines = text.split("\n")
    taken = [line for line in lines if " = alloca " in line]
    rest = [line for line in lines if " = alloca " not in line]
    at = rest.index("entry:") + 1
    return "\n".join([*rest[:at], *taken, *rest[at:]])


def _parameters(space: str) -> str:
    extra = ", ptr %shadow, i64 %thread" if space == "shared" else ""
    return f"ptr %ctx, <32 x i64> %addr, i32 %bits{extra}, ptr %where"


def _is_run(bits: int, fast: str, slow: str) -> str:
    """Branch to `fast` where all lanes are set and lie side by side."""
    steps = ", ".join(f"i64 {k * bits // 8}" for k in range(32))
    return (
        "  %a0 = extractelement <32 x i64> %addr, i64 0\n"
        "  %a0v = insertelement <32 x i64> poison, i64 %a0, i64 0\n"
        "  %as = shufflevector <32 x i64> %a0v, <32 x i64> poison, <32 x i32> zeroinitializer\n"
        f"  %run = add <32 x i64> %as, <{steps}>\n"
        "  %same = icmp eq <32 x i64> %addr, %run\n"
        "  %samebits = bitcast <32 x i1> %same to i32\n"
        "  %all = and i32 %samebits, %good\n"
        "  %whole = icmp eq i32 %all, -1\n"
        f"  br i1 %whole, label %{fast}, label %{slow}\n"
    )


def load_helper(module: ModuleText, bits: int, space: str, races: bool) -> str:
    """(context, addresses, mask bits[, shadow, first thread], where, other) -> lanes."""
    return _access(module, bits, space, races, "load", "other")


def store_helper(module: ModuleText, bits: int, space: str, races: bool) -> str:
    """(context, addresses, mask bits[, shadow, first thread], where, lanes)."""
    return _access(module, bits, space, races, "store", "value")


def _access(module: ModuleText, bits: int, space: str, races: bool, kind: str, lanes: str) -> str:
    """The function that loads or stores; `lanes` names its last argument: lanes that lie in `room` while each has its turn."""
    name, size, loads = f"@rl.{kind}.{space}.{bits}", bits // 8, kind == "load"
    if name in module.definitions:
        return name
    space_check(module, space)
    vt, one, room = f"<32 x i{bits}>", f"i{bits}", "%out" if loads else "%buf"
    each = _race(space, size, int(not loads), races) + (
        f"  %v = load {one}, ptr %p, align 1\n  %vp = getelementptr {one}, ptr {room}, i64 %i\n  store {one} %v, ptr %vp\n" if loads
        else f"  %vp = getelementptr {one}, ptr {room}, i64 %i\n  %v = load {one}, ptr %vp\n  store {one} %v, ptr %p, align 1\n"
    )  # fmt: skip
    fast = ""
    if space == "global" or not races:
        whole = (
            f"  %fv = load {vt}, ptr %fp, align 1\n  ret {vt} %fv\n" if loads
            else f"  store {vt} %{lanes}, ptr %fp, align 1\n  ret void\n"
        )  # fmt: skip
        fast = _is_run(bits, "fast", "slow") + (
            f"fast:\n  %fx = add i64 %a0, %origin\n  %fp = inttoptr i64 %fx to ptr\n{whole}slow:\n"
        )
    prepare = f"  {room} = alloca {vt}, align 64\n  store {vt} %{lanes}, ptr {room}, align 64\n"
    end = f"  %r = load {vt}, ptr {room}, align 64\n  ret {vt} %r\n}}\n" if loads else "  ret void\n}\n"
    module.definitions[name] = _hoisted(
        f"define internal {vt if loads else 'void'} {name}({_parameters(space)}, {vt} %{lanes}) noinline nounwind {{\nentry:\n"
        f"  %good = call i32 @rl.check.{space}(ptr %ctx, <32 x i64> %addr, i32 %bits, i64 {size}, ptr %where)\n"
        + _origin(space)
        + fast
        + _lanes("slow" if fast else "entry", prepare, each)
        + end
    )
    return name


def atomic_helper(module: ModuleText, name: str, bits: int, space: str, update: str, races: bool) -> str:
    """(context, addresses, mask bits[, shadow, first thread], where, lanes) -> what was before.  `update` is text that
    makes i{bits} %new of %old and %v.
    """
    if name not in module.definitions:
        space_check(module, space)
        vt, size = f"<32 x i{bits}>", bits // 8
        each = _race(space, size, 2, races) + (
            f"  %vp = getelementptr i{bits}, ptr %buf, i64 %i\n  %v = load i{bits}, ptr %vp\n"
            f"  %begin = load atomic i{bits}, ptr %p monotonic, align {size}\n  br label %retry\nretry:\n"
            f"  %old = phi i{bits} [%begin, %do], [%seen, %retry]\n{update}"
            f"  %pair = cmpxchg ptr %p, i{bits} %old, i{bits} %new seq_cst seq_cst, align {size}\n"
            f"  %seen = extractvalue {{i{bits}, i1}} %pair, 0\n  %won = extractvalue {{i{bits}, i1}} %pair, 1\n"
            f"  br i1 %won, label %got, label %retry\ngot:\n"
            f"  %op2 = getelementptr i{bits}, ptr %out, i64 %i\n  store i{bits} %old, ptr %op2\n"
        )
        module.definitions[name] = _giving(name, space, vt, size, each, f"{vt} %value", "value")
    return name


def _giving(name: str, space: str, vt: str, size: int, each: str, extra: str, value: str) -> str:
    prepare = (
        f"  %buf = alloca {vt}, align 64\n  store {vt} %{value}, ptr %buf, align 64\n"
        f"  %out = alloca {vt}, align 64\n  store {vt} zeroinitializer, ptr %out, align 64\n"
    )
    if "%expected" in extra:
        prepare += f"  %ebuf = alloca {vt}, align 64\n  store {vt} %expected, ptr %ebuf, align 64\n"
    return _hoisted(
        f"define internal {vt} {name}({_parameters(space)}, {extra}) noinline nounwind {{\nentry:\n"
        f"  %good = call i32 @rl.check.{space}(ptr %ctx, <32 x i64> %addr, i32 %bits, i64 {size}, ptr %where)\n"
        + _origin(space)
        + _lanes("entry", prepare, each)
        + f"  %r = load {vt}, ptr %out, align 64\n  ret {vt} %r\n}}\n"
    )


def cas_helper(module: ModuleText, bits: int) -> str:
    """(context, addresses, mask bits, where, expected, lanes) -> what was before."""
    name = f"@rl.cas.{bits}"
    if name not in module.definitions:
        space_check(module, "global")
        vt, size = f"<32 x i{bits}>", bits // 8
        each = (
            f"  %vp = getelementptr i{bits}, ptr %buf, i64 %i\n  %v = load i{bits}, ptr %vp\n"
            f"  %ep = getelementptr i{bits}, ptr %ebuf, i64 %i\n  %e = load i{bits}, ptr %ep\n"
            f"  %pair = cmpxchg ptr %p, i{bits} %e, i{bits} %v seq_cst seq_cst, align {size}\n"
            f"  %seen = extractvalue {{i{bits}, i1}} %pair, 0\n"
            f"  %op2 = getelementptr i{bits}, ptr %out, i64 %i\n  store i{bits} %seen, ptr %op2\n"
        )
        module.definitions[name] = _giving(name, "global", vt, size, each, f"{vt} %expected, {vt} %value", "value")
    return name


_GROUP = expanded("""define internal void @rl.group(ptr %ctx, ptr %slot, <32 x i64> %addr, i32 %bits, i64 %place,
    i64 %size, i64 %all, ptr %where) noinline nounwind {
entry:
  %first = icmp eq i64 %place, 0
  br i1 %first, label %lead, label %follow
lead:
  store <32 x i64> %addr, ptr %slot, align 64
  %mp = getelementptr i8, ptr %slot, i64 256
  store i32 %bits, ptr %mp
  %less = sub i64 %all, 1
  !splat %lv l0 <32 x i64> i64 %less
  %rest = and <32 x i64> %addr, %lv
  %odd = icmp ne <32 x i64> %rest, zeroinitializer
  %oddbits = bitcast <32 x i1> %odd to i32
  %bad0 = and i32 %oddbits, %bits
  br label %judge
follow:
  %was = load <32 x i64>, ptr %slot, align 64
  %mq = getelementptr i8, ptr %slot, i64 256
  %wasbits = load i32, ptr %mq
  %step = mul i64 %place, %size
  !splat %sv s0 <32 x i64> i64 %step
  %want = add <32 x i64> %was, %sv
  %differs = icmp ne <32 x i64> %addr, %want
  %db = bitcast <32 x i1> %differs to i32
  %d2 = and i32 %db, %bits
  %mb = xor i32 %bits, %wasbits
  %bad1 = or i32 %d2, %mb
  br label %judge
judge:
  %bad = phi i32 [%bad0, %lead], [%bad1, %follow]
  %any = icmp ne i32 %bad, 0
  br i1 %any, label %fail, label %fine
fail:
  %lane = call i32 @llvm.cttz.i32(i32 %bad, i1 false)
  %a = extractelement <32 x i64> %addr, i32 %lane
  call void @rl.fail(ptr %ctx, i32 716, ptr @rl.vector.text, ptr %where, i64 %all, i64 %a, i64 0)
  br label %fine
fine:
  ret void
}
""")


def group_helper(module: ModuleText) -> str:
    """(context, slot of 260 bytes, addresses, mask bits, place in the group, element size, bytes of the group, where):
    the registers that are moved at once must be an aligned run under one mask.
    """
    module.definitions.setdefault("@rl.group", _GROUP)
    return "@rl.group"


# Copies in the background are done when they are waited for, as late as the hardware may do them: whoever reads before
# sees what was there.  Entries: source (or -1 for zeros), offset in shared memory, bytes, thread, group, text of the
# place.
_COPIES = expanded("""define internal void @rl.copy.issue(ptr %ctx, ptr %queue, <32 x i64> %addr, i32 %bits, <32 x i64> %to, i64 %size, i64 %thread,
    ptr %where) noinline nounwind {{
entry:
  %abuf = alloca [32 x i64], align 64
  %tbuf = alloca [32 x i64], align 64
  %good = call i32 @rl.check.global(ptr %ctx, <32 x i64> %addr, i32 %bits, i64 %size, ptr %where)
  %fits = call i32 @rl.check.shared(ptr %ctx, <32 x i64> %to, i32 -1, i64 %size, ptr %where)
  store <32 x i64> %addr, ptr %abuf, align 64
  store <32 x i64> %to, ptr %tbuf, align 64
  %tailp = getelementptr i8, ptr %queue, i64 8
  %groupp = getelementptr i8, ptr %queue, i64 16
  %group = load i64, ptr %groupp
  %entries = getelementptr i8, ptr %queue, i64 64
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%i1, %next]
  %i32 = trunc i64 %i to i32
  %fs = lshr i32 %fits, %i32
  %f = trunc i32 %fs to i1
  br i1 %f, label %do, label %next
do:
  %tail = load i64, ptr %tailp
  %slot = and i64 %tail, {mask}
  %e = getelementptr [6 x i64], ptr %entries, i64 %slot
  !get %a %abuf %i ap i64
  !get %t %tbuf %i tp i64
  %gs = lshr i32 %good, %i32
  %g = trunc i32 %gs to i1
  %from = select i1 %g, i64 %a, i64 -1
  store i64 %from, ptr %e
  !put %e 1 e1 i64 %t
  !put %e 2 e2 i64 %size
  %e3 = getelementptr i64, ptr %e, i64 3
  %who = add i64 %thread, %i
  store i64 %who, ptr %e3
  !put %e 4 e4 i64 %group
  !put %e 5 e5 ptr %where
  %tail1 = add i64 %tail, 1
  store i64 %tail1, ptr %tailp
  br label %next
next:
  !turn i more 32 loop done
done:
  ret void
}}

define internal void @rl.copy.wait(ptr %ctx, ptr %queue, ptr %shadow, i64 %pending) noinline nounwind {{
entry:
  %delta = load i64, ptr %ctx
  !context %shared 24 sp ptr
  %tailp = getelementptr i8, ptr %queue, i64 8
  %tail = load i64, ptr %tailp
  %groupp = getelementptr i8, ptr %queue, i64 16
  %group = load i64, ptr %groupp
  %until = sub i64 %group, %pending
  %entries = getelementptr i8, ptr %queue, i64 64
  br label %loop
loop:
  %head = load i64, ptr %queue
  %empty = icmp uge i64 %head, %tail
  br i1 %empty, label %done, label %look
look:
  %slot = and i64 %head, {mask}
  %e = getelementptr [6 x i64], ptr %entries, i64 %slot
  !get %g %e 4 e4 i64
  %ready = icmp slt i64 %g, %until
  br i1 %ready, label %copy, label %done
copy:
  %from = load i64, ptr %e
  !get %to %e 1 e1 i64
  !get %size %e 2 e2 i64
  !get %who %e 3 e3 i64
  !get %where %e 5 e5 ptr
  %who32 = trunc i64 %who to i32
{race}  %target = getelementptr i8, ptr %shared, i64 %to
  %none = icmp eq i64 %from, -1
  br i1 %none, label %zero, label %move
zero:
  call void @llvm.memset.p0.i64(ptr %target, i8 0, i64 %size, i1 false)
  br label %next
move:
  %at = add i64 %from, %delta
  %source = inttoptr i64 %at to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %size, i1 false)
  br label %next
next:
  %head1 = add i64 %head, 1
  store i64 %head1, ptr %queue
  br label %loop
done:
  ret void
}}
""")


def copy_helpers(module: ModuleText, capacity: int, races: bool) -> None:
    """`@rl.copy.issue` and `@rl.copy.wait` on a queue of so many entries (a power of two) of 48 bytes, after 64 bytes."""
    if "@rl.copy.issue" not in module.definitions:
        space_check(module, "global")
        space_check(module, "shared")
        call = "  call void @rl.race(ptr %ctx, ptr %shadow, i64 %to, i64 %size, i32 %who32, i32 1, ptr %where)\n"
        module.definitions["@rl.copy.issue"] = _COPIES.format(mask=capacity - 1, race=call if races else "")
        module.declarations["@llvm.memset.p0.i64"] = "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"
        module.declarations["@llvm.memcpy.p0.p0.i64"] = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
