"""Floats from outside whose values change from call to call: a learning rate, a temperature.

The first trace is guarded by their values.  Where such a guard fails, the next trace takes the float as a number that each call
passes on; if the program then asks for its value, a trace with the value in it is made instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.recording import Recording
from rushlight._capture.trace.generated import functions

__all__ = ["Passed", "changed_floats", "reader"]


class Passed(threading.local):
    """The floats of the call that this thread makes, by their numbers."""

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


def reader(places: Sequence[str], space: dict[str, Any]) -> Callable[[Sequence[Any]], list[Any]]:
    """A function from a state to what is at these places, None where nothing is any more."""
    lines = [f"def get_{number}(s): return {place}" for number, place in enumerate(places)]
    made = functions("\n".join(lines), dict(space), "floats of a compiled segment") if places else {}
    found = [made[f"get_{number}"] for number in range(len(places))]

    def read(state: Sequence[Any]) -> list[Any]:
        values: list[Any] = []
        for get in found:
            try:
                values.append(get(state))
            except (KeyError, IndexError, AttributeError, TypeError):
                values.append(None)
        return values

    return read


def changed_floats(floats: dict[str, float], values: Sequence[Any]) -> list[str]:
    """Places of floats that are other floats now."""
    pairs = zip(floats.items(), values, strict=True)
    return [place for (place, before), now in pairs if type(now) is float and repr(now) != repr(before)]
