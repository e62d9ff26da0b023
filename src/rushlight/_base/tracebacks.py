"""Tracebacks that end in the user's frame.

When an exception leaves the package, frames of the package and of its callees are removed from its traceback, and from
those of the exceptions that it is chained to.  Frames of the user's own functions that the package called (hooks,
overrides, `forward`) stay.  Dispatchers do so natively.  Functions in Python end with

    except BaseException as error:
        shorten(error)
        raise

which costs nothing unless an exception passes; a `raise` without an exception does not add its own frame again.
"""

from __future__ import annotations

import os
from types import TracebackType

from rushlight._base.errors import PACKAGE
from rushlight._base.knobs import Knob, one_of

__all__ = ["TRACEBACK", "shorten"]


TRACEBACK: Knob[str] = Knob(
    "traceback",
    env="RUSHLIGHT_TRACEBACK",
    kind=one_of("short", "full"),
    default="short",
    doc="Frames of rushlight's own code in the tracebacks of errors: `short` leaves them out, `full` shows them.",
)
_LIBRARY = os.path.dirname(os.__file__) + os.sep
_NEEDED = tuple(os.path.join("-packages", name, "") for name in ("numpy", "llvmlite"))


def _is_below(file: str) -> bool:
    """Whether a file belongs to Python's library or to a dependency: frames below the package's calls are not the
    user's."""
    return (
        any(name in file for name in _NEEDED)
        or file.startswith((_LIBRARY, "<frozen "))
        and f"-packages{os.sep}" not in file
    )


def _shortened(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of the package, and of its callees."""
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
    """Remove the package's frames from an exception's traceback, and from those it is chained to; unless the knob asks
    for all.

    An exception that the package handled on its way, and that is not the error's stated cause, is no longer mentioned.
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
