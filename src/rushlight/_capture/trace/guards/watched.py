"""Compiled calls while a profiler looks on: every call of a program is told, with the time of each of its kernels.

Observers that count operators see compiled functions run as they are; those that say `takes_programs` see programs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

from rushlight._engine.core.state import OBSERVED, STATE
from rushlight._engine.dispatch.watch import observed_call, switch_sources

__all__ = ["as_seen", "looking_on", "quietly", "told"]


def looking_on(elsewhere: int) -> bool:
    """Whether observers that take programs are all that keeps a call from its segments (`elsewhere`: bits of the
    dispatch state under which functions run as they are).
    """
    return STATE.word & elsewhere == OBSERVED and all(observer.takes_programs for observer in STATE.observers)


def quietly(call: Callable[..., Any], *args: Any) -> Any:
    """`call(*args)`, of whose operators nobody is told."""
    _tell(False)
    try:
        return call(*args)
    finally:
        _tell(True)


def as_seen(call: Callable[[], Any]) -> Any:
    """`call()`, of whose operators observers are told again: what runs as it is between two programs."""
    _tell(True)
    try:
        return call()
    finally:
        _tell(False)


def _tell(on: bool) -> None:
    """Switch observation, and with it the wrappers that report calls: guards would not know them."""
    STATE.word = STATE.word | OBSERVED if on else STATE.word & ~OBSERVED
    switch_sources(on)


def told(segment: Any, name: str) -> Callable[[Any], Any]:
    """The segment with its conditions in Python, whose call of the program is told."""
    space = dict(segment.slow.__globals__)
    space["program"] = functools.partial(_called, segment.program, name)
    return FunctionType(segment.slow.__code__, space, "slow")


def _called(program: Any, name: str, inputs: Sequence[Any]) -> Any:
    """A call of a program, in a record with its kernels."""
    executable = None
    if hasattr(program, "compile"):
        executable = getattr(program, "_exe", None) or observed_call("plan", name, program.compile, ())
    observers, result, kernels = STATE.observers, None, ()
    marks = [o.enter("program", name, lambda: [("", x) for x in inputs], executable) for o in observers]
    try:
        clocked = getattr(executable, "clocked", None)  # of the host's programs; work on GPUs goes on behind the call
        if clocked is not None and getattr(executable, "native", False):
            result, kernels = clocked(lambda: program(inputs))
        else:
            result = program(inputs)
    finally:
        for observer, mark in zip(reversed(observers), reversed(marks), strict=True):
            observer.leave(mark, kernels)
    return result
