"""Events while functions are compiled: breaks, recompilations, failures; counted, logged, and told to who
listens.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rushlight._capture.bytecode import Interrupt

__all__ = ["COUNTERS", "EVENTS", "Break", "LazyText", "Unbuildable", "silent", "tell"]

COUNTERS: defaultdict[str, Counter[str]] = defaultdict(Counter)
# Called with the kind of an event ("break", "recompile", "guards", "graph", "failure"), its text and its details.
EVENTS: list[Callable[[str, Any, dict[str, Any]], None]] = []


class Break(Interrupt):
    """The trace cannot go through this instruction, or through the one at an earlier place (`Tracer.place`)."""

    def __init__(self, reason: str, *, kind: str = "break", at: Any = None) -> None:
        super().__init__(reason)
        self.reason, self.kind, self.at = reason, kind, at


class Unbuildable(Exception):
    """A value cannot be made anew after a program has run: `value`, where it is one object."""

    def __init__(self, reason: str, value: Any = None) -> None:
        super().__init__(reason)
        self.value = value


class LazyText:
    """A text that is made when somebody prints it."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[], str]) -> None:
        self.make = make

    def __str__(self) -> str:
        return self.make()


@contextmanager
def silent() -> Iterator[None]:
    """The time in which nothing is told or counted."""
    before = {key: Counter(counts) for key, counts in COUNTERS.items()}
    _SILENT.append(True)
    try:
        yield
    finally:
        _SILENT.pop()
        for key in list(COUNTERS):
            COUNTERS[key].clear()
            COUNTERS[key].update(before.get(key, {}))


_SILENT: list[bool] = []


def tell(kind: str, text: str | LazyText, **details: Any) -> None:
    """Log an event, and hand it to who listens."""
    if _SILENT:
        return
    log = logging.getLogger(f"rushlight.compile.{kind}")
    if log.isEnabledFor(logging.DEBUG):
        log.debug("%s", text)
    for listen in EVENTS:
        listen(kind, text, details)
