"""Timers through a named pipe, which workers find by its path: JSON, a line for each request."""

from __future__ import annotations

import json
import logging
import os
import select
import signal as _signal
import threading
import time
from collections.abc import Callable
from typing import Any

from rushlight.distributed.elastic.timer.api import TimerClient, TimerRequest

__all__ = ["FileTimerClient", "FileTimerRequest", "FileTimerServer"]

_log = logging.getLogger("torch.distributed.elastic")
_LONGEST = select.PIPE_BUF  # of one request: a pipe takes so much at once, or nothing


class FileTimerRequest(TimerRequest):
    """A piece of work of process `worker_pid`, and the signal that it gets when the time is over (0: it ends the timer)."""

    __slots__ = ("signal", "version")

    def __init__(self, worker_pid: int, scope_id: str, expiration_time: float, signal: int = 0) -> None:
        super().__init__(worker_pid, scope_id, expiration_time)
        self.version, self.signal = 1, int(signal)

    @property
    def worker_pid(self) -> int:
        """The process."""
        return int(self.worker_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileTimerRequest) and self.to_json() == other.to_json()

    def __repr__(self) -> str:
        return f"FileTimerRequest({self.to_json()})"

    def to_json(self) -> str:
        """The request as a line."""
        return json.dumps(
            {
                "version": self.version,
                "pid": self.worker_pid,
                "scope_id": self.scope_id,
                "expiration_time": self.expiration_time,
                "signal": self.signal,
            }
        )


class FileTimerClient(TimerClient):
    """Timers of this process, sent through the pipe at `file_path`; `signal` is sent to it when the time is over.

    BrokenPipeError where no server reads.
    """

    def __init__(self, file_path: str, signal: int = _signal.SIGKILL) -> None:
        self._file_path, self.signal = file_path, signal

    def _send(self, request: FileTimerRequest) -> None:
        line = request.to_json().encode() + b"\n"
        if len(line) > _LONGEST:
            raise RuntimeError(
                f"FileTimerClient failed to send a request of {len(line)} bytes: at most {_LONGEST} go through a pipe at once"
            )
        try:
            pipe = os.open(self._file_path, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            raise BrokenPipeError(
                "Could not send the FileTimerRequest because FileTimerServer is not available."
            ) from error
        try:
            select.select([], [pipe], [], 5)
            os.write(pipe, line)
        except BlockingIOError:
            raise BrokenPipeError("Could not send the FileTimerRequest: FileTimerServer does not read.") from None
        finally:
            os.close(pipe)

    def acquire(self, scope_id: str, expiration_time: float) -> None:
        """Begin a piece whose time is over at `expiration_time`."""
        self._send(FileTimerRequest(os.getpid(), scope_id, expiration_time, self.signal))

    def release(self, scope_id: str) -> None:
        """End it."""
        self._send(FileTimerRequest(os.getpid(), scope_id, -1, 0))


class FileTimerServer:
    """Reads a pipe that it makes at `file_path`, and sends processes that miss their timers the signal that they chose.

    `log_event(name, request)` is told of what happens.
    """

    def __init__(
        self, file_path: str, run_id: str, max_interval: float = 10, daemon: bool = True,
        log_event: Callable[[str, FileTimerRequest | None], None] | None = None,
    ) -> None:  # fmt: skip
        self.file_path, self.run_id = file_path, run_id
        self._max_interval, self._daemon = max_interval, daemon
        self._log_event = log_event or (lambda name, request: None)
        self._timers: dict[tuple[int, str], FileTimerRequest] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._pipe = -1
        self._rest = b""
        self._progress = int(time.time())

    def _open(self) -> None:
        if self._pipe < 0:
            if os.path.exists(self.file_path):
                os.remove(self.file_path)
            os.mkfifo(self.file_path, 0o600)
            self._pipe = os.open(self.file_path, os.O_RDWR | os.O_NONBLOCK)  # a writer of its own: reading never ends

    def start(self) -> None:
        """Watch, on a thread; clients may send from now on."""
        self._open()
        self._stop.clear()
        self._thread = threading.Thread(target=self._watch, name="FileTimerServer", daemon=self._daemon)
        self._thread.start()
        self._log_event("watchdog started", None)

    def stop(self) -> None:
        """Watch no more; the pipe is gone."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(self._max_interval + 1)
            self._thread = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
            os.remove(self.file_path)
        self._log_event("watchdog stopped", None)

    def run_once(self) -> None:
        """Take what has come, and end whose time is over."""
        self._open()
        self._look(0)

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                self._look(self._max_interval)
            except Exception:
                _log.exception("the watchdog of timers failed, and goes on")

    def _look(self, seconds: float) -> None:
        ready, _, _ = select.select([self._pipe], [], [], min(seconds, 0.5))
        if ready:
            *lines, self._rest = (self._rest + os.read(self._pipe, 1 << 16)).split(b"\n")
            self.register_timers([request for line in lines if (request := _request(line)) is not None])
        self._progress = int(time.time())
        ended = set()
        for worker, expired in self.get_expired_timers(time.time()).items():
            self._log_event("kill worker process", expired[0])
            if self._reap_worker(worker, expired[0].signal):
                ended.add(worker)
        self.clear_timers(ended)

    def get_last_progress_time(self) -> int:
        """When it last looked, in seconds; now where no timer runs."""
        return self._progress if self._timers else int(time.time())

    @staticmethod
    def is_process_running(pid: int) -> bool:
        """Whether there is a process with this number."""
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
        return True

    def register_timers(self, timer_requests: list[FileTimerRequest]) -> None:
        """Take requests: a timer for each process and piece; the last one counts."""
        for request in timer_requests:
            key = request.worker_pid, request.scope_id
            if request.expiration_time < 0:
                self._timers.pop(key, None)
            else:
                self._timers[key] = request

    def clear_timers(self, worker_pids: set[int]) -> None:
        """Forget the timers of processes, and those of processes that have ended."""
        for key in [key for key in self._timers if key[0] in worker_pids or not self.is_process_running(key[0])]:
            del self._timers[key]

    def get_expired_timers(self, deadline: float) -> dict[int, list[FileTimerRequest]]:
        """Those whose time was over at `deadline`, by process."""
        found: dict[int, list[FileTimerRequest]] = {}
        for request in self._timers.values():
            if request.expiration_time <= deadline:
                found.setdefault(request.worker_pid, []).append(request)
        return found

    def _reap_worker(self, worker_pid: int, signal: int) -> bool:
        try:
            os.kill(worker_pid, signal)
        except ProcessLookupError:
            pass  # it has ended
        except OSError:
            return False
        return True


def _request(line: bytes) -> FileTimerRequest | None:
    """The request of a line; None, and a warning, for one that is none."""
    try:
        found: dict[str, Any] = json.loads(line)
        pid, number = int(found["pid"]), int(found["signal"])
        if pid < 2 or not 0 <= number < _signal.NSIG:  # no groups of processes, and not the first one
            raise ValueError(pid)
        return FileTimerRequest(pid, str(found["scope_id"]), float(found["expiration_time"]), number)
    except (ValueError, KeyError, TypeError):
        _log.warning("a timer request is malformed: %r", line[:200])
        return None
