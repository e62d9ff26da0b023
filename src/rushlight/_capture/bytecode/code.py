"""Code objects, decoded once: a list of (handler, argument), lines, handlers of exceptions, liveness."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any, NamedTuple

from rushlight._capture.bytecode.liveness import liveness
from rushlight._capture.bytecode.versions import opcode_names, table

__all__ = ["DecodedCode", "Raw", "decode"]


class Raw:
    """An instruction before its argument is decoded: what a decoder of the table gets."""

    __slots__ = ("arg", "code", "following", "found", "index", "index_at")

    def __init__(
        self, code: CodeType, arg: int, following: int, index: int, index_at: dict[int, int], found: list[Instruction]
    ) -> None:
        self.code, self.arg, self.index, self.index_at, self.found = code, arg, index, index_at, found
        self.following = following // 2
        """Where the next instruction is in `co_code`, in units of two bytes."""

    def place(self, unit: int) -> int:
        """The index of the instruction at a position in `co_code`, in units of two bytes."""
        return self.index_at[2 * unit]


Instruction = tuple[int, int, str, int, int]


class Catch(NamedTuple):
    """Where an exception goes on: an entry of the exception table."""

    target: int
    depth: int
    lasti: bool


class DecodedCode:
    """A code object, decoded for the interpreter.  It does not hold the code object."""

    __slots__ = (
        "__weakref__", "bind_stub", "call_stubs", "catches", "cells", "lines", "live", "local_names", "offsets", "opnames", "program", "raw_args",
        "trace_stubs",
    )  # fmt: skip

    program: list[tuple[Callable[..., None], Any]]
    opnames: list[str]
    raw_args: list[int]
    offsets: list[int]
    """The position of each instruction in `co_code`, in bytes."""
    lines: list[int | None]
    catches: list[Catch | None]
    local_names: tuple[str, ...]
    cells: tuple[bool, ...]
    live: list[int] | None
    bind_stub: CodeType | None
    trace_stubs: dict[tuple[str, ...], CodeType]
    """Code objects that stand for this one in tracebacks, by the names of the locals that are bound."""
    call_stubs: dict[int, CodeType]
    """Code objects that stand for this one when it calls native code, by the offset of the call."""

    def __init__(self, code: CodeType) -> None:
        self.live = self.bind_stub = None
        self.call_stubs, self.trace_stubs = {}, {}
        names = [*code.co_varnames]
        names += [name for name in code.co_cellvars if name not in code.co_varnames]
        names += code.co_freevars
        self.local_names = tuple(names)
        self.cells = tuple(name in code.co_cellvars or i >= code.co_nlocals for i, name in enumerate(names))
        self._decode(code)
        self.lines = _lines(code, self.offsets)

    def _decode(self, code: CodeType) -> None:
        entries = table()
        found = list(_instructions(code))
        index_at = {each[0]: index for index, each in enumerate(found)}
        self.program, self.opnames, self.raw_args, self.offsets = program, opnames, raw_args, offsets = [], [], [], []
        for index, (_, offset, opname, arg, following) in enumerate(found):
            handler, decoder = entries[opname]
            if decoder is not None:
                program.append((handler, decoder(Raw(code, arg, following, index, index_at, found))))
            else:
                program.append((handler, arg))
            opnames.append(opname)
            raw_args.append(arg)
            offsets.append(offset)
        self.catches = self._catches(code, index_at) if code.co_exceptiontable else [None] * len(program)

    def _catches(self, code: CodeType, starts: dict[int, int]) -> list[Catch | None]:
        result: list[Catch | None] = [None] * len(self.program)
        for start, end, target, depth, lasti in _exception_table(code):
            catch = Catch(starts[target], depth, lasti)
            first, last = bisect_left(self.offsets, start), bisect_left(self.offsets, end)
            result[first:last] = [catch] * (last - first)
        return result

    def live_at(self, code: CodeType, index: int) -> frozenset[int]:
        """Indices of the locals that may be read at an instruction or later, or where an exception of the one before it
        is handled.
        """
        if self.live is None:
            self.live = liveness(self, code)
        mask = self.live[index] if index < len(self.live) else 0
        catch = self.catches[index - 1] if index else None
        if catch is not None:
            mask |= self.live[catch.target]
        return frozenset(i for i in range(mask.bit_length()) if mask >> i & 1)


def _instructions(code: CodeType) -> Iterator[Instruction]:
    """(start with its EXTENDED_ARGs, offset, name, argument, offset of what follows, caches skipped) of each
    instruction.
    """
    names = opcode_names()
    text = code.co_code
    start: int | None = None
    high = 0
    pending: tuple[int, int, str, int] | None = None
    for offset in range(0, len(text), 2):
        opname = names[text[offset]]
        if opname == "CACHE":
            continue
        if pending is not None:
            yield (*pending, offset)
            pending = None
        if start is None:
            start = offset
        arg = high << 8 | text[offset + 1]
        if opname == "EXTENDED_ARG":
            high = arg
            continue
        pending = (start, offset, opname, arg)
        start, high = None, 0
    if pending is not None:
        yield (*pending, len(text))


def _lines(code: CodeType, offsets: list[int]) -> list[int | None]:
    lines: list[int | None] = []
    at, size = 0, len(offsets)
    for _, end, line in code.co_lines():
        while at < size and offsets[at] < end:
            lines.append(line)
            at += 1
    return lines + [None] * (size - at)


def _exception_table(code: CodeType) -> Iterator[tuple[int, int, int, int, bool]]:
    """(start, end, target: all in bytes; depth of the stack, whether the instruction is pushed) of each entry."""
    text = iter(code.co_exceptiontable)

    def number(first: int) -> int:
        value = first & 63
        while first & 64:
            first = next(text)
            value = value << 6 | first & 63
        return value

    for first in text:
        start = number(first) * 2
        length = number(next(text)) * 2
        target = number(next(text)) * 2
        depth = number(next(text))
        yield start, start + length, target, depth >> 1, bool(depth & 1)


_DECODED: dict[int, tuple[weakref.ref[CodeType], DecodedCode]] = {}


def decode(code: CodeType) -> DecodedCode:
    """The decoded form of a code object: made once, kept as long as the code object lives."""
    key = id(code)
    found = _DECODED.get(key)
    if found is not None:
        return found[1]
    decoded = DecodedCode(code)
    _DECODED[key] = weakref.ref(code, lambda _, key=key: _DECODED.pop(key, None)), decoded  # type: ignore[misc]
    return decoded
