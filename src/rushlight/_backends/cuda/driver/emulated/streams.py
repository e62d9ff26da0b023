"""Streams of emulated devices: work that is given now and runs later, in any order that streams and events allow.

Nothing runs before somebody waits.  Then streams are drawn at random, by a seed, until what was waited for is done; so a
missing event shows as wrong numbers, for some seed at least.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

from rushlight._backends.cuda.driver.emulated.ordering import Clock, merge
from rushlight._backends.cuda.driver.errors import CudaError, fail

__all__ = ["Mark", "Scheduler", "Stream", "Work"]

_MOST_WAITING = 4096  # pieces of work; beyond that some run although nobody waits


class Work:
    """A piece of work of a stream: what runs, and when it may."""

    __slots__ = ("name", "ready", "run")

    def __init__(self, name: str, run: Callable[[], None], ready: Callable[[], bool] | None = None) -> None:
        self.name, self.run, self.ready = name, run, ready


class Mark:
    """A moment of a stream: what comes before it, whether it is past, and when it was."""

    __slots__ = ("clock", "done", "stream", "time")

    def __init__(self, clock: Clock, stream: Stream) -> None:
        self.clock, self.stream = clock, stream
        self.done, self.time = False, 0.0

    def reach(self) -> None:
        """The moment has come."""
        self.done, self.time = True, perf_counter()


class Stream:
    """The work of a stream that did not run yet, and what its further work comes after."""

    __slots__ = ("clock", "device", "flags", "handle", "host_seen", "key", "number", "priority", "waiting")

    def __init__(self, key: int, handle: int, device: int, flags: int, priority: int) -> None:
        self.key, self.handle, self.device, self.flags, self.priority = key, handle, device, flags, priority
        self.waiting: deque[Work] = deque()
        self.clock: Clock = {}
        self.number, self.host_seen = 0, -1

    def mark(self) -> Mark:
        """This moment."""
        return Mark({**self.clock, self.key: self.number}, self)


class Scheduler:
    """Runs the work of all streams of all devices."""

    def __init__(self, seed: int, stopped: Callable[[], None] = lambda: None) -> None:
        self.stopped = stopped  # called when a device goes no further
        self.streams: list[Stream] = []
        self.host: Clock = {}
        self.host_version = 0
        self.errors: dict[int, CudaError] = {}  # device -> what stopped it
        self._random = random.Random(seed)
        self._waiting = 0

    # ***** giving work *****

    def add(self, stream: Stream, work: Work) -> None:
        """Give a stream a piece of work."""
        stream.waiting.append(work)
        self._waiting += 1
        if self._waiting > _MOST_WAITING:
            self.run_some(_MOST_WAITING // 2)

    def number(self, stream: Stream) -> int:
        """The number of the next piece of work, which comes after all that the host has seen."""
        if stream.host_seen != self.host_version:
            merge(stream.clock, self.host)
            stream.host_seen = self.host_version
        stream.number += 1
        return stream.number

    def seen(self, clock: Clock) -> None:
        """The host waited for a moment: all that it starts from now on comes after."""
        merge(self.host, clock)
        self.host_version += 1

    # ***** running it *****

    def _runnable(self) -> list[Stream]:
        return [s for s in self.streams if s.waiting and ((r := s.waiting[0].ready) is None or r())]

    def run_some(self, most: int) -> None:
        """Run so many pieces of work, or all that can run."""
        while most > 0 and (streams := self._runnable()):
            stream = self._random.choice(streams)
            for _ in range(self._random.randint(1, 4)):
                if not stream.waiting or ((ready := stream.waiting[0].ready) is not None and not ready()):
                    break
                self._run(stream)
                most -= 1

    def run_until(self, done: Callable[[], bool], call: str) -> None:
        """Run work until something holds."""
        while not done():
            if not self._runnable():
                fail("CUDA_ERROR_UNKNOWN", call, "the work that it waits for waits for an event that nobody records")
            self.run_some(1)

    def _run(self, stream: Stream) -> None:
        work = stream.waiting.popleft()
        self._waiting -= 1
        try:
            work.run()
        except CudaError as error:
            self._stop(stream.device, error)
        if stream.device in self.errors:
            raise self.errors[stream.device]

    def _stop(self, device: int, error: CudaError) -> None:
        """A device goes no further: its work is dropped, and events of it count as past."""
        self.errors[device] = error
        self.stopped()
        for stream in self.streams:
            if stream.device == device:
                for work in stream.waiting:
                    reach: Any = getattr(work.run, "__self__", None)
                    if isinstance(reach, Mark):
                        reach.reach()
                self._waiting -= len(stream.waiting)
                stream.waiting.clear()

    def shuffled(self, count: int) -> list[tuple[int, int]]:
        """The numbers up to `count` as a few stretches in random order: how the blocks of a kernel run."""
        if count < 2:
            return [(0, count)] if count else []
        cuts = sorted({0, count, *(self._random.randrange(1, count) for _ in range(self._random.randint(0, 3)))})
        pieces = list(pairwise(cuts))
        self._random.shuffle(pieces)
        return pieces
