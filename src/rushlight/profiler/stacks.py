"""Where in the program: the Python functions that run, with their lines, and the modules whose `forward` is on the way."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["FunctionTracer", "place_name"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What stands between a module's call and its `forward`, and the like: of no interest in a stack.
_MACHINERY = ("__init__.py", os.path.join("autograd", "profiler.py"), os.path.join("nn", "modules", "hooks.py"))
_NAMES: dict[Any, str | None] = {}


def place_name(code: Any) -> str | None:
    """`file.py(12): function` with the path as programs import it; None for what is inside of this package's private
    rooms.
    """
    if code not in _NAMES:
        _NAMES[code] = _place_name(code)
    return _NAMES[code]


def _place_name(code: Any) -> str | None:
    path = code.co_filename
    if path.startswith(_PACKAGE):
        inside = path[len(_PACKAGE) :]
        if inside.startswith(("_", "profiler")) or inside in _MACHINERY:
            return None
    roots = [root for root in sys.path if root and path.startswith(root.rstrip(os.sep) + os.sep)]
    if roots:
        path = path[len(max(roots, key=len).rstrip(os.sep)) + 1 :]
    return f"{path}({code.co_firstlineno}): {code.co_name}"


class FunctionTracer:
    """Tells of every Python function outside of the private rooms that begins (`enter(name)`) and ends (`leave(mark)`)
    in this thread.

    Calls of functions that are generators' steps count each.  While it is on, every Python call costs more: times of
    what has many Python calls inside grow.
    """

    def __init__(self, enter: Callable[[str], Any], leave: Callable[[Any], None]) -> None:
        self.enter, self.leave = enter, leave
        self.open: list[tuple[Any, Any]] = []
        self.before: Any = None

    def start(self) -> None:
        """Begin; the functions that are running already are told first, the outermost before the others."""
        frame: Any = sys._getframe(1)
        running = []
        while frame is not None:
            running.append(frame)
            frame = frame.f_back
        for frame in reversed(running):
            name = place_name(frame.f_code)
            if name is not None:  # with the line that it is at, as its beginning was not seen
                name = name.replace(f"({frame.f_code.co_firstlineno})", f"({frame.f_lineno})", 1)
                self.open.append((frame, self.enter(name)))
        self.before = sys.getprofile()
        sys.setprofile(self._event)

    def stop(self) -> None:
        """End; what is still running ends now."""
        sys.setprofile(self.before)
        while self.open:
            self.leave(self.open.pop()[1])

    def _event(self, frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            name = place_name(frame.f_code)
            if name is not None:
                self.open.append((frame, self.enter(name)))
        elif event == "return" and self.open and self.open[-1][0] is frame:
            self.leave(self.open.pop()[1])
