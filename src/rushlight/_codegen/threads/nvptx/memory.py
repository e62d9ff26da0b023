"""Memory of the thread form as LLVM text for NVPTX: loads and stores of up to 16 bytes, predicates, atomics, shared
memory.

Accesses without a mask are LLVM's own.  Those with one are inline assembly, because LLVM would branch around each; the
value of `other` is tied to the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._codegen.scalar import Val, mem_lanes, mem_type, reg_type
from rushlight._codegen.scalar.writer import BITS
from rushlight._types.dtype import BOOL, DType

from ..form import WARP, Instruction

if TYPE_CHECKING:
    from .printer import NvptxPrinter

__all__ = ["HANDLERS"]

_REGISTER = {8: "h", 16: "h", 32: "r", 64: "l"}


class Words:
    """The words in which `vector` elements of a dtype are moved: `count` of `bits` bits."""

    def __init__(self, dtype: DType, vector: int) -> None:
        self.dtype, self.vector = dtype, vector
        self.parts = vector * mem_lanes(dtype)
        self.part_bits = 8 * dtype.itemsize // mem_lanes(dtype)
        total = self.parts * self.part_bits
        self.bits = max(self.part_bits, min(32, total))
        self.count = total // self.bits
        self.align = dtype.itemsize * vector

    @property
    def suffix(self) -> str:
        return (f".v{self.count}" if self.count > 1 else "") + f".b{self.bits}"

    @property
    def type(self) -> str:
        """The type of a word in a register: the smallest for which there is a constraint."""
        return f"i{max(16, self.bits)}"

    def pack(self, p: NvptxPrinter, elements: list[Any]) -> list[Val]:
        """Elements as words."""
        parts = []
        for element in elements:
            for part in element if isinstance(element, tuple) else (element,):
                parts.append(_as_bits(p, part.to("i8", signed=False) if self.dtype is BOOL else part))
        each = self.bits // self.part_bits
        words = []
        for start in range(0, len(parts), each):
            if each == 1:
                words.append(parts[start])
                continue
            vt, made = f"<{each} x i{self.part_bits}>", "poison"
            for k in range(each):
                made = str(p.em.emit(f"insertelement {vt} {made}, i{self.part_bits} {parts[start + k]}, i64 {k}", ""))
            words.append(p.em.emit(f"bitcast {vt} {made} to i{self.bits}", f"i{self.bits}"))
        return [w.to(self.type, signed=False) for w in words]

    def unpack(self, p: NvptxPrinter, words: list[Val]) -> list[Any]:
        """Words as elements."""
        parts: list[Val] = []
        each = self.bits // self.part_bits
        for word in words:
            narrow = word.to(f"i{self.bits}", signed=False)
            if each == 1:
                parts.append(narrow)
                continue
            vt = f"<{each} x i{self.part_bits}>"
            lanes = p.em.emit(f"bitcast i{self.bits} {narrow} to {vt}", "")
            parts += [p.em.emit(f"extractelement {vt} {lanes}, i64 {k}", f"i{self.part_bits}") for k in range(each)]
        if self.dtype is BOOL:
            return [x.ne(0) for x in parts]
        typed = [_from_bits(p, x, reg_type(self.dtype)) for x in parts]
        return typed if mem_lanes(self.dtype) == 1 else list(zip(typed[::2], typed[1::2], strict=True))


def _as_bits(p: NvptxPrinter, x: Val) -> Val:
    return p.em.bitcast(x, f"i{BITS[x.type]}")


def _from_bits(p: NvptxPrinter, x: Val, type: str) -> Val:
    return p.em.bitcast(x, type)


def _groups(count: int, vector: int) -> range:
    return range(0, count, vector)


# ***** global memory *****


def _pointer(p: NvptxPrinter, address: Val) -> Val:
    return p.em.emit(f"inttoptr i64 {address} to ptr addrspace(1)", "ptr")


def _load(p: NvptxPrinter, i: Instruction) -> None:
    count, words = i.result.count, Words(i.attributes["dtype"], i.attributes["vector"])
    address = p.of(i.operands[0], count)
    mask = p.of(i.operands[1], count) if len(i.operands) > 1 else None
    other = p.of(i.operands[2], count) if len(i.operands) > 2 else None
    made: list[Any] = []
    for start in _groups(count, words.vector):
        if mask is None:
            made += _plain_load(p, _pointer(p, address[start]), 1, words, bool(i.attributes.get("volatile")))
        else:
            fill = None if other is None else words.pack(p, other[start : start + words.vector])
            made += _masked_load(p, address[start], mask[start], fill, words, "global", i)
    p.results(i, made)


def _plain_load(p: NvptxPrinter, pointer: Val, space: int, words: Words, volatile: bool = False) -> list[Any]:
    type, count = mem_type(words.dtype), words.parts
    vt = type if count == 1 else f"<{count} x {type}>"
    flag = "volatile " if volatile else ""
    raw = p.effect(f"load {flag}{vt}, ptr addrspace({space}) {pointer}, align {words.align}")
    parts = [Val(p.em, raw.name, type)] if count == 1 else []
    if count > 1:
        parts = [p.em.emit(f"extractelement {vt} {raw}, i64 {k}", type) for k in range(count)]
    if words.dtype is BOOL:
        return [x.ne(0) for x in parts]
    return parts if mem_lanes(words.dtype) == 1 else list(zip(parts[::2], parts[1::2], strict=True))


def _masked_load(
    p: NvptxPrinter, address: Val, mask: Val, fill: list[Val] | None, words: Words, space: str, i: Instruction
) -> list[Any]:
    n, letter = words.count, _REGISTER[max(16, words.bits)]
    names = ", ".join(f"${k}" for k in range(n))
    target = f"{{{names}}}" if n > 1 else names
    volatile = ".volatile" if i.attributes.get("volatile") else ""
    text = f"@${n + 1} ld{volatile}.{space}{words.suffix} {target}, [${n}];"
    constraints = [f"={letter}"] * n + ["l", "b"] + [str(k) for k in range(n)]
    zeros = [p.em.const(words.type, 0)] * n
    operands = [f"i64 {address}", f"i1 {mask}", *(f"{words.type} {w}" for w in fill or zeros)]
    result = words.type if n == 1 else "{" + ", ".join([words.type] * n) + "}"
    raw = p.effect(
        f'call {result} asm sideeffect "{text}", "{",".join(constraints)}"({", ".join(operands)})', words.type
    )
    got = [raw] if n == 1 else [p.em.emit(f"extractvalue {result} {raw}, {k}", words.type) for k in range(n)]
    return words.unpack(p, got)


def _store(p: NvptxPrinter, i: Instruction) -> None:
    value = i.operands[1]
    count, words = value.count, Words(value.dtype, i.attributes["vector"])
    address, values = p.of(i.operands[0], count), p.of(value, count)
    mask = p.of(i.operands[2], count) if len(i.operands) > 2 else None
    for start in _groups(count, words.vector):
        part = values[start : start + words.vector]
        if mask is None:
            _plain_store(p, _pointer(p, address[start]), 1, part, words)
        else:
            _masked_store(p, address[start], mask[start], part, words, "global")


def _plain_store(p: NvptxPrinter, pointer: Val, space: int, elements: list[Any], words: Words) -> None:
    type, count = mem_type(words.dtype), words.parts
    parts = [x for e in elements for x in (e if isinstance(e, tuple) else (e,))]
    if words.dtype is BOOL:
        parts = [x.to("i8", signed=False) for x in parts]
    vt, made = type, str(parts[0])
    if count > 1:
        vt, made = f"<{count} x {type}>", "poison"
        for k, part in enumerate(parts):
            made = str(p.em.emit(f"insertelement {vt} {made}, {type} {part}, i64 {k}", type))
    p.line(f"store {vt} {made}, ptr addrspace({space}) {pointer}, align {words.align}")


def _masked_store(p: NvptxPrinter, address: Val, mask: Val, elements: list[Any], words: Words, space: str) -> None:
    packed, n, letter = words.pack(p, elements), words.count, _REGISTER[max(16, words.bits)]
    names = ", ".join(f"${k + 2}" for k in range(n))
    source = f"{{{names}}}" if n > 1 else names
    text = f"@$1 st.{space}{words.suffix} [$0], {source};"
    at = "r" if space == "shared" else "l"
    constraints = [at, "b", *[letter] * n]
    operands = [f"{address.type} {address}", f"i1 {mask}", *(f"{words.type} {w}" for w in packed)]
    p.line(f'call void asm sideeffect "{text}", "{",".join(constraints)}"({", ".join(operands)})')


# ***** atomics *****

_COMBINE = {"add": "add", "and": "and", "or": "or", "xor": "xor", "xchg": "xchg"}
_SCOPE = {"cta": 'syncscope("block") ', "gpu": 'syncscope("device") ', "sys": ""}
_ORDER = {"relaxed": "monotonic", "acquire": "acquire", "release": "release", "acq_rel": "acq_rel"}


def combine_name(combine: str, dtype: DType) -> str:
    """LLVM's name of the operation of `atomicrmw`."""
    if dtype.kind == "f" and combine in ("add", "max", "min"):
        return f"f{combine}"
    if combine in ("max", "min"):
        return combine if dtype.is_signed else f"u{combine}"
    return _COMBINE[combine]


def _conditional(p: NvptxPrinter, mask: Val | None, type: str, effect: Callable[[], Val]) -> Val:
    """Emit `effect` under a mask."""
    if mask is None:
        return effect()
    entry, do, after = p.label, p.new_label("do"), p.new_label("done")
    p.line(f"br i1 {mask}, label %{do}, label %{after}")
    p.begin(do)
    with p.em.scope():
        made = effect()
    last = p.label
    p.jump(after)
    p.begin(after)
    return p.effect(f"phi {type} [poison, %{entry}], [{made}, %{last}]", type)


def _atomic(p: NvptxPrinter, i: Instruction) -> None:
    value = i.operands[1]
    dtype, count = value.dtype, value.count
    type = "bfloat" if dtype.name == "bfloat16" else mem_type(dtype)
    address, values = p.of(i.operands[0], count), p.of(value, count)
    mask = p.of(i.operands[2], count) if len(i.operands) > 2 else [None] * count
    made = []
    for a, v, m in zip(address, values, mask, strict=True):
        pointer = _pointer(p, a)
        given = p.em.emit(f"bitcast i16 {v} to bfloat", type) if type == "bfloat" else v

        def effect(pointer: Val = pointer, given: Val = given) -> Val:
            return _combined(p, i, type, pointer, given)

        old = _conditional(p, m, type, effect)
        made.append(p.em.emit(f"bitcast bfloat {old} to i16", "i16") if type == "bfloat" else old)
    p.results(i, made)


# of `atom`, by LLVM's name of the type: what it adds, the integers and the bits that it combines
_SUMS = {"i32": "u32", "i64": "u64", "float": "f32", "double": "f64", "half": "noftz.f16"}
_LETTER = {"i32": "r", "i64": "l", "float": "f", "double": "d", "half": "h"}


def _instruction(combine: str, dtype: DType, type: str) -> str | None:
    """The operation of PTX's `atom` that combines so; None where there is none, and LLVM makes a loop."""
    if combine == "add":
        return f"add.{_SUMS[type]}" if type in _SUMS else None
    if type not in ("i32", "i64"):
        return f"exch.b{BITS[type]}" if combine == "xchg" and type in ("float", "double") else None
    if combine in ("max", "min"):
        return f"{combine}.{'s' if dtype.is_signed else 'u'}{type[1:]}"
    return f"{'exch' if combine == 'xchg' else combine}.b{type[1:]}"


def _combined(p: NvptxPrinter, i: Instruction, type: str, pointer: Val, given: Val) -> Val:
    """The value before an atomic update.  As assembly where the hardware has the operation: of `atomicrmw` LLVM 22 prints neither order nor scope,
    and an `atom` without them is relaxed.  The loops that it makes of others keep them.
    """
    combine, order, scope = (i.attributes[name] for name in ("combine", "order", "scope"))
    dtype = i.operands[1].dtype
    operation = _instruction(combine, dtype, type)
    if operation is not None:
        letter = _LETTER[type]
        if operation.startswith("exch") and letter in "fd":
            bits = f"i{BITS[type]}"
            given, letter = p.em.bitcast(given, bits), _LETTER[bits]
        text = f"atom.{order}.{scope}.global.{operation} $0, [$1], $2;"
        old = p.effect(
            f'call {given.type} asm sideeffect "{text}", "={letter},l,{letter},~{{memory}}"'
            f"(ptr addrspace(1) {pointer}, {given.type} {given})",
            given.type,
        )
        return p.em.bitcast(old, type)
    how, within = combine_name(combine, dtype), _SCOPE[scope]
    # not loops, but instructions: sums of bfloat16 from sm_90 on, bits of narrow integers as those of a word
    fenced = order != "relaxed" and (type == "bfloat" or combine in ("and", "or", "xor"))
    if fenced:
        p.line(f"fence {within}acq_rel")
    old = p.effect(
        f"atomicrmw {how} ptr addrspace(1) {pointer}, {type} {given} {within}{'monotonic' if fenced else _ORDER[order]}",
        type,
    )
    if fenced:
        p.line(f"fence {within}acq_rel")
    return old


def _atomic_cas(p: NvptxPrinter, i: Instruction) -> None:
    value = i.operands[2]
    count, type = value.count, reg_type(value.dtype)
    bits = f"i{8 * value.dtype.itemsize}"
    address, expected, values = (p.of(x, count) for x in i.operands[:3])
    mask = p.of(i.operands[3], count) if len(i.operands) > 3 else [None] * count
    order = _ORDER[i.attributes["order"]]
    tail = f"{_SCOPE[i.attributes['scope']]}{order} {'acquire' if order in ('acquire', 'acq_rel') else 'monotonic'}"
    made = []
    for a, e, v, m in zip(address, expected, values, mask, strict=True):
        pointer, e, v = _pointer(p, a), p.em.bitcast(e, bits), p.em.bitcast(v, bits)

        def effect(pointer: Val = pointer, e: Val = e, v: Val = v) -> Val:
            pair = p.effect(f"cmpxchg ptr addrspace(1) {pointer}, {bits} {e}, {bits} {v} {tail}")
            return p.em.emit(f"extractvalue {{{bits}, i1}} {pair}, 0", bits)

        made.append(p.em.bitcast(_conditional(p, m, bits, effect), type))
    p.results(i, made)


# ***** shared memory *****


def shared_address(p: NvptxPrinter, i: Instruction, offset: Val) -> Val:
    """The place of a byte of the instruction's buffer, as 32 bits."""
    base = p.em.emit("ptrtoint ptr addrspace(3) @shared to i32", "i32")
    at = offset + i.attributes["buffer"].offset if i.attributes["buffer"].offset else offset
    return base + at


def _shared_pointer(p: NvptxPrinter, i: Instruction, offset: Val) -> Val:
    at = offset + i.attributes["buffer"].offset if i.attributes["buffer"].offset else offset
    return p.em.emit(f"getelementptr inbounds nuw i8, ptr addrspace(3) @shared, i32 {at}", "ptr")


def _shared_load(p: NvptxPrinter, i: Instruction) -> None:
    count, words = i.result.count, Words(i.attributes["dtype"], i.attributes["vector"])
    offset = p.of(i.operands[0], count)
    made: list[Any] = []
    for start in _groups(count, words.vector):
        made += _plain_load(p, _shared_pointer(p, i, offset[start]), 3, words)
    p.results(i, made)


class Deferred(Sequence[Any]):
    """Registers that are loaded in groups, each where the first of its registers is asked for: so few are held at once."""

    def __init__(self, loads: Sequence[Callable[[], list[Any]]], each: int) -> None:
        self.loads, self.each = loads, each
        self.made: dict[int, list[Any]] = {}

    def __len__(self) -> int:
        return len(self.loads) * self.each

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[k] for k in range(*place.indices(len(self)))]
        if not 0 <= place < len(self):
            raise IndexError(place)
        group, register = divmod(place, self.each)
        if group not in self.made:
            self.made[group] = self.loads[group]()
        return self.made[group][register]


def _matrix_load(p: NvptxPrinter, i: Instruction) -> None:
    n, words = i.attributes["matrices"], Words(i.attributes["dtype"], 4 // i.attributes["dtype"].itemsize)
    kind = f"x{n}{'.trans' if i.attributes['transposed'] else ''}"
    result = "i32" if n == 1 else "{" + ", ".join(["i32"] * n) + "}"
    name = p.declare(f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.{kind}.b16.p3", f"{result}(ptr addrspace(3))")

    def load(offset: Val) -> list[Any]:
        raw = p.effect(f"call {result} {name}(ptr addrspace(3) {_shared_pointer(p, i, offset)})", "i32")
        got = [raw] if n == 1 else [p.em.emit(f"extractvalue {result} {raw}, {k}", "i32") for k in range(n)]
        return words.unpack(p, got)

    offsets = p.values[i.operands[0]]
    p.results(i, Deferred([partial(load, offset) for offset in offsets], i.result.count // len(offsets)))


def _shared_store(p: NvptxPrinter, i: Instruction) -> None:
    value = i.operands[1]
    count, words = value.count, Words(value.dtype, i.attributes["vector"])
    offset, values = p.of(i.operands[0], count), p.of(value, count)
    mask = p.of(i.operands[2], count) if len(i.operands) > 2 else None
    if p.kernel.copiers and not p.barrier_threads:  # further warps hold the same before they begin to copy
        mine = p.thread().lt(WARP * p.kernel.warps, False)
        mask = [mine] * count if mask is None else [m & mine for m in mask]
    for start in _groups(count, words.vector):
        part = values[start : start + words.vector]
        if mask is None:
            _plain_store(p, _shared_pointer(p, i, offset[start]), 3, part, words)
        else:
            _masked_store(p, shared_address(p, i, offset[start]), mask[start], part, words, "shared")


def _shared_add(p: NvptxPrinter, i: Instruction) -> None:
    count = i.operands[1].count
    offset, values = (p.of(x, count) for x in i.operands[:2])
    mask = p.of(i.operands[2], count) if len(i.operands) > 2 else [None] * count
    for o, v, m in zip(offset, values, mask, strict=True):
        pointer = _shared_pointer(p, i, o)

        def effect(pointer: Val = pointer, v: Val = v) -> Val:
            return p.effect(f'atomicrmw add ptr addrspace(3) {pointer}, i32 {v} syncscope("block") monotonic', "i32")

        _conditional(p, m, "i32", effect)


def _copy_async(p: NvptxPrinter, i: Instruction) -> None:
    """Copies by threads in the background; where the mask is false, zeros are written."""
    count, size = i.operands[0].count, i.attributes["bytes"]
    offset, address = (p.of(x, count) for x in i.operands[:2])
    mask = p.of(i.operands[2], count) if len(i.operands) > 2 else [None] * count
    how = "cg" if size == 16 else "ca"
    for o, a, m in zip(offset, address, mask, strict=True):
        text = f"cp.async.{how}.shared.global [$0], [$1], {size}{', $2' if m is not None else ''};"
        operands = [f"i32 {shared_address(p, i, o)}", f"i64 {a}"]
        if m is not None:
            operands.append(f"i32 {p.em.select(m, p.em.const('i32', size), 0)}")
        constraints = "r,l" + (",r" if m is not None else "")
        p.line(f'call void asm sideeffect "{text}", "{constraints}"({", ".join(operands)})')


def _copy_commit(p: NvptxPrinter, i: Instruction) -> None:
    p.line(f"call void {p.declare('llvm.nvvm.cp.async.commit.group', 'void()')}()")


def _copy_wait(p: NvptxPrinter, i: Instruction) -> None:
    name = p.declare("llvm.nvvm.cp.async.wait.group", "void(i32 immarg)")
    p.line(f"call void {name}(i32 {i.attributes['pending']})")


HANDLERS: dict[str, Callable[[Any, Instruction], None]] = {
    "load": _load, "store": _store, "atomic": _atomic, "atomic_cas": _atomic_cas, "shared_load": _shared_load, "shared_store": _shared_store,
    "matrix_load": _matrix_load,
    "shared_add": _shared_add, "copy_async": _copy_async, "copy_commit": _copy_commit, "copy_wait": _copy_wait,
}  # fmt: skip
