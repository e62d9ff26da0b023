"""Clients and servers of timers, whatever is between them."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import getframeinfo
from sys import _getframe
from typing import Any

__all__ = ["RequestQueue", "TimerClient", "TimerRequest", "TimerServer", "configure", "expires"]

_log = logging.getLogger("torch.distributed.elastic")


@dataclass(slots=True)
class TimerRequest:
    """A worker's piece of work, and when its time is over (`time.time()`); a negative time ends the timer."""

    worker_id: Any
    scope_id: str
    expiration_time: float

    __hash__ = None  # type: ignore[assignment]


class TimerClient(ABC):
    """A worker's side."""

    @abstractmethod
    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Begin a piece whose time is over at `expiration_time`."""

    @abstractmethod
    def release(self, scope_id: str) -> None:
        """End it."""


class RequestQueue(ABC):
    """Where a server gets requests from."""

    @abstractmethod
    def size(self) -> int:
        """How many are there."""

    @abstractmethod
    def get(self, size: int, timeout: float) -> list[TimerRequest]:
        """At most so many, awaited for so many seconds."""


class TimerServer(ABC):
    """Watches timers, and ends workers that miss theirs."""

    def __init__(self, request_queue: RequestQueue, max_interval: float, daemon: bool = True) -> None:
        self._request_queue, self._max_interval, self._daemon = request_queue, max_interval, daemon
        self._watchdog: threading.Thread | None = None
        self._stop = threading.Event()

    @abstractmethod
    def register_timers(self, timer_requests: list[TimerRequest]) -> None:
        """Take requests: a timer for each worker and piece; the last one counts."""

    @abstractmethod
    def clear_timers(self, worker_ids: set[Any]) -> None:
        """Forget the timers of workers."""

    @abstractmethod
    def get_expired_timers(self, deadline: float) -> dict[Any, list[TimerRequest]]:
        """Those whose time was over at `deadline`, by worker."""

    @abstractmethod
    def _reap_worker(self, worker_id: Any) -> bool:
        """End a worker; whether it has ended."""

    def start(self) -> None:
        """Watch, on a thread."""
        self._stop.clear()
        self._watchdog = threading.Thread(target=self._watch, name=type(self).__name__, daemon=self._daemon)
        self._watchdog.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stop.set()
        if self._watchdog is not None:
            self._watchdog.join(self._max_interval + 1)
            self._watchdog = None

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._run_watchdog()
            except Exception:
                _log.exception("the watchdog of timers failed, and goes on")

    def _run_watchdog(self) -> None:
        self.register_timers(self._request_queue.get(max(1, self._request_queue.size()), self._max_interval))
        ended = set()
        for worker, expired in self.get_expired_timers(time.time()).items():
            _log.info("worker %s is ended: its time for %s is over", worker, [request.scope_id for request in expired])
            if self._reap_worker(worker):
                ended.add(worker)
        self.clear_timers(ended)


_CLIENT: list[TimerClient] = []


def configure(timer_client: TimerClient) -> None:
    """Let `expires` use this client."""
    _CLIENT[:] = [timer_client]


@contextmanager
def expires(after: float, scope: str | None = None, client: TimerClient | None = None) -> Iterator[None]:
    """A context manager: the worker is ended if this takes longer than `after` seconds.

    `scope` names the piece: file and line of the caller without it. RuntimeError where no client is configured.
    """
    if client is None:
        if not _CLIENT:
            raise RuntimeError("Configure timer client before using countdown timers.")
        client = _CLIENT[0]
    if scope is None:
        caller = getframeinfo(_getframe(2))
        scope = f"{caller.filename}#{caller.lineno}"
    client.acquire(scope, time.time() + after)
    try:
        yield
    finally:
        client.release(scope)
