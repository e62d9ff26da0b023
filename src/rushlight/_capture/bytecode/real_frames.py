"""Frames of CPython that stand for interpreted ones: what tracebacks hold, and what native code finds when it looks at
its caller.
"""

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

__all__ = [
    "HERE",
    "call_as",
    "chain_of",
    "frame_of",
    "is_call_stub",
    "natively",
    "raised_in",
    "run_intrinsic",
    "waiting",
]


class _Here(threading.local):
    """Interpreter state of this thread."""

    frame: Frame | None = None
    """The frame whose instruction is being executed."""


HERE = _Here()
MARK = object()
"""The first constant of every stub."""
NOT_IN_STUB = (
    inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_NESTED
)
OF_FUNCTIONS = inspect.CO_NEWLOCALS | inspect.CO_OPTIMIZED
_NULL_FIRST = sys.version_info < (3, 13)


def _to_call(load: tuple[str, int], *rest: tuple[str, int]) -> list[tuple[str, int]]:
    """Instructions that call what one loads: the mark of a call without `self` goes before it or after it."""
    null = ("PUSH_NULL", 0)
    return [null, load, *rest] if _NULL_FIRST else [load, null, *rest]


CALL = _to_call(("LOAD_FAST", 0), ("LOAD_FAST", 1), ("LOAD_FAST", 2), ("CALL_FUNCTION_EX", 1))
CALL_NAME = _to_call(("LOAD_NAME", 0), ("BUILD_TUPLE", 0), ("BUILD_MAP", 0), ("CALL_FUNCTION_EX", 1))


def is_call_stub(code: CodeType) -> bool:
    """Whether a code object is one of those by which `call_as` calls."""
    return code.co_varnames[:1] == (".function",) and code.co_consts[0] is MARK


def call_as(frame: Frame, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a function from a frame with the names, globals and line of an interpreted one: warnings and
    `sys._getframe(1)` find that.
    """
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
    """A frame of CPython that does not run, with the names, positions, globals and locals of an interpreted one."""
    names = {} if frame.names is frame.globals else frame.visible_locals()
    stubs, key = frame.decoded.trace_stubs, tuple(names)
    stub = stubs.get(key)
    if stub is None:
        stub = stubs[key] = waiting(frame.code, key)
    return frame_of(stub, frame.globals, names)


def waiting(code: CodeType, names: tuple[str, ...] = ()) -> CodeType:
    """A code object with the names and positions of another, of which `frame_of` makes frames with such locals."""
    opcode = dis.opmap
    text = [opcode["RETURN_GENERATOR"], 0, opcode["POP_TOP"], 0, opcode["RESUME"], 0]
    text += [opcode["NOP"], 0] * max(0, len(code.co_code) // 2 - 4)
    text += [opcode["LOAD_CONST"], 0, opcode["RETURN_VALUE"], 0]
    flags = code.co_flags & ~NOT_IN_STUB | OF_FUNCTIONS | inspect.CO_GENERATOR
    return code.replace(
        co_code=bytes(text),
        co_consts=(MARK,),
        co_names=(),
        co_exceptiontable=b"",
        co_flags=flags,
        co_argcount=len(names),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_varnames=names,
        co_nlocals=len(names),
        co_cellvars=(),
        co_freevars=(),
        co_stacksize=max(code.co_stacksize, 2),
    )


def frame_of(stub: CodeType, namespace: dict[str, Any], names: Mapping[str, Any]) -> FrameType:
    """A frame of the code of `waiting`: of a generator that never runs, so that no frame is behind it."""
    frame: FrameType = FunctionType(stub, namespace)(*names.values()).gi_frame
    return frame


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


def run_intrinsic(frame: Frame, opname: str, number: int, *values: Any) -> Any:
    """Run an instruction that calls one of CPython's intrinsic C functions, in the module of a frame."""
    name = dis.opmap
    text = [name["RESUME"], 0]
    for i in range(len(values)):
        text += [name["LOAD_FAST"], i]
    text += [name[opname], number, name["RETURN_VALUE"], 0]
    names = tuple(f".{i}" for i in range(len(values)))
    base = raised_in.__code__
    code = base.replace(
        co_code=bytes(text), co_consts=(MARK,), co_names=(), co_exceptiontable=b"", co_flags=OF_FUNCTIONS, co_argcount=len(values),
        co_posonlyargcount=0, co_kwonlyargcount=0, co_varnames=names, co_nlocals=len(values), co_cellvars=(), co_freevars=(),
        co_linetable=_one_line(len(text)),
    )  # fmt: skip
    return FunctionType(code, frame.globals)(*values)


def _stub(code: CodeType, line: int, offset: int, instructions: list[tuple[str, int]], *parameters: str) -> CodeType:
    """A code object like another that executes a few instructions, the last of them at an offset.

    Where there is no room before the offset, the line stands, without columns, for all of it.
    """
    start = 2 + 2 * (len(instructions) - 1)
    changed: dict[str, Any] = {}
    if offset < start:
        changed = {"co_firstlineno": line, "co_linetable": _one_line(start + 4)}
        offset = start
    name = dis.opmap
    text = [(name["RESUME"], 0), *[(name["NOP"], 0)] * ((offset - start) // 2)]
    text += [(name[opname], arg) for opname, arg in instructions]
    text.append((name["RETURN_VALUE"], 0))
    text += [(name["NOP"], 0)] * max(0, len(code.co_code) // 2 - len(text))
    flags = code.co_flags & ~NOT_IN_STUB
    return code.replace(
        co_code=bytes(x for pair in text for x in pair),
        co_consts=(MARK,),
        co_names=(".call",),
        co_exceptiontable=b"",
        co_flags=flags | OF_FUNCTIONS if parameters else flags & ~OF_FUNCTIONS,
        co_argcount=len(parameters),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_varnames=parameters,
        co_nlocals=len(parameters),
        co_cellvars=(),
        co_freevars=(),
        co_stacksize=max(code.co_stacksize, 4),
        **changed,
    )


def _one_line(size: int) -> bytes:
    """The table of lines of code all of which is on the first one: entries without columns, of up to eight units, no
    change of line.
    """
    units, table = size // 2, bytearray()
    while units > 0:
        now = min(units, 8)
        table += bytes((0x80 | 13 << 3 | now - 1, 0))
        units -= now
    return bytes(table)
