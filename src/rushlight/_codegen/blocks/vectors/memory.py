"""Accesses to memory as LLVM text: runs of neighbours, single elements, elements scattered over lanes; masks."""

from __future__ import annotations

from collections.abc import Callable
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
        lines.append(f"  call void {name}({vt} {raw}, ptr {pointer}, i32 {self.align(element)}, <{count} x i1> {m})")

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
