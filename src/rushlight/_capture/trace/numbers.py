"""Numbers from outside whose values change from call to call: a learning rate, a temperature, a counter.

The first trace is guarded by their values.  Where such a guard fails, the next trace takes the number as one that each
call passes on; if the program then asks for its value, a trace with the value in it is made instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.recording import Recording
from rushlight._capture.trace.generated import functions

__all__ = ["Numbers", "Passed"]


class Passed(threading.local):
    """The numbers of the call that this thread makes, by their numbers."""

    def __init__(self) -> None:
        self.values: Sequence[float] = ()

    def hosting(self, rec: Recording) -> Callable[[float], Any]:
        """A function that makes host numbers, one after the other."""
        held: list[float] = []

        def host(value: float) -> Any:
            number = len(held)
            held.append(value)
            self.values = held
            return rec.host_number(lambda: self.values[number])

        return host


class Numbers:
    """The numbers that a segment is guarded by: their places, their values, and what is at these places now."""

    def __init__(self, values: dict[str, float], space: dict[str, Any]) -> None:
        self.values, self._space = values, space
        self._getters: list[Callable[[Sequence[Any]], Any]] | None = None

    def changed(self, state: Sequence[Any]) -> list[str]:
        """Places of numbers that are other numbers of the same type now."""
        if self._getters is None:
            lines = [f"def get_{number}(s): return {place}" for number, place in enumerate(self.values)]
            made = functions("\n".join(lines), dict(self._space), "numbers of a compiled segment") if lines else {}
            self._getters = [made[f"get_{number}"] for number in range(len(lines))]
        places = []
        for (place, before), get in zip(self.values.items(), self._getters, strict=True):
            try:
                now = get(state)
            except (KeyError, IndexError, AttributeError, TypeError):
                continue
            if type(now) is type(before) and repr(now) != repr(before):
                places.append(place)
        return places
