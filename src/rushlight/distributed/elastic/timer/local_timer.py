"""Timers through a queue of `multiprocessing`: workers are processes, named by their numbers."""

from __future__ import annotations

import os
import signal
import time
from queue import Empty
from typing import Any

from rushlight.distributed.elastic.timer.api import RequestQueue, TimerClient, TimerRequest, TimerServer

__all__ = ["LocalTimerClient", "LocalTimerServer", "MultiprocessingRequestQueue"]


class LocalTimerClient(TimerClient):
    """Timers of this process, sent through a queue."""

    def __init__(self, mp_queue: Any) -> None:
        self._queue = mp_queue

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Begin a piece whose time is over at `expiration_time`."""
        self._queue.put(TimerRequest(os.getpid(), scope_id, expiration_time))

    def release(self, scope_id: str) -> None:
        """End it."""
        self._queue.put(TimerRequest(os.getpid(), scope_id, -1))


class MultiprocessingRequestQueue(RequestQueue):
    """Requests from a queue of `multiprocessing`."""

    def __init__(self, mp_queue: Any) -> None:
        self._queue = mp_queue

    def size(self) -> int:
        """How many are there; 0 where the system does not say."""
        try:
            return int(self._queue.qsize())
        except NotImplementedError:
            return 0

    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """At most so many, awaited for so many seconds."""
        found: list[TimerRequest] = []
        until = time.monotonic() + timeout
        while len(found) < size:
            try:
                found.append(self._queue.get(timeout=max(until - time.monotonic(), 0)))
            except Empty:
                break
        return found


class LocalTimerServer(TimerServer):
    """Ends processes (SIGKILL) that miss their timers; looks at least every `max_interval` seconds."""

    def __init__(self, mp_queue: Any, max_interval: float = 60, daemon: bool = True) -> None:
        super().__init__(MultiprocessingRequestQueue(mp_queue), max_interval, daemon)
        self._timers: dict[tuple[Any, str], TimerRequest] = {}

    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Take requests: a timer for each process and piece; the last one counts."""
        for request in timer_requests:
            key = request.worker_id, request.scope_id
            if request.expiration_time < 0:
                self._timers.pop(key, None)
            else:
                self._timers[key] = request

    def clear_timers(self, worker_ids: set[int]) -> None:
        """Forget the timers of processes."""
        for key in [key for key in self._timers if key[0] in worker_ids]:
            del self._timers[key]

    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """Those whose time was over at `deadline`, by process."""
        found: dict[Any, list[TimerRequest]] = {}
        for request in self._timers.values():
            if request.expiration_time <= deadline:
                found.setdefault(request.worker_id, []).append(request)
        return found

    def _reap_worker(self, worker_id: int) -> bool:
        try:
            os.kill(worker_id, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended
        except OSError:
            return False
        return True
