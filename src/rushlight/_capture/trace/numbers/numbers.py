"""Numbers from outside whose values change from call to call: a learning rate, a temperature, a counter.

The first trace is guarded by their values.  Where such a guard fails, the next trace takes the number as one that each
call passes on; if the program then asks for its value, a trace with the value in it is made instead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._capture.recording import Recording
from rushlight._capture.trace.guards.sources import Source

__all__ = ["Passed"]


class Passed(threading.local):
    """The numbers of the call that this thread makes, by their numbers."""

    def __init__(self) -> None:
        self.values: Sequence[float] = ()

    def hosting(self, rec: Recording) -> Callable[[float, Source], Any]:
        """A function that makes host numbers, one after the other."""
        held: list[float] = []

        def host(value: float, source: Source) -> Any:
            number = len(held)
            held.append(value)
            self.values = held
            return rec.host_number(lambda: self.values[number])

        return host
