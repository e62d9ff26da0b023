"""Workers of one machine: processes of a command or of a function, their streams, and their ends.

A worker dies with the process that started it, and has a session of its own, so that a signal reaches its children too.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from rushlight._distributed.launch.failures import ERROR_FILE, ProcessFailure, write_error

__all__ = ["Start", "Streams", "Workers"]

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_LOOKS = 0.1  # seconds between two looks, where the system cannot say at once that a process has ended
_TAILS = 0.05  # seconds between two looks at a file that is shown


@dataclass
class Streams:
    """Where the output of a worker goes: files, and whether what comes is shown too, each line behind `prefix`."""

    stdout: str | None = None
    stderr: str | None = None
    tee_stdout: bool = False
    tee_stderr: bool = False
    prefix: str = ""


@dataclass
class Start:
    """How one worker starts: what runs, in which environment, and where its output goes."""

    local_rank: int
    rank: int
    entrypoint: str | Callable[..., Any]
    args: tuple[Any, ...]
    environment: dict[str, str]
    streams: Streams = field(default_factory=Streams)


class Process(Protocol):
    """Base of both kinds of workers."""

    pid: int

    def poll(self) -> int | None: ...


def _die_with(parent: int, prctl: Any) -> None:
    """In the child: die when the launcher does."""
    prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class CommandProcess:
    """A worker that is a command."""

    def __init__(self, start: Start) -> None:
        local = str(start.local_rank)
        words = [str(start.entrypoint), *(str(word).replace("${local_rank}", local) for word in start.args)]
        prctl, parent = ctypes.CDLL(None).prctl if sys.platform == "linux" else None, os.getpid()
        files = [_opened(path) for path in (start.streams.stdout, start.streams.stderr)]
        try:
            self._process = subprocess.Popen(
                words,
                env={**os.environ, **start.environment},
                stdout=files[0],
                stderr=files[1],
                start_new_session=True,
                preexec_fn=None if prctl is None else lambda: _die_with(parent, prctl),
            )
        finally:
            for file in files:
                if file is not None:
                    file.close()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._process.poll()

    def result(self) -> Any:
        """Nothing: a command returns none."""


class FunctionProcess:
    """A worker that is a function, in a process of Python's `multiprocessing`."""

    def __init__(self, start: Start, method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        self._results, child = context.Pipe(duplex=False)
        streams = (start.streams.stdout, start.streams.stderr)
        arguments = (start.entrypoint, start.args, start.environment, streams, child, os.getpid())
        self._process = context.Process(target=_run, args=arguments)
        self._process.start()
        child.close()
        self.pid: int = self._process.pid
        self._result: list[Any] = []

    def poll(self) -> int | None:
        """The exit code, or None while it runs; a result is taken as it comes, so that nobody waits to write it."""
        try:
            while not self._results.closed and self._results.poll():
                self._result.append(self._results.recv())
        except (EOFError, OSError):
            self._results.close()
        code: int | None = self._process.exitcode
        return code

    def result(self) -> Any:
        """The function's result."""
        return self._result[0] if self._result else None


def _run(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    environment: dict[str, str],
    streams: Any,
    results: Any,
    parent: int,
) -> None:
    """In the process: the function, and its result for the launcher."""
    if sys.platform == "linux":
        _die_with(parent, ctypes.CDLL(None).prctl)
    os.setsid()
    os.environ.update(environment)
    for descriptor, path in zip((1, 2), streams):
        file = _opened(path)
        if file is not None:
            os.dup2(file.fileno(), descriptor)
            file.close()
    try:
        results.send(function(*args))
    except BaseException as error:
        if not (isinstance(error, SystemExit) and not error.code):
            write_error(error)
        raise


def _opened(path: str | None) -> IO[bytes] | None:
    if path is None:
        return None
    if path != os.devnull:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    return open(path, "wb")


class Workers:
    """The workers of one round on this machine, started together."""

    def __init__(self, starts: Sequence[Start], method: str = "spawn") -> None:
        self.starts = {start.local_rank: start for start in starts}
        self.codes: dict[int, int] = {}
        self._tails: list[Tail] = []
        self._poll = select.poll() if hasattr(os, "pidfd_open") else None
        self._descriptors: dict[int, int] = {}
        self.processes: dict[int, Any] = {}
        for start in starts:
            process = CommandProcess(start) if isinstance(start.entrypoint, str) else FunctionProcess(start, method)
            self.processes[start.local_rank] = process
            self._watch(process.pid)
            self._show(start.streams)

    def _watch(self, pid: int) -> None:
        if self._poll is not None:
            try:
                self._descriptors[pid] = os.pidfd_open(pid)
            except OSError:
                self._poll = None  # the system knows none
                return
            self._poll.register(self._descriptors[pid], select.POLLIN)

    def _show(self, streams: Streams) -> None:
        for path, shown, stream in (
            (streams.stdout, streams.tee_stdout, sys.stdout),
            (streams.stderr, streams.tee_stderr, sys.stderr),
        ):
            if path is not None and shown:
                self._tails.append(Tail(path, stream, streams.prefix))

    def wait(self, seconds: float) -> dict[int, int]:
        """Exit codes of those that have ended; returns as soon as another ends, or after the time."""
        if not self._ended_now():
            if self._poll is not None and self._descriptors:
                self._poll.poll(1000 * seconds)
            else:
                time.sleep(min(seconds, _LOOKS))
            self._ended_now()
        return self.codes

    def _ended_now(self) -> bool:
        found = False
        for local_rank, process in self.processes.items():
            code = process.poll() if local_rank not in self.codes else None
            if code is not None:
                self.codes[local_rank], found = code, True
                descriptor = self._descriptors.pop(process.pid, None)
                if descriptor is not None and self._poll is not None:
                    self._poll.unregister(descriptor)
                    os.close(descriptor)
        return found

    def running(self) -> bool:
        """Whether one of them has not ended."""
        return len(self.codes) < len(self.processes)

    def hand_on(self, number: int) -> None:
        """Send a signal to all that run, and to their children."""
        for local_rank, process in self.processes.items():
            if local_rank not in self.codes:
                for send in (os.killpg, os.kill):  # a function may not have its session yet
                    try:
                        send(process.pid, number)
                        break
                    except ProcessLookupError:
                        continue

    def stop(self, number: int = signal.SIGTERM, grace: float = 30.0) -> None:
        """End all that run: by a signal, and those that live after `grace` seconds by SIGKILL."""
        if self.running():
            self.hand_on(number)
            self.hand_on(signal.SIGCONT)  # one that is stopped takes no other signal
            limit = time.monotonic() + grace
            while self.running() and time.monotonic() < limit:
                self.wait(max(limit - time.monotonic(), 0))
            self.hand_on(signal.SIGKILL)
        while self.running():
            self.wait(1.0)
        for tail in self._tails:
            tail.close()
        self._tails = []

    def failures(self) -> dict[int, ProcessFailure]:
        """Those that have failed, by global rank."""
        return {
            self.starts[local].rank: ProcessFailure(
                local, self.processes[local].pid, code, self.starts[local].environment.get(ERROR_FILE, "")
            )
            for local, code in self.codes.items()
            if code
        }

    def results(self) -> dict[int, Any]:
        """Their results, by global rank."""
        return {self.starts[local].rank: process.result() for local, process in self.processes.items()}


class Tail:
    """Shows what is written to a file, each line behind a prefix."""

    def __init__(self, path: str, stream: Any, prefix: str) -> None:
        self._file = open(path, "rb")
        self._stream, self._prefix, self._rest = stream, prefix, b""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(_TAILS):
            self._take()
        self._take()
        if self._rest:
            self._stream.write(f"{self._prefix}{self._rest.decode('utf-8', 'replace')}\n")
        self._stream.flush()
        self._file.close()

    def _take(self) -> None:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            self._stream.write(f"{self._prefix}{line.decode('utf-8', 'replace')}\n")
        if lines:
            self._stream.flush()

    def close(self) -> None:
        """Show the rest."""
        self._done.set()
        self._thread.join()
