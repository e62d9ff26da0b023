"""A report on a program's compiled functions: calls and times, graphs, breaks and recompilations, collected while it
runs.

>>> import rushlight as torch
>>> from rushlight.compiler.report import Collected, collecting
>>> with collecting() as found:
...     double = torch.compile(lambda x: x * 2)
...     _ = double(torch.ones(2)), double(torch.ones(2))
>>> [(len(times), found.graphs) for times in found.times.values()]
[(2, 1)]
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from rushlight._interface.compiling import EVENTS

__all__ = ["Collected", "collecting", "timed"]

_KEPT = 10_000  # times of a function


@dataclasses.dataclass
class Collected:
    """Times of calls in seconds by function, how many graphs were made, and what ended or repeated them."""

    times: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    graphs: int = 0
    breaks: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    recompilations: Counter[str] = dataclasses.field(default_factory=Counter)
    failures: Counter[str] = dataclasses.field(default_factory=Counter)

    def listen(self, kind: str, text: str, details: dict[str, Any]) -> None:
        """Take in an event of the tracer's."""
        if kind == "graph":
            self.graphs += getattr(details.get("segment"), "program", None) is not None
        elif kind == "break":
            self.breaks[details.get("where", ""), details.get("reason", text)] += 1
        elif kind == "recompile":
            self.recompilations[text] += 1
        elif kind == "failure":
            self.failures[text] += 1

    def plain(self) -> dict[str, Any]:
        """The same as numbers, texts and lists."""
        return {
            "times": self.times, "graphs": self.graphs, "breaks": [[*key, n] for key, n in self.breaks.items()],
            "recompilations": dict(self.recompilations), "failures": dict(self.failures),
        }  # fmt: skip


_active: list[Collected] = []


@contextlib.contextmanager
def collecting() -> Iterator[Collected]:
    """Collect what functions do that are compiled inside."""
    found = Collected()
    _active.append(found)
    EVENTS.append(found.listen)
    try:
        yield found
    finally:
        EVENTS.remove(found.listen)
        _active.remove(found)


def timed(made: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The compiled form of a function, with its calls timed if somebody collects; else as it is."""
    if not _active:
        return made
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(function, "__qualname__", type(function).__name__)
    if code is not None:
        name = f"{name} ({code.co_filename}:{code.co_firstlineno})"
    times = _active[-1].times.setdefault(name, [])

    @functools.wraps(made)
    def call(*args: Any, **kwargs: Any) -> Any:
        begun = time.perf_counter()
        try:
            return made(*args, **kwargs)
        finally:
            if len(times) < _KEPT:
                times.append(time.perf_counter() - begun)

    return call
