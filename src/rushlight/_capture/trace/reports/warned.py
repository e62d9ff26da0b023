"""Warnings of a traced program: those that it gives itself, and those of native code that it calls.

A trace runs once, and a segment many times.  So a warning waits, as an effect of the segment, and is given at each run
from the program's line: what becomes of it there, its filters and its registries decide.
"""

from __future__ import annotations

import functools
import sys
import threading
import types
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._base.errors import PACKAGE as OUR_FILES
from rushlight._base.errors import forget_warning, warn_once, warn_user, warns_again
from rushlight._capture.trace.reports.events import Break

if TYPE_CHECKING:
    from rushlight._capture.trace.tracer import Tracer

__all__ = ["FILTERING", "Caught", "Listening", "caller", "caught", "change_filters", "warn"]

_TRACING = "rushlight._capture."
_GIVE = warnings.warn
_GENERATED = ("<compiled segment>", "<caller of a compiled function>")


def caller(tracer: Tracer, level: int) -> tuple[str, int, str, dict[str, Any]] | None:
    """File, line, name and globals of the frame so many calls above; None beyond the compiled function."""
    frames = [frame for interpreter in tracer.interpreters for frame in interpreter.frames]
    if level > len(frames):
        return None
    frame = frames[-level]
    return frame.code.co_filename, frame.line or frame.code.co_firstlineno, frame.code.co_name, frame.globals


def warn(
    tracer: Tracer, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **rest: Any
) -> None:
    """`warnings.warn` of the program."""
    if rest or not isinstance(message, str) or not (category is None or isinstance(category, type)):
        raise Break("calls warnings.warn() with an object")
    _waits(tracer, message, category or UserWarning, max(stacklevel, 1), once=False)


def _waits(tracer: Tracer, message: str, category: type[Warning], level: int, once: bool) -> None:
    """Have a warning given when the trace ends, from the frame `level` calls up."""
    if may_be_error(category):
        raise Break("calls warnings.warn() where warnings may be errors")
    tracer.reads.check(tracer.reads.constant(may_be_error), f"not {{}}({tracer.constants.name(category)})")
    place = caller(tracer, level)
    if place is None:
        frames = sum(len(interpreter.frames) for interpreter in tracer.interpreters)
        give: Callable[..., None] = functools.partial(_warn_above, level - frames)
    else:
        filename, line, _, space = place
        tracer.kept.append(space)
        give = functools.partial(_warn_here, space, filename, line)
    tracer.effects.append((functools.partial(_give_once, give) if once else give, (message, category)))


def may_be_error(category: type[Warning]) -> bool:
    """Whether a warning of this category may be raised, by the filters as they are now."""
    for action, message, kind, module, line in warnings.filters:
        if issubclass(category, kind):
            if action == "error":
                return True
            if message is None and module is None and not line:
                return False
    return False


def _warn_here(space: dict[str, Any], filename: str, line: int, message: str, category: type[Warning]) -> None:
    """Warn as a line of the program."""
    registry = space.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, filename, line, space.get("__name__", "<unknown>"), registry)


def _warn_above(level: int, message: str, category: type[Warning]) -> None:
    """Warn as the line that called the compiled function, or one of those above."""
    depth, frame = 1, sys._getframe(1)
    while frame is not None and (
        frame.f_code.co_filename in _GENERATED or str(frame.f_globals.get("__name__", "")).startswith(_TRACING)
    ):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, category, stacklevel=depth + level)


def _give_once(give: Callable[..., None], message: str, category: type[Warning]) -> None:
    """Give a warning that is given once in a program."""
    if warns_again(message):
        give(message, category)


# ***** filters *****


class Caught:
    """`warnings.catch_warnings()` of a program: what is to be given inside waits, and is given in such a region."""

    __slots__ = ("first", "tracer")

    def __init__(self, tracer: Tracer) -> None:
        self.tracer, self.first = tracer, 0

    def __enter__(self) -> None:
        self.first = len(self.tracer.effects)
        self.tracer.caught += 1

    def __exit__(self, *_: object) -> None:
        effects = self.tracer.effects
        inside = tuple(effects[self.first :])
        del effects[self.first :]
        self.tracer.caught -= 1
        if any(getattr(call, "func", None) not in FILTERING for call, _ in inside):
            effects.append((functools.partial(_within, inside), ()))


def caught(
    tracer: Tracer,
    *,
    record: bool = False,
    module: Any = None,
    action: Any = None,
    category: type[Warning] = Warning,
    lineno: int = 0,
    append: bool = False,
) -> Caught:
    """`catch_warnings` made in a trace."""
    if record or module is not None or action is not None:
        raise Break("calls warnings.catch_warnings() with arguments")
    return Caught(tracer)


def _within(calls: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...]) -> None:
    """Give warnings, and set their filters, in a region of their own."""
    with warnings.catch_warnings():
        for call, args in calls:
            call(*args)


def change_filters(function: Callable[..., None]) -> Callable[..., None]:
    """Handler of a function that changes filters; in the program's own region it waits."""

    def handler(tracer: Tracer, *args: Any, **kwargs: Any) -> None:
        if not tracer.caught:
            raise Break(f"calls warnings.{function.__name__}(), which changes what later calls do")
        if "error" in (*args, *kwargs.values()):
            raise Break(f"calls warnings.{function.__name__}() so that warnings are errors")
        tracer.effects.append((functools.partial(function, *args, **kwargs), ()))

    return handler


FILTERING = (warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)


class Listening:
    """Has the warnings wait that native code gives with `warnings.warn` while this is entered.

    Interpreted code that native code calls back runs between `pause` and `go_on`: it finds the function that the
    program would find.
    """

    __slots__ = ("before", "thread", "tracer")

    def __init__(self, tracer: Tracer) -> None:
        self.tracer, self.thread = tracer, threading.get_ident()
        self.before: Callable[..., Any] | None = None

    def go_on(self) -> bool:
        """Listen; whether nobody did so far."""
        if self.before is not None:
            return False
        self.before, warnings.warn = warnings.warn, self._warn
        return True

    def pause(self) -> bool:
        """Do not listen; whether somebody did."""
        if self.before is None:
            return False
        warnings.warn, self.before = self.before, None
        return True

    def _warn(self, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **rest: Any) -> None:
        level = self._level(sys._getframe(1), stacklevel) if threading.get_ident() == self.thread else None
        if level is None or rest:
            before = self.before or _GIVE
            before(message, category, stacklevel + 1, source, **rest)
            return
        if isinstance(message, Warning):
            category, message = type(message), str(message)
        once = sys._getframe(2).f_code is warn_once.__code__
        if once:
            forget_warning(message)
        _waits(self.tracer, message, category or UserWarning, level, once)

    def _level(self, frame: types.FrameType | None, stacklevel: int) -> int | None:
        """Which of the interpreted frames a native `stacklevel` means; None where the tracer itself warns."""
        to_user = frame is not None and frame.f_code is warn_user.__code__
        level = 1
        while frame is not None and not str(frame.f_globals.get("__name__", "")).startswith(_TRACING):
            frame, level = frame.f_back, level + 1
        if level == 1 or frame is None:
            return None
        found = 1 if to_user else max(stacklevel - level + 1, 1)
        while to_user and (place := caller(self.tracer, found)) is not None and place[0].startswith(OUR_FILES):
            found += 1
        return found
