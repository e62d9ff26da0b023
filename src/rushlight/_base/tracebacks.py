"""Tracebacks that end in the user's frame.

Where an exception leaves the package, frames of the package and of what it calls are taken off its traceback, and off those of the exceptions
that it is chained to.  Frames of the user's own functions that the package called (hooks, overrides, `forward`) stay.  Dispatchers do so
natively.  Functions in Python end with

    except BaseException as error:
        shorten(error)
        raise

which costs nothing while nothing fails; a `raise` without an exception does not note its own frame again.
"""

from __future__ import annotations

import os
from types import TracebackType

from rushlight._base.errors import PACKAGE
from rushlight._base.knobs import Knob

__all__ = ["TRACEBACK", "shorten"]


def _which(text: str) -> str:
    if text not in ("short", "full"):
        raise ValueError(f"expected short or full, got {text!r}")
    return text


TRACEBACK: Knob[str] = Knob(
    "traceback", env="RUSHLIGHT_TRACEBACK", kind=_which, default="short",
    doc="Frames of rushlight's own code in the tracebacks of errors: `short` leaves them out, `full` shows them.",
)  # fmt: skip
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_NEEDED = tuple(os.path.join("-packages", name, "") for name in ("numpy", "llvmlite"))


def _is_below(file: str) -> bool:
    """Whether a file is of Python's library, or of a library that we stand on: what the package calls there is its own affair."""
    return (
        any(name in file for name in _NEEDED)
        or file.startswith((_LIBRARY, "<frozen "))
        and f"-packages{os.sep}" not in file
    )


def _shortened(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of the package, and of what it called."""
    kept: list[TracebackType] = []
    within = False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        within = file.startswith(PACKAGE) or within and _is_below(file)
        if not within:
            kept.append(trace)
        trace = trace.tb_next
    for entry, below in zip(kept, [*kept[1:], None], strict=False):
        if entry.tb_next is not below:
            entry.tb_next = below
    return kept[0] if kept else None


def shorten(error: BaseException) -> None:
    """Take the package's frames off an exception's traceback, and off those it is chained to; unless the knob asks for all.

    An exception that the package met on its way, and that the error was not said to come from, is no longer mentioned.
    """
    if TRACEBACK.get() == "full":
        return
    met: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in met:
        met.add(id(at))
        before = at.__traceback__
        at.__traceback__ = _shortened(before)
        context = at.__context__
        if (
            context is not None
            and at.__cause__ is not context
            and context.__traceback__ is not None
            and _shortened(context.__traceback__) is None
        ):
            at.__context__ = context = None
        at = at.__cause__ if at.__cause__ is not None else context
