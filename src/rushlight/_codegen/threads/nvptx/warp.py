"""Barriers, shuffles, matrix instructions and messages of the thread form as LLVM text for NVPTX."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._codegen.scalar import Val
from rushlight._codegen.scalar.writer import BITS

from ..form import Instruction, print_format
from ..matrices.layouts import FORMS

if TYPE_CHECKING:
    from .printer import NvptxPrinter

__all__ = ["HANDLERS", "packed", "unpacked"]


def _barrier(p: NvptxPrinter, i: Instruction) -> None:
    """By the names of LLVM 20, which later versions take for those that they have in their place."""
    if p.barrier_threads:
        name = p.declare("llvm.nvvm.barrier", "void(i32, i32)")
        p.line(f"call void {name}(i32 1, i32 {p.barrier_threads})")
        return
    p.line(f"call void {p.declare('llvm.nvvm.barrier0', 'void()')}()")


def _warp_barrier(p: NvptxPrinter, i: Instruction) -> None:
    p.line(f"call void {p.declare('llvm.nvvm.bar.warp.sync', 'void(i32)')}(i32 -1)")


# ***** shuffles *****


def _words(p: NvptxPrinter, x: Val) -> list[Val]:
    """A value as words of 32 bits."""
    bits = BITS[x.type]
    whole = p.em.bitcast(x, f"i{bits}")
    if bits <= 32:
        return [whole.to("i32", signed=False)]
    return [whole.to("i32"), whole.lshr(32).to("i32")]


def _unwords(p: NvptxPrinter, words: list[Val], type: str) -> Val:
    bits = BITS[type]
    if bits > 32:
        low, high = (w.to("i64", signed=False) for w in words)
        return p.em.bitcast(low | (high << 32), type)
    return p.em.bitcast(words[0].to(f"i{bits}"), type)


def _moved(p: NvptxPrinter, x: Any, move: Callable[[Val], Val]) -> Any:
    if isinstance(x, tuple):
        return tuple(_moved(p, part, move) for part in x)
    return _unwords(p, [move(w) for w in _words(p, x)], x.type)


def _shuffle(p: NvptxPrinter, i: Instruction) -> None:
    name = p.declare("llvm.nvvm.shfl.sync.bfly.i32", "i32(i32, i32, i32, i32)")

    def move(word: Val) -> Val:
        return p.effect(f"call i32 {name}(i32 -1, i32 {word}, i32 {i.attributes['xor']}, i32 31)", "i32")

    p.results(i, [_moved(p, x, move) for x in p.values[i.operands[0]]])


def _shuffle_index(p: NvptxPrinter, i: Instruction) -> None:
    name = p.declare("llvm.nvvm.shfl.sync.idx.i32", "i32(i32, i32, i32, i32)")
    made = []
    for x, lane in zip(p.values[i.operands[0]], p.of(i.operands[1], i.result.count), strict=True):

        def move(word: Val, lane: Val = lane) -> Val:
            return p.effect(f"call i32 {name}(i32 -1, i32 {word}, i32 {lane}, i32 31)", "i32")

        made.append(_moved(p, x, move))
    p.results(i, made)


# ***** matrix instructions *****

_INTRINSIC = {
    "m16n8k16.f16": ("llvm.nvvm.mma.m16n8k16.row.col.f32.f32", "<2 x half>"),
    "m16n8k16.bf16": ("llvm.nvvm.mma.m16n8k16.row.col.bf16", "i32"),
    "m16n8k8.tf32": ("llvm.nvvm.mma.m16n8k8.row.col.tf32", "i32"),
    "m16n8k32.s8": ("llvm.nvvm.mma.m16n8k32.row.col.s8", "i32"),
}
# What is written as assembly, for LLVM 20 has no name for it.
_ASSEMBLY = {
    "m16n8k32.e4m3": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "m16n8k32.e5m2": "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32",
    "m16n8k32.e4m3.e5m2": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "m16n8k32.e5m2.e4m3": "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32",
}


def packed(p: NvptxPrinter, registers: list[Val], type: str) -> list[Val]:
    """Registers of narrow numbers, as many to a word of 32 bits as fit."""
    bits = BITS[registers[0].type]
    each = 32 // bits
    if each == 1:
        return [p.em.bitcast(x, "i32") for x in registers]
    words = []
    for start in range(0, len(registers), each):
        kind = registers[0].type
        vt, made = f"<{each} x {kind}>", "poison"
        for k in range(each):
            made = str(p.em.emit(f"insertelement {vt} {made}, {kind} {registers[start + k]}, i64 {k}", kind))
        words.append(Val(p.em, made, type) if type == vt else p.em.emit(f"bitcast {vt} {made} to {type}", type))
    return words


def unpacked(p: NvptxPrinter, words: list[Val], kind: str, count: int) -> list[Val]:
    """Words of 32 bits as the registers of narrow numbers that they were packed of."""
    each = 32 // BITS[kind]
    made = []
    for k in range(count):
        vector = p.em.emit(f"bitcast i32 {words[k // each]} to <{each} x {kind}>", kind)
        made.append(p.em.emit(f"extractelement <{each} x {kind}> {vector}, i64 {k % each}", kind))
    return made


def _mma(p: NvptxPrinter, i: Instruction) -> None:
    form = FORMS[i.attributes["form"]]
    intrinsic, type = _INTRINSIC.get(form.name, ("", "i32"))
    p.ptx = max(p.ptx, form.ptx)
    a, b = (packed(p, p.of(x, x.count), type) for x in i.operands[:2])
    c = p.of(i.operands[2], i.result.count)
    number = c[0].type
    result = "{" + ", ".join([number] * len(c)) + "}"
    operands = ", ".join([f"{type} {x}" for x in (*a, *b)] + [f"{number} {x}" for x in c])
    if intrinsic:
        name = p.declare(intrinsic, f"{result}({', '.join([type] * (len(a) + len(b)) + [number] * len(c))})")
        raw = p.effect(f"call {result} {name}({operands})")
    else:
        raw = p.effect(
            f"call {result} {_assembly(_ASSEMBLY[form.name], len(c), len(a), len(b))}({operands}) convergent"
        )
    p.results(i, [p.em.emit(f"extractvalue {result} {raw}, {k}", number) for k in range(len(c))])


def _assembly(instruction: str, results: int, left: int, right: int) -> str:
    """A matrix instruction on float32 sums, as many of its operands in words."""
    sizes, begin, listed = (results, left, right, results), 0, []
    for n in sizes:
        listed.append("{" + ", ".join(f"${begin + k}" for k in range(n)) + "}")
        begin += n
    constraints = ["=f"] * results + ["r"] * (left + right) + ["f"] * results
    return f'asm "{instruction} {", ".join(listed)};", "{",".join(constraints)}"'


# ***** messages *****


def _text_constant(p: NvptxPrinter, text: str) -> str:
    data = text.encode() + b"\0"
    name = f"@text{len(p.module.definitions)}"
    shown = "".join(f"\\{byte:02X}" for byte in data)
    p.module.definitions[name] = f'{name} = private addrspace(1) constant [{len(data)} x i8] c"{shown}"'
    return f"ptr addrspacecast (ptr addrspace(1) {name} to ptr)"


def _assert(p: NvptxPrinter, i: Instruction) -> None:
    """The message of a device-side assertion, which the driver prints; the launch fails with its error."""
    conditions = p.values[i.operands[0]]
    every = conditions[0]
    for other in conditions[1:]:
        every = every & other
    fails, after = p.new_label("fails"), p.new_label("holds")
    p.line(f"br i1 {every}, label %{after}, label %{fails}")
    p.begin(fails)
    file, line = i.line or ("", 0)
    name = p.declare("__assertfail", "void(ptr, ptr, i32, ptr, i64) noreturn")
    texts = [_text_constant(p, t) for t in (i.attributes["message"], file, p.kernel.name)]
    p.line(f"call void {name}({texts[0]}, {texts[1]}, i32 {line}, {texts[2]}, i64 1)")
    p.jump(after)
    p.begin(after)


def _print(p: NvptxPrinter, i: Instruction) -> None:
    """`vprintf`, which the driver prints when the program waits; its arguments lie in memory of the thread."""
    count = max(x.count for x in i.operands)
    operands = [p.of(x, count) for x in i.operands]
    ids = []
    for axis in "xyz":
        name = p.declare(f"llvm.nvvm.read.ptx.sreg.ctaid.{axis}", "i32()")
        ids.append(p.em.emit(f"call i32 {name}()", "i32"))
    name, form = p.declare("vprintf", "i32(ptr, ptr)"), _text_constant(p, print_format(i))
    for r in range(count):
        fields = [*ids, *(o[r] for o in operands[1:])]
        do, after = p.new_label("print"), p.new_label("printed")
        p.line(f"br i1 {operands[0][r]}, label %{do}, label %{after}")
        p.begin(do)
        type = "{" + ", ".join(f.type for f in fields) + "}"
        at = p.em.fresh()
        p.entry.append(f"  {at} = alloca {type}, align 8")
        for k, field in enumerate(fields):
            slot = p.effect(f"getelementptr {type}, ptr {at}, i32 0, i32 {k}")
            p.line(f"store {field.type} {field}, ptr {slot}")
        p.effect(f"call i32 {name}({form}, ptr {at})")
        p.jump(after)
        p.begin(after)


HANDLERS: dict[str, Callable[[Any, Instruction], None]] = {
    "barrier": _barrier, "warp_barrier": _warp_barrier, "shuffle": _shuffle, "shuffle_index": _shuffle_index, "mma": _mma, "assert": _assert,
    "print": _print,
}  # fmt: skip
