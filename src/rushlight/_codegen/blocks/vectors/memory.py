"""Accesses to memory as LLVM text: runs of neighbours, single elements, elements scattered over lanes; masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._codegen.scalar import Val, mem_type, reg_type
from rushlight._codegen.scalar.writer import lane_mask, mem_lanes
from rushlight._types.dtype import DType

from ..types import Element, Pointer
from .function import VectorFunction

__all__ = ["Buffer", "Memory", "element_bytes", "memory_type", "register_type"]

_MANGLED = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}


class Buffer(NamedTuple):
    """A tile in memory: its address, and for each dim the step in elements."""

    pointer: str
    element: Element
    strides: tuple[int, ...]


def element_bytes(element: Element) -> int:
    return 8 if isinstance(element, Pointer) else element.itemsize


def register_type(element: Element) -> str:
    return "ptr" if isinstance(element, Pointer) else reg_type(element)


def memory_type(element: Element) -> str:
    return "ptr" if isinstance(element, Pointer) else mem_type(element)


class Memory:
    """Reads and writes elements at pointers; values in registers come and go in the forms of `Writer`."""

    def __init__(self, fn: VectorFunction) -> None:
        self.fn = fn
        self.slots: dict[str, str] = {}

    # ***** forms *****

    def from_memory(self, raw: str, element: Element, width: int) -> Any:
        em = self.fn.emitter(width)
        return em.val(raw, "ptr") if isinstance(element, Pointer) else em.from_memory(raw, element)

    def to_memory(self, value: Any, element: Element) -> Val:
        if isinstance(element, Pointer):
            return value
        em = value[0].em if isinstance(value, tuple) else value.em
        return em.to_memory(value, element)

    def vector_type(self, element: Element, width: int) -> str:
        count = width * self.parts(element)
        return memory_type(element) if count == 1 else f"<{count} x {memory_type(element)}>"

    def parts(self, element: Element) -> int:
        return mem_lanes(element) if isinstance(element, DType) else 1

    def align(self, element: Element) -> int:
        return element_bytes(element) // self.parts(element)

    def mask_of(self, mask: Val, element: Element) -> str:
        """A mask for the numbers of elements: twice each for complex ones."""
        if self.parts(element) == 1:
            return str(mask)
        w = mask.em.width
        order = lane_mask([k // 2 for k in range(2 * w)])
        if w == 1:
            one = mask.em.at(2).splat(mask, "i1")
            return str(one)
        return str(mask.em.emit(f"shufflevector <{w} x i1> {mask}, <{w} x i1> poison, {order}", "i1"))

    # ***** runs of neighbours; all of these emit where the caller's `write` says *****

    def read(self, pointer: str, element: Element, width: int, mask: Val | None = None, other: Any = None) -> Any:
        """`width` neighbours from a pointer on; where the mask is false, `other`, or 0 where that is None."""
        em, vt = self.fn.emitter(width), self.vector_type(element, width)
        if mask is None:
            return self.from_memory(
                str(em.emit(f"load {vt}, ptr {pointer}, align {self.align(element)}", "raw")), element, width
            )
        if width == 1:
            return self.read_if(pointer, element, mask, other)
        count = width * self.parts(element)
        passed = "zeroinitializer" if other is None else str(self.to_memory(other, element))
        mangled = f"v{count}{_mangle(memory_type(element))}"
        name = self.fn.intrinsic(f"llvm.masked.load.{mangled}.p0", vt, "ptr", "i32", f"<{count} x i1>", vt)
        m = self.mask_of(mask, element)
        if self.branches(count):
            return self.from_memory(self.lanes_read(pointer, m, element, count, passed), element, width)
        raw = em.emit(
            f"call {vt} {name}(ptr {pointer}, i32 {self.align(element)}, <{count} x i1> {m}, {vt} {passed})", "raw"
        )
        return self.from_memory(str(raw), element, width)

    def read_if(self, pointer: str, element: Element, mask: Val, other: Any) -> Any:
        """One element, from a place of our own where the mask is false: no branch."""
        em, vt = self.fn.one, self.vector_type(element, 1)
        own = self.dummy()
        chosen = em.emit(f"select i1 {mask}, ptr {pointer}, ptr {own}", "ptr")
        raw = em.emit(f"load {vt}, ptr {chosen}, align {self.align(element)}", "raw")
        value = self.from_memory(str(raw), element, 1)
        return value if other is None else _chosen(em, mask, value, other)

    def dummy(self) -> str:
        """A place that may be read and written and means nothing."""
        line = "  %nowhere = alloca [64 x i8], align 64"
        if line not in self.fn.allocas:
            self.fn.allocas += [line, "  store <64 x i8> zeroinitializer, ptr %nowhere, align 64"]
        return "%nowhere"

    def write(self, pointer: str, value: Any, element: Element, width: int, mask: Val | None = None) -> None:
        """`width` neighbours from a pointer on, where the mask is true."""
        raw, vt, lines = self.to_memory(value, element), self.vector_type(element, width), self.fn.body.lines
        if mask is not None and width == 1:
            pointer = str(self.fn.one.emit(f"select i1 {mask}, ptr {pointer}, ptr {self.dummy()}", "ptr"))
            mask = None
        if mask is None:
            lines.append(f"  store {vt} {raw}, ptr {pointer}, align {self.align(element)}")
            return
        count = width * self.parts(element)
        mangled = f"v{count}{_mangle(memory_type(element))}"
        name = self.fn.intrinsic(f"llvm.masked.store.{mangled}.p0", "void", vt, "ptr", "i32", f"<{count} x i1>")
        m = self.mask_of(mask, element)
        if self.branches(count):
            self.lanes_written(pointer, m, element, count, str(raw))
            return
        lines.append(f"  call void {name}({vt} {raw}, ptr {pointer}, i32 {self.align(element)}, <{count} x i1> {m})")

    # ***** masks without AVX-512: a branch for the mask that is true everywhere, else lane by lane *****

    def branches(self, count: int) -> bool:
        """Whether a masked access is written so: masked stores, and loads of no lane, take hundreds of cycles on some
        processors, and there are no masked accesses of narrow elements.  Only where lines go to the innermost scope, since
        blocks end there.
        """
        return self.fn.machine.vector_bytes == 32 and count <= 64 and len(self.fn.body.scopes) == len(self.fn.scopes)

    def lanes_written(self, pointer: str, mask: str, element: Element, count: int, raw: str) -> None:
        vt, align = f"<{count} x {memory_type(element)}>", self.align(element)
        slot = self.slot(vt)
        self.either(
            mask,
            count,
            [f"store {vt} {raw}, ptr {pointer}, align {align}"],
            [f"store {vt} {raw}, ptr {slot}, align 64"],
            (slot, pointer, element),
        )

    def lanes_read(self, pointer: str, mask: str, element: Element, count: int, passed: str) -> str:
        vt, align, lines = f"<{count} x {memory_type(element)}>", self.align(element), self.fn.body.lines
        slot, (whole, part, made) = self.slot(vt), (self.fn.one.fresh() for _ in range(3))
        yes, no = self.either(
            mask,
            count,
            [f"{whole} = load {vt}, ptr {pointer}, align {align}"],
            [f"store {vt} {passed}, ptr {slot}, align 64"],
            (pointer, slot, element),
            [f"{part} = load {vt}, ptr {slot}, align 64"],
        )
        lines.append(f"  {made} = phi {vt} [ {whole}, %{yes} ], [ {part}, %{no} ]")
        return made

    def either(
        self,
        mask: str,
        count: int,
        whole: Sequence[str],
        before: Sequence[str],
        copy: tuple[str, str, Element],
        after: Sequence[str] = (),
    ) -> tuple[str, str]:
        """`whole` where the mask is true everywhere; else `before`, elements copied where it is true, `after`.  The blocks
        that end either way.
        """
        fn, (source, target, element) = self.fn, copy
        lines, type, align = fn.body.lines, memory_type(element), self.align(element)
        yes, no, turn, done, join = (fn.label(hint) for hint in ("whole", "part", "lane", "lanes", "join"))
        first, bits, k, x, less, rest, more, some, a, b, every, packed = (fn.one.fresh() for _ in range(12))
        count_zeros = fn.intrinsic("llvm.cttz.i64", "i64", "i64", "i1 immarg")
        full = (1 << count) - 1 if count < 64 else -1
        lines += [f"  {packed} = bitcast <{count} x i1> {mask} to i{count}"]
        lines += [f"  {first} = {f'zext i{count} {packed} to i64' if count < 64 else f'or i64 {packed}, 0'}"]
        lines += [f"  {every} = icmp eq i64 {first}, {full}", f"  br i1 {every}, label %{yes}, label %{no}"]
        lines += [f"{yes}:", *(f"  {line}" for line in whole), f"  br label %{join}", f"{no}:"]
        lines += [*(f"  {line}" for line in before), f"  {some} = icmp ne i64 {first}, 0"]
        lines += [f"  br i1 {some}, label %{turn}, label %{done}", f"{turn}:"]
        lines += [f"  {bits} = phi i64 [ {first}, %{no} ], [ {rest}, %{turn} ]"]
        lines += [f"  {k} = call i64 {count_zeros}(i64 {bits}, i1 true)"]
        lines += [
            f"  {a} = getelementptr {type}, ptr {source}, i64 {k}",
            f"  {b} = getelementptr {type}, ptr {target}, i64 {k}",
        ]
        lines += [f"  {x} = load {type}, ptr {a}, align {align}", f"  store {type} {x}, ptr {b}, align {align}"]
        lines += [f"  {less} = add i64 {bits}, -1", f"  {rest} = and i64 {bits}, {less}"]
        lines += [f"  {more} = icmp ne i64 {rest}, 0", f"  br i1 {more}, label %{turn}, label %{done}", f"{done}:"]
        lines += [*(f"  {line}" for line in after), f"  br label %{join}", f"{join}:"]
        fn.scopes[-1].label = join
        return yes, done

    def slot(self, vt: str) -> str:
        """Memory for the lanes of one vector."""
        if vt not in self.slots:
            self.slots[vt] = self.fn.slot(vt)
        return self.slots[vt]

    # ***** elements scattered over lanes *****

    def gather(self, pointers: Val, element: Element, mask: Val | None, other: Any) -> Any:
        """The element at each lane's pointer."""
        width = pointers.em.width
        if width == 1:
            return self.read(str(pointers), element, 1, mask, other)
        em, type = self.fn.emitter(width), memory_type(element)
        if (
            self.parts(element) == 1
            and self.fn.machine.vector_bytes >= 32
            and element_bytes(element) >= 4
            and type != "ptr"
        ):
            vt = self.vector_type(element, width)
            passed = "zeroinitializer" if other is None else str(self.to_memory(other, element))
            mangled = f"v{width}{_mangle(type)}"
            name = self.fn.intrinsic(
                f"llvm.masked.gather.{mangled}.v{width}p0", vt, f"<{width} x ptr>", "i32", f"<{width} x i1>", vt
            )
            chosen = "splat (i1 true)" if mask is None else str(mask)
            raw = em.emit(
                f"call {vt} {name}(<{width} x ptr> {pointers}, i32 {self.align(element)}, <{width} x i1> {chosen}, {vt} {passed})",
                "raw",
            )
            return self.from_memory(str(raw), element, width)
        lanes = self.each(pointers, mask, lambda k, p: self.read(p, element, 1))
        value = joined(em, lanes)
        return value if mask is None or other is None else _chosen(em, mask, value, other)

    def scatter(self, pointers: Val, value: Any, element: Element, mask: Val | None) -> None:
        """Write each lane at its pointer, in order."""
        width = pointers.em.width
        if width == 1:
            self.write(str(pointers), value, element, 1, mask)
            return
        self.each(pointers, mask, lambda k, p: self.write(p, lane(value, k), element, 1))

    def each(self, pointers: Val, mask: Val | None, do: Callable[[int, str], Any]) -> list[Any]:
        """`do(lane, pointer)` for every lane; the pointer is to nowhere where the mask is false."""
        em, one, width = pointers.em, self.fn.one, pointers.em.width
        if mask is not None:
            own = em.splat(self.dummy(), "ptr")
            pointers = em.emit(
                f"select <{width} x i1> {mask}, <{width} x ptr> {pointers}, <{width} x ptr> {own}", "ptr"
            )
        return [
            do(k, str(one.emit(f"extractelement <{width} x ptr> {pointers}, i64 {k}", "ptr"))) for k in range(width)
        ]


def lane(value: Any, k: int) -> Any:
    """One lane of a value, as a scalar."""
    if isinstance(value, tuple):
        return tuple(lane(part, k) for part in value)
    if value.em.width == 1:
        return value
    return value.em.at(1).emit(f"extractelement {value.vt} {value}, i64 {k}", value.type)


def joined(em: Any, lanes: list[Any]) -> Any:
    """Scalars as the lanes of a value."""
    if isinstance(lanes[0], tuple):
        return tuple(joined(em, [x[part] for x in lanes]) for part in (0, 1))
    type, made = lanes[0].type, "poison"
    vt = em.vt(type)
    for k, x in enumerate(lanes):
        made = str(em.emit(f"insertelement {vt} {made}, {type} {x}, i64 {k}", type))
    return em.val(made, type)


def _chosen(em: Any, mask: Val, a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(_chosen(em, mask, x, y) for x, y in zip(a, b, strict=True))
    if a.type == "ptr":
        return em.emit(f"select {em.vt('i1')} {mask}, {a.vt} {a}, {a.vt} {b}", "ptr")
    return em.select(mask, a, b)


def _mangle(type: str) -> str:
    return _MANGLED.get(type, type)
