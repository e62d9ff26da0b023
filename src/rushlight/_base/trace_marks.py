"""Marks of functions that a trace may not run: they stand where a function is defined, so the tracer needs no list of
names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = [
    "ADDRESS",
    "ADDS_HOOK",
    "CHANGES",
    "WATCHES",
    "breaks_trace",
    "changes_later_calls",
    "reason_to_break",
    "runs_apart",
    "tells_offset",
]

F = TypeVar("F", bound=Callable[..., Any])

CHANGES = "changes what later calls do"
ADDS_HOOK = "adds a hook that later calls run"
WATCHES = "begins or ends to watch what runs"  # a trace would be watched, and once more for each attempt
ADDRESS = "asks where a tensor lies in memory"


def breaks_trace(why: str) -> Callable[[F], F]:
    """Mark a function at whose calls a trace ends; `why` completes the sentence "calls f(), which ...".

    >>> @breaks_trace(ADDRESS)
    ... def address(): ...
    >>> reason_to_break(address)
    'asks where a tensor lies in memory'
    """

    def mark(function: F) -> F:
        function._breaks_trace = why  # type: ignore[attr-defined]
        return function

    return mark


changes_later_calls = breaks_trace(CHANGES)


def reason_to_break(function: Callable[..., Any]) -> str | None:
    """The reason of the mark `breaks_trace`; None without one."""
    return getattr(function, "_breaks_trace", None)


def runs_apart(why: str) -> Callable[[F], F]:
    """Mark a function of ours that runs between two traces, even where a trace would follow it; `why` is a clause."""

    def mark(function: F) -> F:
        function._runs_apart = why  # type: ignore[attr-defined]
        return function

    return mark


def tells_offset(function: F) -> F:
    """Mark a method of tensors that tells where they begin in their storage: a trace requires the same again."""
    function._tells_offset = True  # type: ignore[attr-defined]
    return function
