"""Runs a call by CPython and by the interpreter of bytecode, and describes everything that can be seen of it."""

from __future__ import annotations

import contextlib
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

from rushlight._capture.bytecode import Interpreter, Operations
from rushlight._capture.bytecode.inline import Inlining

HERE = __file__
OURS = ("rushlight._capture.", __name__, "tests.capture.bytecode.test_", "__main__")
ADDRESS = re.compile(r"0x[0-9a-f]+")


class Outermost(Operations):
    """Interprets the function it is given; what that calls runs natively."""


def interpret(function: Any, *args: Any, operations: Operations | None = None) -> Any:
    """The result of a function interpreted; what it calls is interpreted too."""
    it = Interpreter(Inlining() if operations is None else operations)
    it.push_call(function, args, {})
    return it.run()


def describe(value: Any, depth: int = 0) -> Any:
    """A value in words that do not depend on addresses."""
    if isinstance(value, BaseException):
        return described_error(value) if depth < 4 else type(value).__name__
    if isinstance(value, (list, tuple)) and type(value).__module__ == "builtins":
        return type(value).__name__, [describe(x, depth + 1) for x in value]
    if isinstance(value, dict):
        return type(value).__name__, [(describe(k, depth + 1), describe(v, depth + 1)) for k, v in value.items()]
    return type(value).__name__, ADDRESS.sub("0x", repr(value))


def described_error(error: BaseException | None) -> Any:
    """Type, arguments, notes, traceback, cause, context and parts of an exception."""
    if error is None:
        return None
    trace = []
    entry = error.__traceback__
    while entry is not None:
        frame = entry.tb_frame
        if not str(frame.f_globals.get("__name__", "")).startswith(OURS):
            positions = list(frame.f_code.co_positions())
            where = positions[entry.tb_lasti // 2] if 0 <= entry.tb_lasti // 2 < len(positions) else None
            trace.append((frame.f_code.co_qualname, frame.f_code.co_filename, entry.tb_lineno, where))
        entry = entry.tb_next
    parts = [described_error(part) for part in error.exceptions] if isinstance(error, BaseExceptionGroup) else None
    return (
        type(error).__name__,
        ADDRESS.sub("0x", str(error)),
        [describe(arg, 3) for arg in error.args],
        getattr(error, "__notes__", None),
        trace,
        parts,
        described_error(error.__cause__),
        None if error.__context__ is error.__cause__ else described_error(error.__context__),
        error.__suppress_context__,
    )


def outcome(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call returned or raised, printed and warned."""
    printed = io.StringIO()
    seen: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stdout(printed):
        warnings.simplefilter("always")
        try:
            seen["result"] = describe(call())
        except Exception as error:
            seen["error"] = described_error(error)
    seen["printed"] = ADDRESS.sub("0x", printed.getvalue())
    seen["warned"] = [(w.category.__name__, str(w.message), w.filename, w.lineno) for w in caught]
    return seen


def handled(call: Callable[[], Any]) -> Any:
    """A call while an exception is being handled, as in the handler of a program."""
    try:
        raise LookupError("outer")
    except LookupError:
        return call()
