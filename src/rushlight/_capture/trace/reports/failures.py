"""Errors of the tracer's own, told apart from those of the program that it follows.

What the program raises comes out of native code that the tracer calls for it, or out of a `raise` in the tracer that
stands for one of CPython's.  Anything else that leaves the tracer's code is a mistake in it: no handler of the program
may catch that, and the function runs as it is.
"""

from __future__ import annotations

import dis
import inspect
import textwrap
import traceback
import types
from collections.abc import Sequence
from typing import Any

from rushlight._capture.bytecode import Interrupt
from rushlight._capture.trace.reports.reducing import Fails, reduced
from rushlight._engine.core.tensor import Tensor

__all__ = ["TracerError", "is_own", "reproduction"]

_OURS = ("rushlight._capture.trace.", "rushlight._capture.recording.")
# Functions that do for the program what CPython would: their errors are the program's.
_ACTING = frozenset((
    "native", "_native", "outside_of_trace", "_put", "delete_item", "store_attr", "delete_attr", "write_attribute", "load_attr", "plain_attribute",
    "module_attribute", "class_attribute", "super_attribute", "function_attribute", "slot_attribute", "descriptor_attribute", "load_item", "load_cell", "delete_cell",
    "by_methods", "build_string", "build_set", "build_map", "contained", "generic_attribute", "_class", "_native_class", "_converted", "_construct",
    "_builtin", "_native_function", "_native_method", "_outside_method", "_slot_call", "_isinstance", "_issubclass", "as_length", "instead",
    "handler", "_copy", "_deep", "memoized", "realise", "call", "_kept_result", "_partial", "_made", "entries", "entry", "update",
    "import_module", "make_exception", "unpack_mapping", "tensor_attribute", "__call__", "_run", "_find_spec", "_signature", "_environment",
    "_instance", "enter_context", "step_below", "delete_object_attribute",
))  # fmt: skip
_RAISING = frozenset((dis.opmap["RAISE_VARARGS"], dis.opmap["RERAISE"]))


class TracerError(Interrupt):
    """The tracer failed, in its own code: `error`, at an instruction of the program: (code, number)."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error
        self.place: tuple[types.CodeType, int] | None = None


def is_own(error: BaseException) -> bool:
    """Whether an exception says that the tracer's code is wrong."""
    entry = error.__traceback__
    if entry is None:
        return False
    while entry.tb_next is not None:
        entry = entry.tb_next
    frame, at = entry.tb_frame, entry.tb_lasti
    if not str(frame.f_globals.get("__name__", "")).startswith(_OURS):
        return False
    if frame.f_code.co_code[at] in _RAISING:
        return isinstance(error, AssertionError)
    return frame.f_code.co_name not in _ACTING


# ***** what a report needs *****


def reproduction(
    function: types.FunctionType, state: Sequence[Any], error: BaseException, place: Any, fails: Fails | None = None
) -> str:
    """A program that shows a failure of the compiler: the function, and arguments like those of the call.

    `fails`, if given, says whether a function of these parameters fails in the same way: the text is that of the
    shortest one that could be found.
    """
    shorter = None if fails is None else reduced(function, fails)
    told = "".join(traceback.format_exception(error)).rstrip()
    where = "" if place is None else f" at {place[0].co_filename}:{_line(*place)}, in {place[0].co_qualname}"
    head = [
        f"# rushlight could not compile {function.__qualname__}{where}.",
        *(f"# {line}" for line in told.split("\n")),
    ]
    body = [
        "import warnings",
        "",
        "import rushlight as torch",
        "",
        'warnings.simplefilter("error")  # the warning that it runs as it is',
    ]
    body += ["", "", _source(function) if shorter is None else str(shorter.__doc__), "", ""]
    function = shorter or function
    name = function.__name__ if function.__name__.isidentifier() else "function"
    given = [f"torch.compile({name})(", *_arguments(function.__code__, state), ")"]
    needed = sorted({n for n in function.__code__.co_names if n in function.__globals__ and n != "torch"})
    if needed:
        head.append(f"# It uses these globals of {function.__module__}: {', '.join(needed)}.")
    if function.__code__.co_freevars:
        head.append(f"# It uses these variables of the function around it: {', '.join(function.__code__.co_freevars)}.")
    return "\n".join([*head, *body, *given])


def _arguments(code: types.CodeType, values: Sequence[Any]) -> list[str]:
    """The arguments of a call, line by line, for the values of a function's parameters."""
    count = code.co_argcount
    marks = [""] * count + [f"{name}=" for name in code.co_varnames[count : count + code.co_kwonlyargcount]]
    marks += ["*"] if code.co_flags & inspect.CO_VARARGS else []
    marks += ["**"] if code.co_flags & inspect.CO_VARKEYWORDS else []
    return [f"    {mark}{_described(x)}," for mark, x in zip(marks, values, strict=False)]


def _source(function: types.FunctionType) -> str:
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip()
    except (OSError, TypeError):
        return f"# the source of {function.__qualname__} cannot be read"


def _described(x: Any) -> str:
    """An expression for a value like this one: tensors with other elements."""
    if isinstance(x, Tensor):
        text = f"torch.empty_strided({tuple(x.shape)}, {tuple(x.stride())}, dtype={x.dtype}).zero_()"
        return f"{text}.requires_grad_()" if x._rg else text
    if isinstance(x, (list, tuple)) and type(x) in (list, tuple):
        items = ", ".join(_described(each) for each in x)
        return f"[{items}]" if isinstance(x, list) else f"({items}{',' if len(x) == 1 else ''})"
    if type(x) is dict:
        return "{" + ", ".join(f"{k!r}: {_described(v)}" for k, v in x.items()) + "}"
    if x is None or isinstance(x, (bool, int, float, complex, str, bytes)):
        return repr(x)
    return f"...  # a {type(x).__module__}.{type(x).__qualname__}"


def _line(code: types.CodeType, ip: int) -> int:
    for number, instruction in enumerate(dis.get_instructions(code)):
        if number >= ip and instruction.positions is not None and instruction.positions.lineno is not None:
            return instruction.positions.lineno
    return code.co_firstlineno
