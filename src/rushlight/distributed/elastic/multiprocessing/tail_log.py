"""`torch.distributed.elastic.multiprocessing.tail_log`: the lines of growing files, each with the worker's name."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from typing import TextIO

__all__ = ["TailLog", "tail_logfile"]

logger = logging.getLogger(__name__)


def tail_logfile(
    header: str,
    file: str,
    dst: TextIO,
    finished: Event,
    interval_sec: float,
    log_line_filter: Callable[[str], bool] | None = None,
) -> None:
    """Write the lines of a file that `log_line_filter` accepts to `dst`, with `header` before each, until `finished`
    is set and the file is read to its end.  The file need not exist yet.
    """
    while not os.path.exists(file):
        if finished.wait(interval_sec) and not os.path.exists(file):
            return
    with open(file, errors="replace") as lines:
        while True:
            last = finished.is_set()  # asked before reading: lines written before it was set are read
            for line in iter(lines.readline, ""):
                if log_line_filter is not None and log_line_filter(line):
                    dst.write(f"{header}{line}")
            if last:
                return
            finished.wait(interval_sec)


class TailLog:
    """Shows files of workers as they grow: `start()`, and `stop()` when the workers have ended.

    Lines begin with `[{name}{local rank}]:`, or with what `log_line_prefixes` has for a rank.
    """

    def __init__(
        self,
        name: str,
        log_files: dict[int, str],
        dst: TextIO,
        log_line_prefixes: dict[int, str] | None = None,
        interval_sec: float = 0.1,
        log_line_filter: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self._name, self._dst, self._log_files = name, dst, log_files
        self._prefixes = {rank: f"[{name}{rank}]:" for rank in log_files} | (log_line_prefixes or {})
        self._interval_sec, self._log_line_filter = interval_sec, log_line_filter
        self._finished, self._stopped = Event(), False
        self._threads = ThreadPoolExecutor(len(log_files), f"{type(self).__qualname__}_{name}") if log_files else None
        self._running: dict[int, Future[None]] = {}

    def start(self) -> TailLog:
        """Begin; returns itself."""
        if self._threads is not None and self._dst:
            for rank, file in self._log_files.items():
                self._running[rank] = self._threads.submit(
                    tail_logfile,
                    self._prefixes[rank],
                    file,
                    self._dst,
                    self._finished,
                    self._interval_sec,
                    self._log_line_filter,
                )
        return self

    def stop(self) -> None:
        """Show what is left, and end.  What went wrong is logged."""
        self._finished.set()
        for rank, running in self._running.items():
            error = running.exception()
            if error is not None:
                logger.error(
                    "error in log tailer for %s%s. %s", self._name, rank, type(error).__qualname__, exc_info=error
                )
        if self._threads is not None:
            self._threads.shutdown()
        self._stopped = True

    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped
