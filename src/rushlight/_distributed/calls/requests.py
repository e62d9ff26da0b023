"""Requests that wait for their answers, each with a time limit."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from rushlight._distributed.calls.frames import Frame

__all__ = ["Requests"]


class _Request(NamedTuple):
    peer: int
    done: Callable[[Frame | None, Exception | None], None]
    seconds: float


class Requests:
    """Number -> who answers, and what is called then: `done(frame, None)` or `done(None, error)`, once.

    `late(peer, seconds)` makes the error of a request whose time is over.
    """

    def __init__(self, late: Callable[[int, float], Exception]) -> None:
        self._late = late
        self._changed = threading.Condition()
        self._open: dict[int, _Request] = {}
        self._limits: list[tuple[float, int]] = []
        self._count = 0
        self._timer = False
        self._closed = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, peer: int, done: Callable[[Frame | None, Exception | None], None], seconds: float = math.inf) -> int:
        """The number of a new request; it fails after `seconds`."""
        with self._changed:
            self._count += 1
            number = self._count
            self._open[number] = _Request(peer, done, seconds)
            if seconds != math.inf:
                self._limit(number, time.monotonic() + seconds)
        return number

    def _limit(self, number: int, until: float) -> None:
        first = not self._limits or until < self._limits[0][0]
        heapq.heappush(self._limits, (until, number))
        if not self._timer:
            self._timer = True
            threading.Thread(target=self._watch, name="rpc-time", daemon=True).start()
        elif first:
            self._changed.notify()

    def settle(self, number: int, peer: int, frame: Frame | None, error: Exception | None = None) -> None:
        """Finish a request, unless it is finished, or another worker was asked."""
        with self._changed:
            request = self._open.get(number)
            if request is None or request.peer != peer:
                return
            del self._open[number]
        request.done(frame, error)

    def lost(self, peer: int, error: Exception) -> None:
        """All requests to a worker fail."""
        with self._changed:
            numbers = [number for number, request in self._open.items() if request.peer == peer]
        for number in numbers:
            self.settle(number, peer, None, error)

    def _watch(self) -> None:
        """Ends requests whose time is over; answered ones are left in the heap until their time."""
        while True:
            with self._changed:
                while self._limits and self._limits[0][1] not in self._open:
                    heapq.heappop(self._limits)
                if self._closed:
                    return
                now = time.monotonic()
                if not self._limits or self._limits[0][0] > now:
                    self._changed.wait(self._limits[0][0] - now if self._limits else None)
                    continue
                number = heapq.heappop(self._limits)[1]
                request: Any = self._open[number]
            self.settle(number, request.peer, None, self._late(request.peer, request.seconds))
            del request  # and what waits for it

    def close(self, error: Exception) -> None:
        """Every request fails, and the timer ends."""
        with self._changed:
            self._closed = True
            peers = {request.peer for request in self._open.values()}
            self._changed.notify()
        for peer in peers:
            self.lost(peer, error)
