"""Threads that run what comes from other workers: as many as are needed, up to a limit, and kept."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["Pool"]

_log = logging.getLogger(__name__)


class Pool:
    """Runs functions on daemon threads; `limit=None` for as many as there are functions at a time."""

    def __init__(self, name: str, limit: int | None) -> None:
        self.name, self.limit = name, limit
        self._changed = threading.Condition()
        self._waiting: deque[Callable[[], None]] = deque()
        self._idle = self._threads = 0
        self._closed = False

    def run(self, function: Callable[[], None]) -> None:
        """Run a function soon; dropped when the pool is closed."""
        with self._changed:
            if self._closed:
                return
            self._waiting.append(function)
            if self._idle >= len(self._waiting):
                self._changed.notify()
                return
            if self.limit is not None and self._threads >= self.limit:
                return
            self._threads += 1
            if self._start() or self._threads:
                return
            self._waiting.pop()
        function()

    def _start(self) -> bool:
        """One more thread, already counted; False where the interpreter ends, and starts none any more."""
        try:
            threading.Thread(target=self._serve, name=f"{self.name}-{self._threads}", daemon=True).start()
        except RuntimeError:
            self._threads -= 1
            return False
        return True

    @property
    def busy(self) -> int:
        """How many functions run or wait."""
        return self._threads - self._idle + len(self._waiting)

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._waiting or self._closed)
            self._idle -= 1
            if self._waiting:
                return self._waiting.popleft()
            self._threads -= 1
            return None

    def _serve(self) -> None:
        while (function := self._next()) is not None:
            try:
                function()
            except BaseException:
                _log.exception("a function of %s failed", self.name)
            del function  # what it refers to is free while the thread waits

    def close(self) -> None:
        """Take nothing more; threads end when what waits is done."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
