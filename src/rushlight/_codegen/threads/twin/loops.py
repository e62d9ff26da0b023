"""Runs of the twin: loops over warps and registers, whose instructions are on vectors of 32 lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rushlight._codegen.scalar import Emitter, Val, mem_lanes, reg_type
from rushlight._codegen.scalar.writer import BITS, lane_mask
from rushlight._types.dtype import BOOL, DType

from ..form import WARP, Instruction, Value, print_format
from .lines import constant_text
from .plan import Step
from .runtime import atomic_helper, cas_helper, group_helper, load_helper, store_helper

if TYPE_CHECKING:
    from .printer import TwinPrinter

__all__ = ["load_lanes", "loop", "multiply_high", "print_loop", "print_matrix_load", "split_number"]

Parts = Any


@contextmanager
def loop(p: TwinPrinter, count: int) -> Iterator[str]:
    """A loop over 0 ... count - 1; gives the name of its index, an i64."""
    head, end, entry = p.new_label("loop"), p.new_label("done"), p.label
    index, following = p.em.fresh(), p.em.fresh()
    p.jump(head)
    p.begin(head)
    place = len(p.lines)
    p.lines.append("")
    yield index
    p.line(f"{following} = add i64 {index}, 1")
    more = p.effect(f"icmp ult i64 {following}, {count}", "i1")
    p.line(f"br i1 {more}, label %{head}, label %{end}")
    p.lines[place] = f"  {index} = phi i64 [0, %{entry}], [{following}, %{p.label}]"
    p.begin(end)


def split_number(p: TwinPrinter, number: str, count: int) -> tuple[str, str]:
    """Warp and register of a number of a loop."""
    if count == 1:
        return number, "0"
    if p.kernel.warps == 1:
        return "0", number
    warp = p.one.emit(f"udiv i64 {number}, {count}", "i64")
    return str(warp), str(p.one.emit(f"urem i64 {number}, {count}", "i64"))


class Run:
    """A run that is being printed: names of its values, the warp and the register that it is at."""

    def __init__(self, p: TwinPrinter, count: int, number: str) -> None:
        self.p, self.count = p, count
        self.warp, self.register = split_number(p, number, count)
        self.known: dict[Value, Parts] = {}
        self.thread = str(p.one.emit(f"mul i64 {self.warp}, {WARP}", "i64"))

    def of(self, value: Value) -> Parts:
        """A value at this register, as a vector."""
        found = self.known.get(value)
        if found is None:
            if value in self.p.scalars:
                found = self.p.spread(self.p.scalars[value])
            else:
                address = self.p.address(self.p.places[value], value.dtype, self.warp, self.register)
                found = self.p.read(address, value.dtype)
            self.known[value] = found
        return found


def print_loop(p: TwinPrinter, step: Step) -> None:
    """A run as a loop; what others use goes to memory."""
    for instruction in step.instructions:
        for value in instruction.results:
            if value in p.kept:
                p.places[value] = p.array(value.dtype, value.count)
    with loop(p, p.kernel.warps * step.count) as number, p.em.scope():
        run = Run(p, step.count, number)
        for instruction in step.instructions:
            made = _LOOPED[instruction.kind](run, instruction)
            for value in instruction.results:
                run.known[value] = made
                if value in p.kept:
                    p.write(p.address(p.places[value], value.dtype, run.warp, run.register), made, value.dtype)


# ***** instructions *****


def _index(run: Run, i: Instruction) -> Val:
    p, registers = run.p, i.attributes["registers"]
    lanes = [_xor(i.attributes["lanes"], lane) for lane in range(WARP)]
    vector = Val(p.em, "<" + ", ".join(f"i32 {n}" for n in lanes) + ">", "i32")
    warps = tuple(_xor(i.attributes["warps"], warp) for warp in range(p.kernel.warps))
    part = None
    for table, at in ((registers, run.register), (warps, run.warp)):
        if any(table):
            place = p.one.emit(f"getelementptr i32, ptr {p.table(tuple(table))}, i64 {at}", "")
            got = p.one.emit(f"load i32, ptr {place}", "i32")
            part = got if part is None else part ^ got
    return vector if part is None else vector ^ p.em.splat(part, "i32")


def _xor(bases: Sequence[int], place: int) -> int:
    total = 0
    for k, base in enumerate(bases):
        total ^= base if place >> k & 1 else 0
    return total


def _pointwise(run: Run, i: Instruction) -> Parts:
    operands, dtypes = [run.of(x) for x in i.operands], [x.dtype for x in i.operands]
    return run.p.em.op(i.attributes["prim"], operands, dtypes, i.result.dtype, i.attributes["params"])


def multiply_high(em: Emitter, a: Val, b: Val, dtype: DType) -> Val:
    """The upper half of the product of integers."""
    bits, how = 8 * dtype.itemsize, "sext" if dtype.is_signed else "zext"
    wide = em.vt(f"i{2 * bits}")
    a, b = (em.emit(f"{how} {x.vt} {x} to {wide}", "") for x in (a, b))
    product = em.emit(f"mul {wide} {a}, {b}", "")
    shift = str(bits) if em.width == 1 else f"splat (i{2 * bits} {bits})"
    high = em.emit(f"lshr {wide} {product}, {shift}", "")
    return em.emit(f"trunc {wide} {high} to {em.vt(f'i{bits}')}", f"i{bits}")


def _multiply_high(run: Run, i: Instruction) -> Val:
    a, b = (run.of(x) for x in i.operands)
    return multiply_high(run.p.em, a, b, i.result.dtype)


def _assert(run: Run, i: Instruction) -> None:
    good = run.p.em.all_lanes(run.of(i.operands[0]))
    run.p.fail_unless(good, i, 710, "assert")


def _print(run: Run, i: Instruction) -> None:
    """Lane by lane, by the C library."""
    p = run.p
    mask, *fields = (run.of(x) for x in i.operands)
    name = f"@print{len(p.module.definitions)}"
    p.module.definitions[name] = constant_text(name, print_format(i))
    p.module.declarations["@printf"] = "declare i32 @printf(ptr, ...)"
    p.module.declarations["@fflush"] = "declare i32 @fflush(ptr)"
    with loop(p, WARP) as lane, p.em.scope():
        says, after = p.new_label("print"), p.new_label("printed")
        here = p.one.emit(f"extractelement {mask.vt} {mask}, i64 {lane}", "i1")
        p.line(f"br i1 {here}, label %{says}, label %{after}")
        p.begin(says)
        given = [p.effect(f"extractelement {f.vt} {f}, i64 {lane}", f.type) for f in fields]
        listed = "".join(f", {g.type} {g}" for g in given)
        p.effect(f"call i32 (ptr, ...) @printf(ptr {name}, i32 %id.0, i32 %id.1, i32 %id.2{listed})")
        p.jump(after)
        p.begin(after)
    p.effect("call i32 @fflush(ptr null)")


# ***** memory *****


def _mask(run: Run, i: Instruction, place: int) -> Val:
    return run.of(i.operands[place]) if len(i.operands) > place else run.p.em.const("i1", True)


def _bits(p: TwinPrinter, mask: Val) -> str:
    return str(p.em.emit(f"bitcast <32 x i1> {mask} to i32", ""))


def _memory_bits(x: Val, dtype: DType) -> Val:
    """Lanes as integers, as they lie in memory."""
    if dtype is BOOL:
        return x.to("i8", signed=False)
    return x.em.bitcast(x, f"i{BITS[x.type]}")


def _from_bits(x: Val, dtype: DType) -> Val:
    return x.ne(0) if dtype is BOOL else x.em.bitcast(x, reg_type(dtype))


def _call(p: TwinPrinter, i: Instruction, space: str, address: Val, mask: Val, thread: str) -> str:
    """The first operands of a helper for memory."""
    extra = f", ptr %shadow, i64 {thread}" if space == "shared" else ""
    return f"ptr %ctx, <32 x i64> {address}, i32 {_bits(p, mask)}{extra}, ptr {p.where(i)}"


def load_lanes(
    p: TwinPrinter, i: Instruction, operands: Sequence[Parts], dtype: DType, space: str, thread: str
) -> Parts:
    """(address, mask[, other]) -> lanes."""
    address, mask = operands[:2]
    count = mem_lanes(dtype)
    parts = []
    for k in range(count):
        bits = 8 * dtype.itemsize // count
        helper = load_helper(p.module, bits, space, p.races)
        other = "zeroinitializer"
        if len(operands) > 2:
            given = operands[2][k] if count > 1 else operands[2]
            other = str(_memory_bits(given, dtype))
        at = address + k * bits // 8 if k else address
        text = f"call <32 x i{bits}> {helper}({_call(p, i, space, at, mask, thread)}, <32 x i{bits}> {other})"
        parts.append(_from_bits(p.effect(text, f"i{bits}", wide=True), dtype))
    return parts[0] if count == 1 else tuple(parts)


def _store_lanes(
    p: TwinPrinter, i: Instruction, operands: Sequence[Parts], dtype: DType, space: str, thread: str
) -> None:
    address, value, mask = operands
    count = mem_lanes(dtype)
    for k in range(count):
        bits = 8 * dtype.itemsize // count
        helper = store_helper(p.module, bits, space, p.races)
        part = _memory_bits(value[k] if count > 1 else value, dtype)
        at = address + k * bits // 8 if k else address
        p.line(f"call void {helper}({_call(p, i, space, at, mask, thread)}, <32 x i{bits}> {part})")


def _group(run: Run, i: Instruction, address: Val, mask: Val, itemsize: int) -> None:
    """Watch that registers which are moved at once are a run."""
    vector, p = i.attributes.get("vector", 1), run.p
    if vector == 1:
        return
    slot = p.reserve(320)
    place = p.one.emit(f"and i64 {run.register}, {vector - 1}", "i64")
    p.line(
        f"call void {group_helper(p.module)}(ptr %ctx, ptr {slot}, <32 x i64> {address}, i32 {_bits(p, mask)}, i64 {place}, i64 {itemsize}, "
        f"i64 {itemsize * vector}, ptr {p.where(i)})"
    )


def _load(run: Run, i: Instruction) -> Parts:
    operands = [run.of(i.operands[0]), _mask(run, i, 1), *([run.of(i.operands[2])] if len(i.operands) > 2 else [])]
    _group(run, i, operands[0], operands[1], i.result.dtype.itemsize)
    return load_lanes(run.p, i, operands, i.result.dtype, "global", "0")


def _store(run: Run, i: Instruction) -> None:
    dtype = i.operands[1].dtype
    operands = [run.of(i.operands[0]), run.of(i.operands[1]), _mask(run, i, 2)]
    _group(run, i, operands[0], operands[2], dtype.itemsize)
    _store_lanes(run.p, i, operands, dtype, "global", "0")


def _shared(run: Run, i: Instruction) -> Val:
    """Offsets in all of shared memory, as i64."""
    offset = run.of(i.operands[0]) + i.attributes["buffer"].offset
    return offset.to("i64", signed=False)


def _shared_load(run: Run, i: Instruction) -> Parts:
    address, mask = _shared(run, i), run.p.em.const("i1", True)
    _group(run, i, address, mask, i.result.dtype.itemsize)
    return load_lanes(run.p, i, [address, mask], i.result.dtype, "shared", run.thread)


def print_matrix_load(p: TwinPrinter, i: Instruction) -> None:
    """Lane by lane what `ldmatrix` gives, from the rows that lanes name."""
    (rows,), dtype, n = i.operands, i.attributes["dtype"], i.attributes["matrices"]
    size, each = dtype.itemsize, 4 // dtype.itemsize
    target = p.places[i.result] = p.array(dtype, i.result.count)
    with loop(p, p.kernel.warps * rows.count) as number, p.em.scope():
        warp, group = split_number(p, number, rows.count)
        place = p.read(p.address(p.places[rows], rows.dtype, warp, group), rows.dtype)
        address = (place + i.attributes["buffer"].offset).to("i64", signed=False)
        mask, thread = p.em.const("i1", True), str(p.one.emit(f"mul i64 {warp}, {WARP}", "i64"))
        first = p.one.emit(f"mul i64 {group}, {n * each}", "i64")
        aligned = p.em.all_lanes((address & 15).eq(0))
        p.fail_unless(aligned, i, 716, "rows")
        for matrix in range(n):
            for k in range(each):
                if i.attributes["transposed"]:
                    order, within = (
                        [8 * matrix + 2 * (lane % 4) + k for lane in range(WARP)],
                        [lane // 4 for lane in range(WARP)],
                    )
                else:
                    order, within = (
                        [8 * matrix + lane // 4 for lane in range(WARP)],
                        [each * (lane % 4) + k for lane in range(WARP)],
                    )
                moved = p.em.emit(
                    f"shufflevector {address.vt} {address}, {address.vt} poison, {lane_mask(order)}", "i64"
                )
                more = Val(p.em, "<" + ", ".join(f"i64 {size * w}" for w in within) + ">", "i64")
                made = load_lanes(p, i, [moved + more, mask], dtype, "shared", thread)
                at = p.one.emit(f"add i64 {first}, {matrix * each + k}", "i64")
                p.write(p.address(target, dtype, warp, str(at)), made, dtype)


def _shared_store(run: Run, i: Instruction) -> None:
    dtype, address, mask = i.operands[1].dtype, _shared(run, i), _mask(run, i, 2)
    _group(run, i, address, mask, dtype.itemsize)
    _store_lanes(run.p, i, [address, run.of(i.operands[1]), mask], dtype, "shared", run.thread)


def _copy_async(run: Run, i: Instruction) -> None:
    """Into the queue of copies; they are done when they are waited for."""
    p = run.p
    offset, address, mask = _shared(run, i), run.of(i.operands[1]), _mask(run, i, 2)
    p.line(
        f"call void @rl.copy.issue(ptr %ctx, ptr {p.copies()}, <32 x i64> {address}, i32 {_bits(p, mask)}, <32 x i64> {offset}, "
        f"i64 {i.attributes['bytes']}, i64 {run.thread}, ptr {p.where(i)})"
    )


# ***** atomics *****

_PRIMS = {
    "add": "add",
    "max": "maximum",
    "min": "minimum",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}


def _update(p: TwinPrinter, combine: str, dtype: DType, bits: int) -> str:
    """Text that makes %new of %old and %v."""
    if combine == "xchg":
        return f"  %new = add i{bits} %v, 0\n"
    em = Emitter(1, p.module, fma=p.em.fma_hardware, prefix="u")
    old, v = (em.bitcast(em.val(name, f"i{bits}"), reg_type(dtype)) for name in ("%old", "%v"))
    made = em.bitcast(em.op(_PRIMS[combine], [old, v], [dtype, dtype], dtype), f"i{bits}")  # type: ignore[arg-type]
    return "\n".join([*em.lines, f"  %new = add i{bits} {made}, 0", ""])


def _atomic_lanes(run: Run, i: Instruction, combine: str, space: str, address: Val, mask: Val) -> Val:
    p, value = run.p, i.operands[1]
    bits = 8 * value.dtype.itemsize
    name = f"@rl.atomic.{space}.{combine}.{value.dtype.name}"
    update = "" if name in p.module.definitions else _update(p, combine, value.dtype, bits)
    helper = atomic_helper(p.module, name, bits, space, update, p.races)
    given = _memory_bits(run.of(value), value.dtype)
    text = f"call <32 x i{bits}> {helper}({_call(p, i, space, address, mask, run.thread)}, <32 x i{bits}> {given})"
    return _from_bits(p.effect(text, f"i{bits}", wide=True), value.dtype)


def _atomic(run: Run, i: Instruction) -> Val:
    return _atomic_lanes(run, i, i.attributes["combine"], "global", run.of(i.operands[0]), _mask(run, i, 2))


def _shared_add(run: Run, i: Instruction) -> None:
    _atomic_lanes(run, i, "add", "shared", _shared(run, i), _mask(run, i, 2))


def _atomic_cas(run: Run, i: Instruction) -> Val:
    p, dtype = run.p, i.operands[1].dtype
    bits = 8 * dtype.itemsize
    helper = cas_helper(p.module, bits)
    expected, value = (_memory_bits(run.of(x), dtype) for x in i.operands[1:3])
    first = _call(p, i, "global", run.of(i.operands[0]), _mask(run, i, 3), "0")
    text = f"call <32 x i{bits}> {helper}({first}, <32 x i{bits}> {expected}, <32 x i{bits}> {value})"
    return _from_bits(p.effect(text, f"i{bits}", wide=True), dtype)


# ***** shuffles *****


def _shuffle(run: Run, i: Instruction) -> Parts:
    order = lane_mask([lane ^ i.attributes["xor"] for lane in range(WARP)])

    def moved(x: Parts) -> Parts:
        if isinstance(x, tuple):
            return tuple(map(moved, x))
        return run.p.em.emit(f"shufflevector {x.vt} {x}, {x.vt} poison, {order}", x.type)

    return moved(run.of(i.operands[0]))


def _shuffle_index(run: Run, i: Instruction) -> Val:
    """Lane by lane: which lane is only known when the kernel runs."""
    p, x, lanes = run.p, run.of(i.operands[0]), run.of(i.operands[1])
    made = "poison"
    for lane in range(WARP):
        which = p.one.emit(f"extractelement {lanes.vt} {lanes}, i64 {lane}", "i32")
        got = p.one.emit(f"extractelement {x.vt} {x}, i32 {which & 31}", x.type)
        made = str(p.em.emit(f"insertelement {x.vt} {made}, {x.type} {got}, i64 {lane}", x.type))
    return Val(p.em, made, x.type)


_LOOPED: dict[str, Callable[[Run, Instruction], Any]] = {
    "index": _index, "pointwise": _pointwise, "multiply_high": _multiply_high, "load": _load, "store": _store, "atomic": _atomic,
    "atomic_cas": _atomic_cas, "shared_load": _shared_load, "shared_store": _shared_store, "shared_add": _shared_add, "shuffle": _shuffle,
    "shuffle_index": _shuffle_index, "assert": _assert, "copy_async": _copy_async, "print": _print,
}  # fmt: skip
