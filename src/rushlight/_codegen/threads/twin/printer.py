"""The thread form as LLVM text for x86: the twin of a kernel for the GPU, run thread by thread.

A warp is a vector of 32 lanes.  Instructions are taken in runs, and each run is a loop over the warps of the block and the
registers of its values; what one run makes for another lies in memory, by warp and register.  Uniform values are scalars,
control flow is the block's.  So a barrier is the end of a run, and what one thread may not know of another is never used:
accesses of shared memory are watched for races between barriers, vector accesses for alignment, uniform values for equality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rushlight._codegen.scalar import Emitter, ModuleText, Val, mem_lanes, reg_type
from rushlight._codegen.scalar.writer import BITS
from rushlight._types.dtype import BOOL, DType

from ..form import WARP, Body, Instruction, ThreadKernel, Value
from . import group, loops
from .lines import constant_text
from .matrix import mma_helper
from .plan import Step, plan
from .runtime import RUNTIME, copy_helpers

__all__ = ["Place", "TwinPrinter", "twin_text"]

Parts = Any  # a Val, or a pair of them for complex numbers


def twin_text(kernel: ThreadKernel, *, races: bool = True, fma: bool = True) -> str:
    """LLVM text with `i32 name(context, parameters, first, last)`; it needs malloc and snprintf of the process.

    `races` watches shared memory; `fma` says whether the processor multiplies and adds in one instruction.
    """
    return TwinPrinter(kernel, races, fma).text()


@dataclass(frozen=True, slots=True)
class Place:
    """Registers in memory: `pointer` to `count` of them a warp; `table` says which are a value's, all in order if None."""

    pointer: str
    count: int
    table: tuple[int, ...] | None = None

    @property
    def is_whole(self) -> bool:
        return self.table is None or self.table == tuple(range(self.count))


class TwinPrinter:
    """Prints one kernel."""

    def __init__(self, kernel: ThreadKernel, races: bool, fma: bool) -> None:
        self.kernel, self.races = kernel, races and kernel.shared > 0
        self.module = ModuleText()
        self.em = Emitter(WARP, self.module, fma=fma)
        self.one = self.em.at(1)
        self.lines = self.em.lines
        self.scalars: dict[Value, Parts] = {}
        self.places: dict[Value, Place] = {}
        self.size = 0  # of what lies in memory
        self.arrays: list[tuple[str, int]] = []
        self.tables: dict[tuple[int, ...], str] = {}
        self.label, self.labels = "program", 0
        self.kept: set[Value] = set()
        self.queue = ""
        self.group_state: Any = None  # of barriers and bulk copies: see `group`

    # ***** the function *****

    def text(self) -> str:
        steps = plan(self.kernel.body)
        self.kept = kept_values(steps, self.kernel.body)
        self._arguments()
        self.epoch()
        if any(i.kind == "copy_async" for i in self.kernel.body.walk()):
            for at in (0, 8, 16):  # head, tail, and the number of the open group
                place = self.effect(f"getelementptr i8, ptr {self.copies()}, i64 {at}")
                self.line(f"store i64 0, ptr {place}")
        self.steps(steps)
        body = "\n".join(self.lines)
        self.em.checks.clear()
        pieces = "\n".join(f"  {name} = getelementptr i8, ptr %memory, i64 {offset}" for name, offset in self.arrays)
        shadow = 16 * self.kernel.shared + 16 if self.races else 0
        text = _FRAME.format(
            name=self.kernel.name, memory=-(-max(self.size, 64) // 64) * 64, pieces=pieces, body=body, label=self.label,
            shadow=f"call ptr @calloc(i64 1, i64 {shadow})" if shadow else "getelementptr i8, ptr null, i64 0",
        )  # fmt: skip
        return "\n".join([RUNTIME, _functions(self.module), text])

    def _arguments(self) -> None:
        for i, param in enumerate(self.kernel.params[: self.kernel.table]):
            self.scalars[param] = self.argument(str(8 * i), param.dtype)

    def argument(self, offset: str, dtype: DType) -> Parts:
        """The parameter at an offset in bytes."""
        at = self.effect(f"getelementptr i8, ptr %params, i64 {offset}")
        raw = self.effect(f"load {self.one.mem_vt(dtype)}, ptr {at}, align 4")
        return self.one.from_memory(raw.name, dtype)

    # ***** text *****

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def effect(self, text: str, type: str = "", wide: bool = False) -> Val:
        """An instruction that is never taken for another with the same text."""
        name = self.em.fresh()
        self.line(f"{name} = {text}")
        return Val(self.em if wide else self.one, name, type)

    def new_label(self, name: str) -> str:
        self.labels += 1
        return f"{name}{self.labels}"

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def where(self, instruction: Instruction) -> str:
        """A text that says what is done and where in the program's source."""
        file, number = instruction.line or (self.kernel.name, 0)
        text = f"{file}:{number}: {instruction.attributes.get('message') or instruction.kind}"
        name = "@where." + "".join(f"{b:02x}" for b in text.encode())[:200]
        self.module.definitions.setdefault(name, constant_text(name, text))
        return name

    def table(self, numbers: tuple[int, ...]) -> str:
        """A constant array of i32."""
        found = self.tables.get(numbers)
        if found is None:
            found = self.tables[numbers] = f"@table{len(self.tables)}"
            listed = ", ".join(f"i32 {n}" for n in numbers)
            self.module.definitions[found] = f"{found} = private constant [{len(numbers)} x i32] [{listed}]"
        return found

    def reserve(self, size: int) -> str:
        """Memory of a call, aligned to 64 bytes; the name of its pointer."""
        name = f"%m{len(self.arrays)}"
        self.arrays.append((name, self.size))
        self.size += -(-size // 64) * 64
        return name

    def copies(self) -> str:
        """The queue of copies in the background; it has room for those of several groups."""
        if not self.queue:
            issued = [i for i in self.kernel.body.walk() if i.kind == "copy_async"]
            entries = 8 * self.kernel.threads * sum(i.operands[0].count for i in issued)
            capacity = 1 << (entries - 1).bit_length()
            copy_helpers(self.module, capacity, self.races)
            self.queue = self.reserve(64 + 48 * capacity)
        return self.queue

    def array(self, dtype: DType, count: int) -> Place:
        """Memory for `count` registers of each warp."""
        return Place(self.reserve(self.kernel.warps * count * vector_bytes(dtype)), count)

    # ***** registers in memory *****

    def address(self, place: Place, dtype: DType, warp: str, register: str) -> str:
        """The address of a register (an i64 each)."""
        if not place.is_whole:
            assert place.table is not None
            at = self.one.emit(f"getelementptr i32, ptr {self.table(place.table)}, i64 {register}", "")
            small = self.one.emit(f"load i32, ptr {at}", "i32")
            register = str(self.one.emit(f"zext i32 {small} to i64", "i64"))
        row = self.one.emit(f"mul i64 {warp}, {place.count}", "i64")
        number = self.one.emit(f"add i64 {row}, {register}", "i64")
        offset = self.one.emit(f"mul i64 {number}, {vector_bytes(dtype)}", "i64")
        return str(self.one.emit(f"getelementptr i8, ptr {place.pointer}, i64 {offset}", ""))

    def read(self, address: str, dtype: DType) -> Parts:
        if dtype is BOOL:
            raw = self.effect(f"load i32, ptr {address}", "i32")
            return Val(self.em, self.effect(f"bitcast i32 {raw} to <32 x i1>").name, "i1")
        type = reg_type(dtype)
        parts = []
        for k in range(mem_lanes(dtype)):
            at = self.one.emit(f"getelementptr <32 x {type}>, ptr {address}, i64 {k}", "")
            parts.append(self.effect(f"load <32 x {type}>, ptr {at}, align 4", type, wide=True))
        return parts[0] if len(parts) == 1 else tuple(parts)

    def write(self, address: str, value: Parts, dtype: DType) -> None:
        if dtype is BOOL:
            bits = self.em.emit(f"bitcast <32 x i1> {value} to i32", "")
            self.line(f"store i32 {bits}, ptr {address}")
            return
        for k, part in enumerate(value if isinstance(value, tuple) else (value,)):
            at = self.one.emit(f"getelementptr <32 x {part.type}>, ptr {address}, i64 {k}", "")
            self.line(f"store {part.vt} {part}, ptr {at}, align 4")

    def spread(self, scalar: Parts) -> Parts:
        if isinstance(scalar, tuple):
            return tuple(self.spread(part) for part in scalar)
        return self.em.splat(scalar, scalar.type)

    def copy(self, value: Value, target: Place, dtype: DType) -> None:
        """The registers of a value to a place of their own."""
        with loops.loop(self, self.kernel.warps * target.count) as number:
            with self.em.scope():
                warp, register = loops.split_number(self, number, target.count)
                if value in self.scalars:
                    made = self.spread(self.scalars[value])
                else:
                    made = self.read(self.address(self.places[value], dtype, warp, register), dtype)
                self.write(self.address(target, dtype, warp, register), made, dtype)

    # ***** steps *****

    def steps(self, steps: Sequence[Step]) -> None:
        for step in steps:
            first = step.instructions[0]
            if step.count:
                loops.print_loop(self, step)
            elif step.bodies:
                _CONTROL[first.kind](self, first, step.bodies)
            else:
                _BLOCK[first.kind](self, first)

    def epoch(self) -> None:
        """A barrier: what was touched before may be touched by others."""
        if self.races:
            old = self.effect("load i32, ptr %shadow", "i32")
            self.line(f"store i32 {self.effect(f'add i32 {old}, 1', 'i32')}, ptr %shadow")

    def fail_unless(self, good: str, instruction: Instruction, code: int, text: str) -> None:
        """A report, and the code at the end, where a condition does not hold."""
        bad, after = self.new_label("bad"), self.new_label("good")
        where = self.where(instruction)
        self.line(f"br i1 {good}, label %{after}, label %{bad}")
        self.begin(bad)
        self.line(f"call void @rl.fail(ptr %ctx, i32 {code}, ptr @rl.{text}.text, ptr {where}, i64 0, i64 0, i64 0)")
        self.jump(after)
        self.begin(after)

    def phis(self, values: Sequence[Value]) -> tuple[list[int], list[Parts]]:
        """Places of phis of uniform values in the text, and their names."""
        at, made = [], []
        for value in values:
            type = reg_type(value.dtype)
            names = [Val(self.one, self.em.fresh(), type) for _ in range(mem_lanes(value.dtype))]
            for _ in names:
                at.append(len(self.lines))
                self.lines.append("")
            made.append(names[0] if len(names) == 1 else tuple(names))
        return at, made

    def close_phis(self, at: list[int], made: list[Parts], sources: Sequence[tuple[str, list[Parts]]]) -> None:
        position = iter(at)
        for i, name in enumerate(made):
            parts = name if isinstance(name, tuple) else (name,)
            for k, part in enumerate(parts):
                given = []
                for label, values in sources:
                    value = values[i]
                    given.append(f"[{value[k] if isinstance(value, tuple) else value}, %{label}]")
                self.lines[next(position)] = f"  {part} = phi {part.type} {', '.join(given)}"

    # ***** loops *****

    def loop(self, body: Body, operands: Sequence[Value], results: Sequence[Value], steps: Sequence[Step]) -> None:
        """A body for each index (low, high, step, values...); the values after the last turn are the results."""
        index, params = body.params[0], body.params[1:]
        low, high, step = (self.scalars[x] for x in operands[:3])
        self.make_places(params)
        self.move(operands[3:], params)
        head, inside, after, entry = *(self.new_label(n) for n in ("for", "body", "after")), self.label
        self.jump(head)
        self.begin(head)
        uniform = [index, *(q for q in params if q.uniform)]
        at, made = self.phis(uniform)
        self.scalars.update(zip(uniform, made, strict=True))
        with self.em.scope():
            goes = self.one.emit(f"icmp {'slt' if index.dtype.is_signed else 'ult'} {low.type} {made[0]}, {high}", "i1")
            self.line(f"br i1 {goes}, label %{inside}, label %{after}")
            self.begin(inside)
            self.steps(steps)
            self.move(body.yielded, params)
            following = made[0] + step
            self.jump(head)
            start = [low, *(self.scalars[x] for x in _uniform_of(operands[3:], params))]
            ends = [following, *(self.scalars[x] for x in _uniform_of(body.yielded, params))]
            self.close_phis(at, made, [(entry, start), (self.label, ends)])
        self.begin(after)
        self.give(results, params)

    def move(self, values: Sequence[Value], targets: Sequence[Value]) -> None:
        """The registers of values to the places of loop parameters, all at once."""
        pairs = [(v, t) for v, t in zip(values, targets, strict=True) if not t.uniform]
        pairs = [(v, t) for v, t in pairs if self.places.get(v) is None or self.places[v] != self.places[t]]
        pointers = {self.places[t].pointer for _, t in pairs}
        for n, (value, target) in enumerate(pairs):
            place = self.places.get(value)
            if place is not None and place.pointer in pointers:  # it would be overwritten before it is read
                aside = self.array(value.dtype, value.count)
                self.copy(value, aside, value.dtype)
                stand_in = Value(value.type)
                self.places[stand_in] = aside
                pairs[n] = (stand_in, target)
        for value, target in pairs:
            self.copy(value, self.places[target], target.dtype)

    def make_places(self, values: Sequence[Value]) -> None:
        for value in values:
            if not value.uniform:
                self.places[value] = self.array(value.dtype, value.count)

    def give(self, names: Sequence[Value], values: Sequence[Value]) -> None:
        """Names for values that lie somewhere already."""
        for name, value in zip(names, values, strict=True):
            if value in self.scalars:
                self.scalars[name] = self.scalars[value]
            else:
                self.places[name] = self.places[value]


def vector_bytes(dtype: DType) -> int:
    """Bytes of a warp's register in memory."""
    return 4 if dtype is BOOL else WARP * mem_lanes(dtype) * BITS[reg_type(dtype)] // 8


def kept_values(steps: Sequence[Step], body: Body) -> set[Value]:
    """Values of loops that are used elsewhere, so that they lie in memory."""
    home: dict[Value, int] = {}
    kept: set[Value] = set()

    def visit(steps: Sequence[Step], body: Body) -> None:
        for step in steps:
            for instruction in step.instructions:
                if step.count:
                    for value in instruction.results:
                        home[value] = id(step)
                kept.update(v for v in instruction.operands if v in home and (not step.count or home[v] != id(step)))
            for inner, inner_body in zip(step.bodies, step.instructions[0].bodies, strict=False):
                visit(inner, inner_body)
        kept.update(v for v in body.yielded if v in home)

    visit(steps, body)
    return kept


# ***** instructions of the whole block *****


def _number(p: TwinPrinter, i: Instruction) -> None:
    p.scalars[i.result] = p.one.number(i.attributes["value"], i.result.dtype)


def _argument(p: TwinPrinter, i: Instruction) -> None:
    number, first, step = p.scalars[i.operands[0]], i.attributes["first"], i.attributes["step"]
    wide = p.effect(f"sext {number.type} {number} to i64")
    scaled = p.effect(f"mul i64 {wide}, {8 * step}")
    p.scalars[i.result] = p.argument(str(p.effect(f"add i64 {scaled}, {8 * first}")), i.result.dtype)


def _program(p: TwinPrinter, i: Instruction) -> None:
    prefix = "%id" if i.kind == "program_id" else "%grid"
    p.scalars[i.result] = Val(p.one, f"{prefix}.{i.attributes['axis']}", "i32")


def _pointwise(p: TwinPrinter, i: Instruction) -> None:
    operands = [p.scalars[x] for x in i.operands]
    dtypes = [x.dtype for x in i.operands]
    p.scalars[i.result] = p.one.op(i.attributes["prim"], operands, dtypes, i.result.dtype, i.attributes["params"])


def _multiply_high(p: TwinPrinter, i: Instruction) -> None:
    a, b = (p.scalars[x] for x in i.operands)
    p.scalars[i.result] = loops.multiply_high(p.one, a, b, i.result.dtype)


def _load(p: TwinPrinter, i: Instruction) -> None:
    """A scalar: lane 0 of a vector access."""
    operands = [p.spread(p.scalars[x]) for x in i.operands]
    dtype = i.result.dtype
    if len(operands) == 1:
        operands.append(p.em.const("i1", True))
    made = loops.load_lanes(p, i, operands, dtype, "global", "0")
    parts = made if isinstance(made, tuple) else (made,)
    scalars = [p.one.emit(f"extractelement {x.vt} {x}, i64 0", x.type) for x in parts]
    p.scalars[i.result] = scalars[0] if len(scalars) == 1 else tuple(scalars)


def _pick(p: TwinPrinter, i: Instruction) -> None:
    sources = i.attributes["sources"]
    operands = {o for o, _ in sources}
    if len(operands) == 1:
        source = i.operands[operands.pop()]
        if source in p.scalars:
            p.scalars[i.result] = p.scalars[source]
            return
        place = p.places[source]
        table = tuple(r if place.table is None else place.table[r] for _, r in sources)
        p.places[i.result] = Place(place.pointer, place.count, table)
        return
    dtype, target = i.result.dtype, p.array(i.result.dtype, i.result.count)
    with loops.loop(p, p.kernel.warps) as warp, p.em.scope():
        for r, (o, k) in enumerate(sources):
            source = i.operands[o]
            if source in p.scalars:
                made = p.spread(p.scalars[source])
            else:
                made = p.read(p.address(p.places[source], dtype, warp, str(k)), dtype)
            p.write(p.address(target, dtype, warp, str(r)), made, dtype)
    p.places[i.result] = target


def _run_of(p: TwinPrinter, value: Value, warp: str) -> str:
    """The address of a warp's registers of a value, one after the other."""
    place = p.places.get(value)
    if place is not None and place.table is not None:
        first = place.table[0]
        if place.table == tuple(range(first, first + len(place.table))):
            return p.address(Place(place.pointer, place.count), value.dtype, warp, str(first))
    if place is None or not place.is_whole:
        place = p.array(value.dtype, value.count)
        p.copy(value, place, value.dtype)
    return p.address(place, value.dtype, warp, "0")


def _mma(p: TwinPrinter, i: Instruction) -> None:
    helper = mma_helper(p.module, i.attributes["form"], p.em.fma_hardware)
    target = p.array(i.result.dtype, i.result.count)
    for value in i.operands:  # those that must be copied are, before the loop over warps
        place = p.places.get(value)
        run = place is not None and (
            place.table is None or place.table == tuple(range(place.table[0], place.table[0] + len(place.table)))
        )
        if not run:
            fresh = p.array(value.dtype, value.count)
            p.copy(value, fresh, value.dtype)
            p.scalars.pop(value, None)
            p.places[value] = fresh
    with loops.loop(p, p.kernel.warps) as warp, p.em.scope():
        operands = [_run_of(p, x, warp) for x in i.operands]
        operands.append(p.address(target, i.result.dtype, warp, "0"))
        p.line(f"call void {helper}({', '.join(f'ptr {x}' for x in operands)})")
    p.places[i.result] = target


def _uniform(p: TwinPrinter, i: Instruction) -> None:
    """The register of the first thread; the others must have the same."""
    (x,) = i.operands
    if x in p.scalars:
        p.scalars[i.result] = p.scalars[x]
        return
    dtype = x.dtype
    first = p.read(p.address(p.places[x], dtype, "0", "0"), dtype)
    parts = first if isinstance(first, tuple) else (first,)
    scalars = [p.effect(f"extractelement {part.vt} {part}, i64 0", part.type) for part in parts]
    p.scalars[i.result] = scalars[0] if len(scalars) == 1 else tuple(scalars)
    with loops.loop(p, p.kernel.warps) as warp, p.em.scope():
        mine = p.read(p.address(p.places[x], dtype, warp, "0"), dtype)
        for part, scalar in zip(mine if isinstance(mine, tuple) else (mine,), scalars, strict=True):
            bits = f"i{BITS[part.type]}"
            same = p.em.bitcast(part, bits).eq(p.em.bitcast(p.em.splat(scalar, scalar.type), bits))
            nan = part.is_nan() if part.type in ("float", "double", "half") else None
            good = p.em.all_lanes(same if nan is None else same | nan)
            p.fail_unless(good, i, 719, "uniform")


def _assert(p: TwinPrinter, i: Instruction) -> None:
    p.fail_unless(str(p.scalars[i.operands[0]]), i, 710, "assert")


def _barrier(p: TwinPrinter, i: Instruction) -> None:
    p.epoch()


def _copy_commit(p: TwinPrinter, i: Instruction) -> None:
    """The open group is closed, and another is open."""
    at = p.effect(f"getelementptr i8, ptr {p.copies()}, i64 16")
    old = p.effect(f"load i64, ptr {at}", "i64")
    p.line(f"store i64 {p.effect(f'add i64 {old}, 1', 'i64')}, ptr {at}")


def _copy_wait(p: TwinPrinter, i: Instruction) -> None:
    p.line(f"call void @rl.copy.wait(ptr %ctx, ptr {p.copies()}, ptr %shadow, i64 {i.attributes['pending']})")


def _nothing(p: TwinPrinter, i: Instruction) -> None:
    """A barrier of a warp: its lanes run together anyway."""


_BLOCK = {
    "number": _number, "argument": _argument, "program_id": _program, "num_programs": _program, "pointwise": _pointwise, "multiply_high": _multiply_high,
    "load": _load, "pick": _pick, "mma": _mma, "uniform": _uniform, "assert": _assert, "barrier": _barrier, "warp_barrier": _nothing,
    "copy_commit": _copy_commit, "copy_wait": _copy_wait, "matrix_load": loops.print_matrix_load, **group.GROUP_BLOCK,
}  # fmt: skip


# ***** control flow *****


def _uniform_of(values: Sequence[Value], like: Sequence[Value]) -> list[Value]:
    return [v for v, q in zip(values, like, strict=True) if q.uniform]


def _for(p: TwinPrinter, i: Instruction, bodies: Sequence[Sequence[Step]]) -> None:
    p.loop(i.bodies[0], i.operands, i.results, bodies[0])


def _while(p: TwinPrinter, i: Instruction, bodies: Sequence[Sequence[Step]]) -> None:
    before, after = i.bodies
    p.make_places(before.params)
    p.move(i.operands, before.params)
    head, inside, end, entry = p.new_label("while"), p.new_label("body"), p.new_label("after"), p.label
    p.jump(head)
    p.begin(head)
    uniform = [q for q in before.params if q.uniform]
    at, made = p.phis(uniform)
    p.scalars.update(zip(uniform, made, strict=True))
    p.steps(bodies[0])
    condition = p.scalars[before.yielded[0]]
    p.give(after.params, before.yielded[1:])
    p.line(f"br i1 {condition}, label %{inside}, label %{end}")
    with p.em.scope():
        p.begin(inside)
        p.steps(bodies[1])
        p.move(after.yielded, before.params)
        p.jump(head)
        start = [p.scalars[x] for x in _uniform_of(i.operands, before.params)]
        ends = [p.scalars[x] for x in _uniform_of(after.yielded, before.params)]
        p.close_phis(at, made, [(entry, start), (p.label, ends)])
    p.begin(end)
    p.give(i.results, before.yielded[1:])


def _if(p: TwinPrinter, i: Instruction, bodies: Sequence[Sequence[Step]]) -> None:
    p.make_places(i.results)
    labels, join = [p.new_label("then"), p.new_label("else")], p.new_label("join")
    p.line(f"br i1 {p.scalars[i.operands[0]]}, label %{labels[0]}, label %{labels[1]}")
    sources = []
    for label, steps, body in zip(labels, bodies, i.bodies, strict=True):
        with p.em.scope():
            p.begin(label)
            p.steps(steps)
            for value, result in zip(body.yielded, i.results, strict=True):
                if not result.uniform:
                    p.copy(value, p.places[result], result.dtype)
            sources.append((p.label, [p.scalars[x] for x in _uniform_of(body.yielded, i.results)]))
            p.jump(join)
    p.begin(join)
    uniform = [r for r in i.results if r.uniform]
    at, made = p.phis(uniform)
    p.close_phis(at, made, sources)
    p.scalars.update(zip(uniform, made, strict=True))


_CONTROL = {"for": _for, "while": _while, "if": _if, "roles": group.print_roles}


def _functions(module: ModuleText) -> str:
    """The module's text, without a second declaration of what the runtime declares."""
    module.declarations.pop("@llvm.cttz.i32", None)
    return str(module)


_FRAME = """define i32 @{name}(ptr %ctx, ptr %params, i64 %first, i64 %last) nounwind {{
entry:
  %memory = call ptr @aligned_alloc(i64 64, i64 {memory})
{pieces}
  %shadow = {shadow}
  %gp0 = getelementptr i8, ptr %ctx, i64 8
  %grid.0 = load i32, ptr %gp0
  %gp1 = getelementptr i8, ptr %ctx, i64 12
  %grid.1 = load i32, ptr %gp1
  %gp2 = getelementptr i8, ptr %ctx, i64 16
  %grid.2 = load i32, ptr %gp2
  %codeat = getelementptr i8, ptr %ctx, i64 20
  store i32 0, ptr %codeat
  %gx = zext i32 %grid.0 to i64
  %gy = zext i32 %grid.1 to i64
  br label %turn
turn:
  %number = phi i64 [%first, %entry], [%number1, %last.turn]
  %goes = icmp slt i64 %number, %last
  br i1 %goes, label %program, label %end
program:
  %x64 = urem i64 %number, %gx
  %rest = udiv i64 %number, %gx
  %y64 = urem i64 %rest, %gy
  %z64 = udiv i64 %rest, %gy
  %id.0 = trunc i64 %x64 to i32
  %id.1 = trunc i64 %y64 to i32
  %id.2 = trunc i64 %z64 to i32
{body}
  br label %last.turn
last.turn:
  %number1 = add i64 %number, 1
  %code = load i32, ptr %codeat
  %fine = icmp eq i32 %code, 0
  br i1 %fine, label %turn, label %end
end:
  %result = load i32, ptr %codeat
  call void @free(ptr %memory)
  call void @free(ptr %shadow)
  ret i32 %result
}}
"""
