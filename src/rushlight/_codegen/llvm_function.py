"""Kernels as LLVM functions.

Vector code is explicit: a loop over lanes becomes a main loop of `width * unroll` lanes and a masked loop for what is
left. The parts: `llvm_scope` (the function: scopes and loops), `llvm_index`, `llvm_memory` (loads), `llvm_values`
(expressions), `llvm_stores`, `llvm_reduce` (reductions, scans, tiles). Each is an object of its own; all write to one
`FunctionEmitter`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._codegen.llvm_reduce import Reductions
from rushlight._codegen.llvm_scope import FunctionEmitter, Scope
from rushlight._codegen.llvm_stores import Stores
from rushlight._codegen.llvm_values import Values
from rushlight._codegen.loops import Kernel, Loop, Reduce, Scan, Section, Tile
from rushlight._schedule.expressions import Store
from rushlight._schedule.indexing import Data

__all__ = ["print_kernel"]


class Printer:
    """Writes one kernel as an LLVM function."""

    __slots__ = ("fn", "indices", "statement_writers", "values")

    def __init__(self, kernel: Kernel, name: str, fma: bool, bits: int, byte_dots: bool) -> None:
        self.fn = fn = FunctionEmitter(kernel, name, fma, bits, byte_dots)
        self.values = values = Values(fn)
        self.indices = values.indices
        reductions = Reductions(fn, values, self.statements)
        self.statement_writers: dict[type, Callable[[Any], None]] = {
            Loop: self.loop,
            Store: Stores(fn, values).store,
            Reduce: reductions.reduce,
            Scan: reductions.scan,
            Tile: reductions.tile,
        }

    def text(self) -> str:
        """The text of the module."""
        sections: list[str] = []
        piece = "%piece"
        for i, section in enumerate(self.fn.kernel.sections):
            piece = self.put_section(section, piece, i, sections)
        head = f"define i32 @{self.fn.name}(ptr noundef %bufs, ptr noundef %ints, i64 noundef %piece) nounwind "
        head += f'"prefer-vector-width"="{self.fn.bits}" "min-legal-vector-width"="{self.fn.bits}" {{\nentry:'
        function = "\n".join([head, *self.fn.allocas, *self.fn.scopes[0].lines, "  br label %section0", *sections, "}"])
        return "\n".join(["declare i32 @rl_fail(ptr, i64, i64, i64, i64, i64)", str(self.fn.module), function, ""])

    def put_section(self, section: Section, piece: str, number: int, lines: list[str]) -> str:
        """Write one section to `lines`.  Returns the piece's number as the next section counts it."""
        self.fn.section = section
        last = number == len(self.fn.kernel.sections) - 1
        joined = self.fn.kernel.joined
        lines.append(f"section{number}:")
        rest = piece
        label = f"section{number}"
        if not last and not joined:
            here, rest, label = self.fn.one.fresh(), self.fn.one.fresh(), f"body{number}"
            count = self.fn.slot(section.pieces)
            lines.append(f"  {here} = icmp slt i64 {piece}, {count}")
            lines.append(f"  {rest} = sub i64 {piece}, {count}")
            lines.append(f"  br i1 {here}, label %{label}, label %section{number + 1}")
            lines.append(f"{label}:")
        scope = Scope(label)
        self.fn.scopes.append(scope)  # the next section does not see this section's values
        split = section.split
        if split is not None:
            chunk = self.fn.slot_word(("chunk", split.chunk), "i64")
            lo = self.fn.scalar(f"mul i64 {piece}, {chunk}", "i64", 1)
            end = self.fn.scalar(f"add i64 {lo}, {chunk}", "i64", 1)
            self.fn.bounds = (lo, self.fn.smaller(end, self.fn.slot(split.var.size)))
            if split.index is not None:
                self.fn.names[split.index], self.fn.depths[split.index] = piece, 1
        self.statements(section.body)
        self.fn.scopes.pop()
        lines.extend(scope.lines)
        lines.append(f"  br label %section{number + 1}" if joined and not last else "  ret i32 0")
        return rest

    def statements(self, body: Sequence[Any]) -> None:
        """Write statements one after another."""
        for statement in body:
            self.statement_writers[type(statement)](statement)

    def loop(self, s: Loop) -> None:
        """Write a loop; over lanes, a main loop of whole steps and a masked loop for the rest."""
        lo, hi = self.fn.range_of(s.var)
        section = self.fn.section
        assert section is not None
        if not s.lanes:
            if only_scatters(s):
                middle = self.fn.main_end(lo, hi, STEPS)
                self.fn.loop(None, lo, middle, str(STEPS), (), lambda iv, carried: self.several(s, iv))
                lo = middle
            self.fn.loop(s.var, lo, hi, "1", (), lambda iv, carried: self.nested(s.body))
            return
        wide = section.width * section.unroll
        if section.width == 1:
            self.fn.over_lanes(s.var, lo, hi, 1, False, (), lambda carried: self.nested(s.body))
            return
        lo = self.first_line(s, lo, hi)
        middle = lo
        if section.unroll:
            middle = self.fn.main_end(lo, hi, wide)

            def step(carried: list[str]) -> list[str]:
                for buffer, ix, each in s.ahead:
                    self.values.loads.fetch_ahead(self.indices.pointer(buffer, ix), each)
                return self.nested(s.body)

            self.fn.over_lanes(s.var, lo, middle, wide, False, (), step)
        self.fn.over_lanes(s.var, middle, hi, section.width, True, (), lambda carried: self.nested(s.body))

    def several(self, s: Loop, first: str) -> list[str]:
        """`STEPS` turns of a loop, unrolled."""
        parent, here = self.fn.scopes[-1], self.fn.here()
        for k in range(STEPS):
            scope = Scope(parent.label)
            self.fn.scopes.append(scope)
            self.fn.names[s.var], self.fn.depths[s.var] = (
                self.fn.scalar(f"add nsw i64 {first}, {k}", "i64", here + 1),
                here + 1,
            )
            self.statements(s.body)
            self.fn.scopes.pop()
            parent.lines.extend(scope.lines)
            parent.label = scope.label
        del self.fn.names[s.var], self.fn.depths[s.var]
        return []

    def first_line(self, s: Loop, lo: str, hi: str) -> str:
        """Where stores that bypass the caches first reach a whole line.  Elements before it are stored by masked
        lanes.
        """
        store = s.body[0]
        if len(s.body) != 1 or not isinstance(store, Store) or not store.stream or store.buffer.role != "input":
            return lo
        here, size, section = self.fn.here(), store.buffer.dtype.itemsize, self.fn.section
        assert section is not None
        place = self.fn.scalar(
            f"getelementptr i8, ptr {self.fn.base(store.buffer)}, i64 {self.fn.scalar(f'mul i64 {lo}, {size}', 'i64', here)}",
            "ptr",
            here,
        )
        address = self.fn.scalar(f"ptrtoint ptr {place} to i64", "i64", here)
        left = self.fn.scalar(f"and i64 {self.fn.scalar(f'sub i64 0, {address}', 'i64', here)}, 63", "i64", here)
        count = self.fn.scalar(f"udiv exact i64 {left}, {size}", "i64", here)
        start = self.fn.smaller(self.fn.scalar(f"add i64 {lo}, {count}", "i64", here), hi)
        self.fn.over_lanes(s.var, lo, start, section.width, True, (), lambda carried: self.nested(s.body))
        return start

    def nested(self, body: Sequence[Any]) -> list[str]:
        self.statements(body)
        return []


STEPS = 4  # turns of a scatter's loop that are unrolled


def only_scatters(s: Loop) -> bool:
    """Whether a loop only stores elements at indices from data, so that counting would take much of its time."""
    store = s.body[0]
    return (
        len(s.body) == 1
        and isinstance(store, Store)
        and store.guard is None
        and any(type(a) is Data and s.var in a.vars for a, _ in store.ix.terms)
    )


def print_kernel(kernel: Kernel, name: str, *, fma: bool, bits: int, byte_dots: bool = False) -> str:
    """The LLVM module that defines `i32 @name(ptr bufs, ptr ints, i64 piece)`, for vectors of `bits`."""
    return Printer(kernel, name, fma, bits, byte_dots).text()
