"""The thread form as LLVM text for NVPTX: every register of a value is a scalar.

Products and sums are not contracted, division and square root round as IEEE 754 says, and nothing is flushed to zero:
LLVM's defaults for NVPTX as long as no instruction carries fast-math flags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._codegen.scalar import Emitter, ModuleText, Val, mem_type, reg_type
from rushlight._types.dtype import BFLOAT16, FLOAT32, DType

from ..form import Body, Instruction, ThreadKernel, Value
from ..library import define_library
from ..tile_maps import MAP_BYTES
from . import group, memory, warp

__all__ = ["NvptxPrinter", "nvptx_text"]

# instructions before which a matrix load may wait: they change no shared memory, and are one block
_PASSED = frozenset({"number", "argument", "index", "pointwise", "multiply_high", "pick", "mma", "shuffle", "shuffle_index", "uniform", "shared_load", "matrix_load"})  # fmt: skip

Parts = Any  # a Val, or a pair of them for complex numbers


def nvptx_text(kernel: ThreadKernel) -> str:
    """LLVM text with one kernel function, the kernel's name; shared memory is dynamic."""
    return NvptxPrinter(kernel).text()


class NvptxPrinter:
    """Prints one kernel; `values` holds for each value a list of its registers."""

    def __init__(self, kernel: ThreadKernel) -> None:
        self.kernel = kernel
        self.module = ModuleText()
        self.em = Emitter(1, self.module, fma=True)
        self.values: dict[Value, Any] = {}  # sequences of registers
        self.label = "entry"
        self.labels = 0
        self.entry: list[str] = []  # what the function begins with
        self.deferred: list[Value] = []  # results of matrix loads that may be loaded later
        self.barrier_threads = 0  # how many meet at a barrier, where it is not all of the block
        self.ptx = 0  # the version of PTX that it needs, times ten, where it is newer than the architecture's first

    def text(self) -> str:
        table = self.kernel.table
        params = [self._param(i, p.dtype) for i, p in enumerate(self.kernel.params[:table])]
        if table < len(self.kernel.params):  # a launch tells the address of its first word
            params.append(f"ptr byval([{len(self.kernel.params) - table} x i64]) align 8 %table")
        constants = range(table, len(params) + len(self.kernel.maps))
        params += [f"ptr byval([{MAP_BYTES} x i8]) align 64 %map{k}" for k in range(len(self.kernel.maps))]
        for i, param in enumerate(self.kernel.params[:table]):
            self.values[param] = [self._argument(i, param.dtype)]
        self.body(self.kernel.body)
        self.em.lines.append("  ret void")
        self.em.checks.clear()
        define_library(self.module)
        return "\n".join(
            [
                *([f"; needs PTX {self.ptx / 10}"] if self.ptx > 80 else []),
                'target triple = "nvptx64-nvidia-cuda"',
                f"@shared = external addrspace(3) global [0 x i8], align {1024 if self.kernel.maps else 128}"
                if self.kernel.shared
                else "",
                str(self.module),
                f"define ptx_kernel void @{self.kernel.name}({', '.join(params)}) {{",
                "entry:",
                *self.entry,
                *self.em.lines,
                "}",
                *self._annotations(constants),
                "",
            ]
        )

    def _annotations(self, constants: Sequence[int]) -> list[str]:
        """How the kernel is launched, and which of its parameters are read where they lie: a form that LLVM 20 knows, and later
        versions still read.
        """
        registers = group.launch_registers(self.kernel)
        told = [f'!"reqntidx", i32 {self.kernel.threads}', *([f'!"maxnreg", i32 {registers}'] if registers else [])]
        if constants:
            told.append('!"grid_constant", !{' + ", ".join(f"i32 {k + 1}" for k in constants) + "}")
        rows = [f"!{k} = !{{ptr @{self.kernel.name}, {text}}}" for k, text in enumerate(told)]
        return [f"!nvvm.annotations = !{{{', '.join(f'!{k}' for k in range(len(told)))}}}", *rows]

    def _param(self, i: int, dtype: DType) -> str:
        if i in self.kernel.pointers:
            by = self.kernel.divisible.get(i, 1)
            return f"ptr addrspace(1) align {max(1, by & -by)} %p{i}"
        return f"{mem_type(dtype)} %p{i}"

    def _argument(self, i: int, dtype: DType) -> Parts:
        if i in self.kernel.pointers:
            return self.em.emit(f"ptrtoint ptr addrspace(1) %p{i} to i64", "i64")
        return self.em.from_memory(f"%p{i}", dtype)

    # ***** the pieces of text *****

    def declare(self, name: str, signature: str) -> str:
        """An intrinsic or external function: `signature` is "result(types)"."""
        result, types = signature.split("(", 1)
        self.module.declarations[f"@{name}"] = f"declare {result} @{name}({types}"
        return f"@{name}"

    def line(self, text: str) -> None:
        self.em.lines.append(f"  {text}")

    def effect(self, text: str, type: str = "") -> Val:
        """An instruction that is written each time, even where the same text stands before it."""
        name = self.em.fresh()
        self.line(f"{name} = {text}")
        return Val(self.em, name, type)

    def new_label(self, name: str) -> str:
        self.labels += 1
        return f"{name}{self.labels}"

    def begin(self, label: str) -> None:
        self.em.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def thread(self) -> Val:
        name = self.declare("llvm.nvvm.read.ptx.sreg.tid.x", "i32()")
        return self.em.emit(f"call i32 {name}()", "i32")

    # ***** values *****

    def of(self, value: Value, count: int) -> list[Parts]:
        """The registers of a value; a uniform one as often as is asked for."""
        found = self.values[value]
        return found * count if len(found) == 1 and count > 1 else found

    def phis(self, types: Sequence[Any]) -> tuple[list[int], list[list[Parts]]]:
        """Places of phis in the text, and values for them; `close_phis` writes them."""
        places, made = [], []
        for t in types:
            registers: list[Parts] = []
            for _ in range(t.count):
                kind = reg_type(t.dtype)
                names = [Val(self.em, self.em.fresh(), kind) for _ in range(2 if t.dtype.kind == "c" else 1)]
                for _name in names:
                    places.append(len(self.em.lines))
                    self.em.lines.append("")
                registers.append(tuple(names) if len(names) == 2 else names[0])
            made.append(registers)
        return places, made

    def close_phis(
        self, places: list[int], made: list[list[Parts]], sources: list[tuple[str, list[list[Parts]]]]
    ) -> None:
        """Each source is a label and the registers that come from there."""
        flat = [_flat(registers) for registers in made]
        columns = [(label, [_flat(registers) for registers in values]) for label, values in sources]
        position = iter(places)
        for i, parts in enumerate(flat):
            for j, part in enumerate(parts):
                options = ", ".join(f"[{values[i][j]}, %{label}]" for label, values in columns)
                self.em.lines[next(position)] = f"  {part} = phi {part.type} {options}"

    # ***** instructions *****

    def body(self, body: Body) -> None:
        for instruction in body.instructions:
            if instruction.kind not in _PASSED:
                self.load_deferred()
            handler = HANDLERS.get(instruction.kind)
            if handler is None:
                raise NotImplementedError(f"{instruction.kind} has no form for NVPTX")
            handler(self, instruction)
            if instruction.kind == "matrix_load":
                self.deferred.append(instruction.result)
        self.load_deferred()

    def load_deferred(self) -> None:
        """Emit deferred matrix loads, before memory changes or another block begins."""
        for value in self.deferred:
            self.values[value] = list(self.values[value])
        self.deferred.clear()

    def loop(self, body: Body, operands: Sequence[Value]) -> list[list[Parts]]:
        """A body for each index (low, high, step, values...); the registers of the values after the last turn."""
        low, high, step = (self.values[x][0] for x in operands[:3])
        index, params = body.params[0], body.params[1:]
        head, inside, after, entry = (*(self.new_label(n) for n in ("for", "body", "after")), self.label)
        start = [[low], *(self.of(x, q.count) for x, q in zip(operands[3:], params, strict=True))]
        self.jump(head)
        self.begin(head)
        places, carried = self.phis([q.type for q in body.params])
        with self.em.scope():
            goes = carried[0][0].lt(high, index.dtype.is_signed)
            self.line(f"br i1 {goes}, label %{inside}, label %{after}")
            self.begin(inside)
            self.values.update(zip(body.params, carried, strict=True))
            self.body(body)
            following = carried[0][0] + step
            ends = [[following], *(self.of(x, q.count) for x, q in zip(body.yielded, params, strict=True))]
            self.jump(head)
            self.close_phis(places, carried, [(entry, start), (self.label, ends)])
        self.begin(after)
        return carried[1:]

    def results(self, instruction: Instruction, registers: Sequence[Parts]) -> None:
        self.values[instruction.result] = registers


def _flat(registers: Sequence[Parts]) -> list[Val]:
    return [part for r in registers for part in (r if isinstance(r, tuple) else (r,))]


def _number(p: NvptxPrinter, i: Instruction) -> None:
    p.results(i, [p.em.number(i.attributes["value"], i.result.dtype)])


def _argument(p: NvptxPrinter, i: Instruction) -> None:
    (number,), dtype = p.values[i.operands[0]], i.result.dtype
    wide = p.em.emit(f"sext {number.type} {number} to i64", "i64")
    scaled = p.em.emit(f"mul nsw i64 {wide}, {8 * i.attributes['step']}", "i64")
    first = 8 * (i.attributes["first"] - p.kernel.table)
    at = p.em.emit(f"getelementptr inbounds i8, ptr %table, i64 {scaled}", "ptr")
    at = p.em.emit(f"getelementptr inbounds i8, ptr {at}, i64 {first}", "ptr")
    raw = p.em.emit(f"load {mem_type(dtype)}, ptr {at}, align {dtype.itemsize}", mem_type(dtype))
    p.results(i, [p.em.from_memory(raw, dtype)])


def _special(name: str) -> Callable[[NvptxPrinter, Instruction], None]:
    def print_it(p: NvptxPrinter, i: Instruction) -> None:
        function = p.declare(f"llvm.nvvm.read.ptx.sreg.{name}.{'xyz'[i.attributes['axis']]}", "i32()")
        p.results(i, [p.em.emit(f"call i32 {function}()", "i32")])

    return print_it


def _index(p: NvptxPrinter, i: Instruction) -> None:
    bases = [*i.attributes["lanes"], *i.attributes["warps"]]
    registers = i.attributes["registers"]
    place, used = thread_index(p.thread(), bases), 0
    for base in bases:
        used |= base
    out = []
    for constant in registers:
        if constant == 0:
            out.append(place)
        elif constant & used:
            out.append(place ^ constant)
        else:  # no bit of both: LLVM may take it for an addition, and put it into an address
            out.append(p.em.emit(f"or disjoint i32 {place}, {constant}", "i32"))
    p.results(i, out)


def thread_index(thread: Val, bases: Sequence[int]) -> Val:
    """The exclusive or of the bases whose bit of the thread's number is set; bits that go together in one shift."""
    em, total, i = thread.em, None, 0
    while i < len(bases):
        if bases[i] == 0:
            i += 1
            continue
        end = i + 1
        single = bases[i] & (bases[i] - 1) == 0
        while single and end < len(bases) and bases[end] == bases[i] << end - i:
            end += 1
        part = thread.lshr(i) if i else thread
        part = part & (1 << end - i) - 1
        part = part << bases[i].bit_length() - 1 if single else part * bases[i]
        total = part if total is None else total ^ part
        i = end
    return total if total is not None else em.const("i32", 0)


# what the hardware does at once, where a kernel is content with a relative error of 2**-22, and with 0 for subnormal numbers
_APPROXIMATE = {"exp2": "llvm.nvvm.ex2.approx.ftz.f"}


def _rounded(p: NvptxPrinter, registers: Sequence[Val]) -> list[Val]:
    """float32 to the nearest bfloat16, ties to even, two at a time."""
    made = []
    for start in range(0, len(registers), 2):
        pair = registers[start : start + 2]
        vector = "poison"
        for k, x in enumerate(pair):
            vector = str(p.em.emit(f"insertelement <{len(pair)} x float> {vector}, float {x}, i64 {k}", "float"))
        narrow = p.em.emit(f"fptrunc <{len(pair)} x float> {vector} to <{len(pair)} x bfloat>", "bfloat")
        bits = p.em.emit(f"bitcast <{len(pair)} x bfloat> {narrow} to <{len(pair)} x i16>", "i16")
        made += [p.em.emit(f"extractelement <{len(pair)} x i16> {bits}, i64 {k}", "i16") for k in range(len(pair))]
    return made


def _pointwise(p: NvptxPrinter, i: Instruction) -> None:
    count = i.result.count
    operands = [p.of(x, count) for x in i.operands]
    dtypes = [x.dtype for x in i.operands]
    params = i.attributes["params"]
    if i.attributes["prim"] == "convert" and (dtypes[0], i.result.dtype) == (FLOAT32, BFLOAT16):
        p.results(i, _rounded(p, operands[0]))
        return
    if i.attributes.get("approximate"):
        name = p.declare(_APPROXIMATE[i.attributes["prim"]], "float(float)")
        p.results(i, [p.em.emit(f"call float {name}(float {x})", "float") for x in operands[0]])
        return
    if i.attributes["prim"] in ("maximum", "minimum") and i.result.dtype is FLOAT32:
        name = p.declare(f"llvm.{i.attributes['prim']}.f32", "float(float, float)")
        made = [p.em.emit(f"call float {name}(float {x}, float {y})", "float") for x, y in zip(*operands, strict=True)]
        p.results(i, made)
        return
    made = [
        p.em.op(i.attributes["prim"], list(args), dtypes, i.result.dtype, params)
        for args in zip(*operands, strict=True)
    ]
    p.em.checks.clear()
    p.results(i, made)


def _multiply_high(p: NvptxPrinter, i: Instruction) -> None:
    signed = i.result.dtype.is_signed
    bits = 8 * i.result.dtype.itemsize
    out = []
    for a, b in zip(*(p.of(x, i.result.count) for x in i.operands), strict=True):
        how = "sext" if signed else "zext"
        wide = [p.em.emit(f"{how} i{bits} {x} to i{2 * bits}", f"i{2 * bits}") for x in (a, b)]
        product = p.em.emit(f"mul i{2 * bits} {wide[0]}, {wide[1]}", f"i{2 * bits}")
        high = p.em.emit(f"lshr i{2 * bits} {product}, {bits}", f"i{2 * bits}")
        out.append(p.em.emit(f"trunc i{2 * bits} {high} to i{bits}", f"i{bits}"))
    p.results(i, out)


def _pick(p: NvptxPrinter, i: Instruction) -> None:
    p.results(i, [p.values[i.operands[o]][r] for o, r in i.attributes["sources"]])


def _same(p: NvptxPrinter, i: Instruction) -> None:
    p.results(i, list(p.values[i.operands[0]]))


# ***** control flow *****


def _for(p: NvptxPrinter, i: Instruction) -> None:
    p.values.update(zip(i.results, p.loop(i.bodies[0], i.operands), strict=True))


def _while(p: NvptxPrinter, i: Instruction) -> None:
    before, after = i.bodies
    head, inside, end, entry = (*(p.new_label(n) for n in ("while", "body", "after")), p.label)
    start = [p.of(x, q.count) for x, q in zip(i.operands, before.params, strict=True)]
    p.jump(head)
    p.begin(head)
    places, carried = p.phis([q.type for q in before.params])
    p.values.update(zip(before.params, carried, strict=True))
    p.body(before)  # dominates what follows the loop
    condition = p.values[before.yielded[0]][0]
    given = [p.of(x, r.count) for x, r in zip(before.yielded[1:], i.results, strict=True)]
    p.line(f"br i1 {condition}, label %{inside}, label %{end}")
    with p.em.scope():
        p.begin(inside)
        p.values.update(zip(after.params, given, strict=True))
        p.body(after)
        ends = [p.of(x, q.count) for x, q in zip(after.yielded, before.params, strict=True)]
        p.jump(head)
        p.close_phis(places, carried, [(entry, start), (p.label, ends)])
    p.begin(end)
    p.values.update(zip(i.results, given, strict=True))


def _if(p: NvptxPrinter, i: Instruction) -> None:
    condition = p.values[i.operands[0]][0]
    labels, join = [p.new_label("then"), p.new_label("else")], p.new_label("join")
    p.line(f"br i1 {condition}, label %{labels[0]}, label %{labels[1]}")
    sources = []
    for label, body in zip(labels, i.bodies, strict=True):
        with p.em.scope():
            p.begin(label)
            p.body(body)
            sources.append((p.label, [p.of(x, r.count) for x, r in zip(body.yielded, i.results, strict=True)]))
            p.jump(join)
            sources[-1] = (p.label, sources[-1][1])
    p.begin(join)
    places, made = p.phis([r.type for r in i.results])
    p.close_phis(places, made, sources)
    p.values.update(zip(i.results, made, strict=True))


HANDLERS: dict[str, Callable[[NvptxPrinter, Instruction], None]] = {
    "number": _number, "argument": _argument, "program_id": _special("ctaid"), "num_programs": _special("nctaid"), "index": _index, "pointwise": _pointwise,
    "multiply_high": _multiply_high, "pick": _pick, "uniform": _same, "for": _for, "while": _while, "if": _if,
    **memory.HANDLERS, **warp.HANDLERS, **group.HANDLERS,
}  # fmt: skip
