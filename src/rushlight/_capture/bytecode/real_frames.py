"""Frames of CPython that stand for interpreted ones: what tracebacks hold, and what native code finds when it looks at its caller."""

from __future__ import annotations

import dis
import inspect
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import CodeType, FrameType, FunctionType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rushlight._capture.bytecode.frame import Frame

__all__ = ["HERE", "call_as", "chain_of", "frame_of", "is_call_stub", "natively", "raised_in", "raising"]


class _Here(threading.local):
    """What this thread interprets."""

    frame: Frame | None = None
    """The frame whose instruction is being executed."""


HERE = _Here()
MARK = object()
"""The first constant of every stub."""
NOT_IN_STUB = (
    inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE | inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS | inspect.CO_NESTED
)  # fmt: skip
OF_FUNCTIONS = inspect.CO_NEWLOCALS | inspect.CO_OPTIMIZED
CALL = [("PUSH_NULL", 0), ("LOAD_FAST", 0), ("LOAD_FAST", 1), ("LOAD_FAST", 2), ("CALL_FUNCTION_EX", 1)]
CALL_NAME = [("PUSH_NULL", 0), ("LOAD_NAME", 0), ("BUILD_TUPLE", 0), ("CALL_FUNCTION_EX", 0)]
RAISE = [("LOAD_ASSERTION_ERROR", 0), ("RAISE_VARARGS", 1)]


def is_call_stub(code: CodeType) -> bool:
    """Whether a code object is one of those by which `call_as` calls."""
    return code.co_argcount == 3 and bool(code.co_consts) and code.co_consts[0] is MARK


def call_as(frame: Frame, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function from a frame with the names, globals and line of an interpreted one: warnings and `sys._getframe(1)` find that."""
    offset = frame.decoded.offsets[frame.ip - 1] if frame.ip else 0
    stubs = frame.decoded.call_stubs
    stub = stubs.get(offset)
    if stub is None:
        stub = stubs[offset] = _stub(frame.code, frame.line, offset, CALL, ".function", ".args", ".kwargs")
    return FunctionType(stub, frame.globals)(function, args, kwargs)


def natively(function: Any, *args: Any) -> Any:
    """Call a function from a frame like the one whose instruction is being executed."""
    frame = HERE.frame
    return function(*args) if frame is None else call_as(frame, function, args, {})


def raised_in(frame: Frame) -> FrameType:
    """A frame of CPython, no longer running, with the names, positions, globals and locals of an interpreted one."""
    decoded = frame.decoded
    if decoded.trace_stub is None:
        decoded.trace_stub = raising(frame.code)
    return frame_of(decoded.trace_stub, frame.globals, dict(frame.visible_locals()))


def raising(code: CodeType) -> CodeType:
    """A code object with the names and positions of another, of which `frame_of` makes frames."""
    return code if code.co_consts and code.co_consts[0] is MARK else _stub(code, code.co_firstlineno, 0, RAISE)


def frame_of(stub: CodeType, namespace: dict[str, Any], names: dict[str, Any]) -> FrameType:
    """A frame of CPython, no longer running, of the code of `raising`."""
    try:
        exec(stub, namespace, names)  # noqa: S102
    except AssertionError as error:
        entry = error.__traceback__
        assert entry is not None and entry.tb_next is not None
        return entry.tb_next.tb_frame
    raise RuntimeError("a stub did not raise")


def chain_of(frames: Sequence[Frame]) -> FrameType:
    """A frame of CPython for the last of some interpreted frames, behind it (`f_back`) those for the others."""
    found: list[FrameType] = []

    def last() -> None:
        back = sys._getframe(1)
        found.append(back)

    call: Callable[[], Any] = last
    spaces = []
    for frame in reversed(frames):
        offset = frame.decoded.offsets[frame.ip - 1] if frame.ip else 0
        stub = _stub(frame.code, frame.line, offset, CALL_NAME)
        namespace = {**frame.visible_locals(), ".call": call}
        spaces.append(namespace)
        call = partial(exec, stub, frame.globals, namespace)
    call()
    for namespace in spaces:
        del namespace[".call"]
    return found[0]


def _stub(code: CodeType, line: int, offset: int, instructions: list[tuple[str, int]], *parameters: str) -> CodeType:
    """A code object like another that executes a few instructions, the last of them at an offset.

    Where there is no room before the offset, the line stands, without columns, for all of it.
    """
    start = 2 + 2 * (len(instructions) - 1)
    changed: dict[str, Any] = {}
    if offset < start:
        if instructions is not RAISE:
            changed = {"co_firstlineno": line, "co_linetable": _one_line(start + 4)}
        offset = start
    name = dis.opmap
    text = [(name["RESUME"], 0), *[(name["NOP"], 0)] * ((offset - start) // 2)]
    text += [(name[opname], arg) for opname, arg in instructions]
    text.append((name["RETURN_VALUE"], 0))
    text += [(name["NOP"], 0)] * max(0, len(code.co_code) // 2 - len(text))
    flags = code.co_flags & ~NOT_IN_STUB
    return code.replace(
        co_code=bytes(x for pair in text for x in pair), co_consts=(MARK,), co_names=(".call",), co_exceptiontable=b"",
        co_flags=flags | OF_FUNCTIONS if parameters else flags & ~OF_FUNCTIONS, co_argcount=len(parameters), co_posonlyargcount=0,
        co_kwonlyargcount=0, co_varnames=parameters, co_nlocals=len(parameters), co_cellvars=(), co_freevars=(),
        co_stacksize=max(code.co_stacksize, 4), **changed,
    )  # fmt: skip


def _one_line(size: int) -> bytes:
    """The table of lines of code all of which is on the first one: entries without columns, of up to eight units, no change of line."""
    units, table = size // 2, bytearray()
    while units > 0:
        now = min(units, 8)
        table += bytes((0x80 | 13 << 3 | now - 1, 0))
        units -= now
    return bytes(table)
