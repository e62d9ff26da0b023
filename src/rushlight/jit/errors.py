"""Exceptions of compiled code, with the places of the source where it happened."""

from __future__ import annotations

from types import TracebackType
from typing import Any, NoReturn

from rushlight.jit.frontend.errors import highlighted
from rushlight.jit.runtime.compiler import FILE
from rushlight.jit.runtime.operators import RaisedError

__all__ = ["Error", "ScriptWarning", "TracerWarning", "TracingCheckError", "raise_from_graph"]


class Error(Exception):
    """The exception of `raise` and `assert` in compiled code, as `torch.jit.Error`."""


class ScriptWarning(Warning):
    """Compiled code differs from the Python that it was made of."""


class TracingCheckError(Exception):
    """A traced function gives other results than the function itself."""

    def __init__(self, graph_diff_error: Any = None, tensor_compare_error: Any = None, extra_msg: Any = None) -> None:
        parts = ["Tracing failed sanity checks!"]
        if extra_msg is not None:
            parts.append(str(extra_msg))
        for head, text in (("ERROR: Graphs differed across invocations!", graph_diff_error), ("ERROR: Tensor-valued Constant nodes differed in value across invocations. This often indicates that the tracer has encountered untraceable code.", tensor_compare_error)):  # fmt: skip
            if text is not None:
                parts += [head, "\n".join(f"\t{line}" for line in str(text).splitlines())]
        self.message = "\n".join(parts)
        super().__init__(self.message)


class TracerWarning(Warning):
    """A warning of what a trace cannot know: a value of Python that the recorded graph keeps as a constant."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Leave out such warnings of the package itself."""
        import warnings

        warnings.filterwarnings("ignore", category=TracerWarning, module="rushlight.(?!jit)")


def _places(trace: TracebackType | None) -> list[tuple[str, Any]]:
    """(function, place) of every frame that runs a graph, from the outermost to the innermost."""
    found = []
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename == FILE:
            run = frame.f_globals.get("__script__")
            if run is not None:
                line = trace.tb_lineno
                place = run.lines.get(line) or next((run.lines[n] for n in range(line, 0, -1) if n in run.lines), None)
                found.append((run.script_name.rpartition(".")[2] or "forward", place))
        trace = trace.tb_next
    return found


def raise_from_graph(error: Exception) -> NoReturn:
    """Raise what happened in a graph, with the places in the user's source."""
    places = _places(error.__traceback__)
    shown = "".join(highlighted(place) for _, place in places if place is not None)
    head = "The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript (most recent call last):\n"
    if isinstance(error, RaisedError):
        name = error.class_name or "RuntimeError"
        text = (
            f"{name}: {error.message}"
            if error.class_name or not error.message.startswith("AssertionError")
            else f"RuntimeError: {error.message}"
        )
        raise Error(f"{head}{shown}{text}\n") from None
    if isinstance(error, (Error, NotImplementedError)):
        raise error
    raise RuntimeError(f"{head}{shown}{_class_name(error)}: {error}\n") from error


def _class_name(error: Exception) -> str:
    """RuntimeError for what operators of lists, dicts and numbers raise, as in PyTorch; else the class's own name."""
    plain = isinstance(error, (LookupError, ValueError, ArithmeticError, RuntimeError))
    return "RuntimeError" if plain else type(error).__name__
