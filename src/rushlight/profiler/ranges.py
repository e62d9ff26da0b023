"""`record_function`: a part of a program under a name of its own; and what would hand such parts to other tools."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rushlight._interface.tensors import STATE, Decorating
from rushlight.futures import Future

__all__ = ["ForeignRanges", "record_function"]


def _nothing() -> list[tuple[str, Any]]:
    return []


class record_function:
    """Names a part of a program: a context manager, and a decorator.

    While no profiler runs it costs next to nothing.

        >>> from rushlight.profiler import profile, record_function
        >>> with profile() as prof:
        ...     with record_function("twice"):
        ...         _ = torch.ones(3) * 2
        >>> [event.name for event in prof.events() if event.is_user_annotation]
        ['twice']
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self.run_callbacks_on_exit = True
        self.record: Any = None
        self._marks: list[Any] = []

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return Decorating.in_contexts(functools.partial(type(self), self.name, self.args), function)

    def __enter__(self) -> record_function:
        observers = STATE.observers
        if observers:
            self._marks = [(o, o.enter("range", self.name, _nothing, None)) for o in observers]
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        if self.run_callbacks_on_exit:
            self._end()

    def _end(self) -> None:
        for observer, mark in reversed(self._marks):
            observer.leave(mark, None)
        self._marks = []

    def _call_end_callbacks_on_future(self, fut: Future[Any]) -> Future[Any]:
        """End the range when the future is done, not with the `with` statement; a future with the same result."""
        if not self.run_callbacks_on_exit:
            raise RuntimeError("_call_end_callbacks_on_future can only be called once.")
        self.run_callbacks_on_exit = False

        def ended(done: Future[Any]) -> Any:
            self._end()
            return done.value()

        return fut.then(ended)


class ForeignRanges:
    """Would hand ranges to a tool outside; there is none."""

    _needs = ""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled, self.entered, self.record_shapes = enabled, False, record_shapes

    def __enter__(self) -> Any:
        if not self.enabled:
            return None
        raise RuntimeError(
            f"{type(self).__name__}: {self._needs}, which rushlight does not have; torch.profiler.profile with export_chrome_trace "
            "records the same ranges"
        )

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> None:
        return None
