"""Tracebacks that show the frames of the program: entries for interpreted frames in, those of the interpreter out."""

from __future__ import annotations

import dis
import inspect
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rushlight._capture.bytecode.frame import Frame

__all__ = ["add_entry", "program_part"]

OURS = "rushlight._capture."
NOT_IN_STUB = (
    inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE | inspect.CO_NEWLOCALS
    | inspect.CO_OPTIMIZED | inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_NESTED
)  # fmt: skip


def program_part(entry: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of modules under `rushlight._capture`."""
    first = last = None
    while entry is not None:
        following = entry.tb_next
        if not str(entry.tb_frame.f_globals.get("__name__", "")).startswith(OURS):
            if last is None:
                first = entry
            elif last.tb_next is not entry:
                last.tb_next = entry
            last = entry
        entry = following
    if last is not None and last.tb_next is not None:
        last.tb_next = None
    return first


def add_entry(error: BaseException, frame: Frame) -> None:
    """Put an entry for an interpreted frame at the head of an exception's traceback."""
    offset = frame.decoded.offsets[max(frame.ip - 1, 0)]
    real = _real_frame(frame)
    error.__traceback__ = TracebackType(error.__traceback__, real, offset, frame.line)


def _real_frame(frame: Frame) -> Any:
    """A frame object of CPython with the names, positions, globals and locals of an interpreted frame."""
    stub = frame.decoded.trace_stub
    if stub is None:
        stub = frame.decoded.trace_stub = _stub(frame.code)
    try:
        exec(stub, frame.globals, dict(frame.visible_locals()))  # noqa: S102
    except AssertionError as error:
        entry = error.__traceback__
        assert entry is not None and entry.tb_next is not None
        return entry.tb_next.tb_frame
    raise RuntimeError("a stub did not raise")


def _stub(code: CodeType) -> CodeType:
    """A code object with the positions of another that raises AssertionError at once."""
    name = dis.opmap
    first = [name["RESUME"], 0, name["LOAD_ASSERTION_ERROR"], 0, name["RAISE_VARARGS"], 1]
    if "LOAD_ASSERTION_ERROR" not in name:
        raise NotImplementedError("tracebacks of interpreted frames on this version of Python")
    text = bytes(first).ljust(len(code.co_code), bytes([name["NOP"]]))
    padded = bytearray(text)
    padded[7::2] = bytes(len(padded[7::2]))
    return code.replace(
        co_code=bytes(padded), co_exceptiontable=b"", co_flags=code.co_flags & ~NOT_IN_STUB, co_argcount=0, co_posonlyargcount=0,
        co_kwonlyargcount=0, co_varnames=(), co_nlocals=0, co_cellvars=(), co_freevars=(), co_stacksize=max(code.co_stacksize, 2),
    )  # fmt: skip
