"""Processes that compile LLVM text beside this one, ahead of need: llvmlite lets one thread of a process into LLVM at a
time.

A worker is `llvm_compiler.py` run as a script.  It is started when texts are sent and others had to be compiled before
(a warm start has none), and ended when there was nothing to do for a while.  A thread here feeds each worker one text
after another; what no worker has begun when it is needed is compiled by whoever needs it.  Answers are checked: number,
size, digest, and that they are objects for this machine.  A worker that dies, hangs or answers anything else is killed,
the log says so, and from then on this process compiles for itself.

A fork ends the workers; parent and child begin anew. Processes of `multiprocessing` start none unless the knob says so.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from rushlight._base.forking import free_after_fork
from rushlight._base.knobs import KNOBS, Knob
from rushlight._base.lazy import LazyModule
from rushlight._base.log import log
from rushlight._native import llvm_compiler
from rushlight._native.llvm_compiler import ANSWER, LEVELS, READY, REQUEST, seal
from rushlight._native.objectfiles.loader import can_load
from rushlight._native.target import usable_cores

if TYPE_CHECKING:
    import json
    import select
    import threading
else:
    json, select, threading = LazyModule("json"), LazyModule("select"), LazyModule("threading")

__all__ = ["COMPILE_WORKERS", "close", "compiled_here", "expect_many", "knows", "send", "take", "wanted"]


def _default_count() -> int:
    """One less than there are cores and threads: this process compiles as well."""
    threads = KNOBS["num_threads"].get() if "num_threads" in KNOBS else usable_cores()
    return max(0, min(usable_cores(), int(threads), _MOST + 1) - 1)


_MOST = 8
COMPILE_WORKERS: Knob[int] = Knob(
    "compile_workers",
    env="RUSHLIGHT_COMPILE_WORKERS",
    kind=int,
    default=_default_count,
    doc="Most processes that compile kernels beside this one; 0 starts none.",
)

BURST = 3  # compilations in this process before it asks for help: a program that needs one or two new kernels is quicker alone
IDLE = 5.0  # seconds without work after which a worker ends
PATIENCE = 30.0  # seconds for an answer, and one more for every
_PER_SECOND = 8192  # bytes of text: some hundred times what it takes
SCRIPT = llvm_compiler.__file__
_LARGEST = 64 << 20  # bytes of an answer
_SHORT = 1 << 15  # bytes of text that takes no longer to compile than who waits for a small one would wait

_QUEUED, _SENT, _DONE = range(3)


class _Task:
    __slots__ = ("data", "level", "state", "text")

    def __init__(self, level: int, text: bytes) -> None:
        self.level, self.text, self.state = level, text, _QUEUED
        self.data: bytes | None = None

    @property
    def patience(self) -> float:
        return PATIENCE + len(self.text) / _PER_SECOND


class WorkerError(Exception):
    """A worker that cannot be used any longer."""


class _Worker:
    """One process and the pipes to it."""

    def __init__(self, setting: bytes) -> None:
        self.number = 0
        theirs_in, self.sink = os.pipe()
        try:
            self.source, theirs_out = os.pipe()
        except OSError:
            os.close(theirs_in)
            os.close(self.sink)
            raise
        silent = os.open(os.devnull, os.O_WRONLY | getattr(os, "O_CLOEXEC", 0))
        actions = [
            (os.POSIX_SPAWN_DUP2, theirs_in, 0),
            (os.POSIX_SPAWN_DUP2, theirs_out, 1),
            (os.POSIX_SPAWN_DUP2, silent, 2),
        ]
        try:
            self.pid = os.posix_spawn(
                sys.executable, [sys.executable, "-I", "-S", "-B", SCRIPT], os.environ, file_actions=actions
            )
        except OSError:
            os.close(self.sink)
            os.close(self.source)
            raise
        finally:
            for descriptor in (theirs_in, theirs_out, silent):
                os.close(descriptor)
        os.set_blocking(self.sink, False)
        os.set_blocking(self.source, False)
        self._write(setting, time.monotonic() + PATIENCE)

    def compile(self, level: int, text: bytes, until: float) -> bytes | None:
        """The object of a text; None when LLVM refused it.  WorkerError for anything but a whole and sound answer."""
        self.number += 1
        self._write(REQUEST.pack(self.number, level, len(text)) + text, until)
        number, status, size, check = ANSWER.unpack(self._read(ANSWER.size, until))
        if number != self.number or size > _LARGEST:
            raise WorkerError("an answer to something else")
        body = self._read(size, until)
        if check != seal(number, level, text, status, body):
            raise WorkerError("a damaged answer")
        if status != READY:
            return None
        if sys.platform == "linux" and not can_load(body):
            raise WorkerError("an answer that is no object for this machine")
        return body

    def _write(self, data: bytes, until: float) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self.sink, view) :]
            except BlockingIOError:
                self._wait([], [self.sink], until)
            except OSError as error:
                raise WorkerError("it died") from error

    def _read(self, size: int, until: float) -> bytes:
        parts, missing = [], size
        while missing:
            try:
                part = os.read(self.source, min(missing, 1 << 20))
            except BlockingIOError:
                self._wait([self.source], [], until)
                continue
            except OSError as error:
                raise WorkerError("it died") from error
            if not part:
                raise WorkerError("it died")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    @staticmethod
    def _wait(readable: list[int], writable: list[int], until: float) -> None:
        left = until - time.monotonic()
        if left <= 0 or not any(select.select(readable, writable, [], left)):
            raise WorkerError("it does not answer")

    def end(self, kill: bool = False) -> None:
        """Close the pipes, upon which the process ends by itself, and wait for that."""
        for descriptor in (self.sink, self.source):
            os.close(descriptor)
        try:
            if kill:
                os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        except OSError:  # somebody waited for all children
            pass


class _Pool:
    """The workers of this process and what they have to do."""

    def __init__(self) -> None:
        self.lock = free_after_fork(threading.Lock())
        self.changed = threading.Condition(self.lock)
        self.tasks: dict[bytes, _Task] = {}
        self.queue: deque[_Task] = deque()
        self.workers: set[_Worker] = set()
        self.threads: set[threading.Thread] = set()
        self.idle = 0
        self.failed = False
        self.setting = b""

    def send(self, key: bytes, level: int, text: bytes, processor: Callable[[], tuple[str, str]]) -> None:
        with self.lock:
            if self.failed or key in self.tasks:
                return
            self.tasks[key] = task = _Task(level, text)
            self.queue.append(task)
            if self.idle < len(self.queue) and len(self.threads) < COMPILE_WORKERS.get():
                self.setting = self.setting or _setting(*processor())
                thread = threading.Thread(target=self._feed, name="rushlight-compile", daemon=True)
                self.threads.add(thread)
                thread.start()
            self.changed.notify()

    def take(self, key: bytes, compile_text: Callable[[str, str], bytes] | None) -> tuple[bytes | None, str | None]:
        """See `take` below."""
        done = 0
        while compile_text is not None and (other := self._meanwhile(key, done)) is not None:
            done += len(other.text)
            try:
                other.data = compile_text(other.text.decode(), LEVELS[other.level])
            except RuntimeError:  # who needs it compiles it again, and has the error
                pass
            finally:
                with self.lock:
                    other.state = _DONE
                    self.changed.notify_all()
        with self.lock:
            task = self.tasks.get(key)
            if task is None:
                return None, None
            until = time.monotonic() + task.patience
            while task.state == _SENT and not self.failed:
                if not self.changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    break
            self.tasks.pop(key, None)
            if task.state == _QUEUED and task in self.queue:
                self.queue.remove(task)
            return task.data, task.text.decode()

    def _meanwhile(self, key: bytes, done: int) -> _Task | None:
        """A text that nobody has begun, the one needed last, where a worker is at that of `key`: now the caller's.

        It is short, or with the `done` bytes that were compiled in this wait no longer than what is waited for.
        """
        with self.lock:
            task = self.tasks.get(key)
            if task is None or task.state != _SENT or self.failed:
                return None
            most = max(_SHORT, len(task.text) - done)
            for other in reversed(self.queue):
                if len(other.text) <= most:
                    self.queue.remove(other)
                    other.state = _SENT
                    return other
            return None

    # ***** the threads that feed workers *****

    def _feed(self) -> None:
        worker: _Worker | None = None
        try:
            worker = _Worker(self.setting)
            with self.lock:
                self.workers.add(worker)
            while (task := self._next()) is not None:
                data = worker.compile(task.level, task.text, time.monotonic() + task.patience)
                with self.lock:
                    task.data, task.state = data, _DONE
                    self.changed.notify_all()
        except (WorkerError, OSError) as error:
            self._give_up(error)
        finally:
            with self.lock:
                self.threads.discard(threading.current_thread())
                if worker is not None:
                    self.workers.discard(worker)
            if worker is not None:
                worker.end(kill=self.failed)

    def _next(self) -> _Task | None:
        """The next text; None when none came for a while."""
        with self.lock:
            until = time.monotonic() + IDLE
            self.idle += 1
            try:
                while not self.queue and not self.failed:
                    if not self.changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                        return None
            finally:
                self.idle -= 1
            if self.failed:
                return None
            task = self.queue.popleft()
            task.state = _SENT
            return task

    def _give_up(self, error: Exception) -> None:
        """From now on everything is compiled in this process."""
        with self.lock:
            if not self.failed:
                log("cache", f"a process that compiles kernels is given up: {error}; this process compiles for itself")
            self.failed = True
            self.queue.clear()
            self.changed.notify_all()


def _setting(cpu: str, features: str) -> bytes:
    """The first line that a worker reads."""
    spec = find_spec("llvmlite")
    assert spec is not None
    assert spec.origin is not None
    folder = os.path.dirname(os.path.dirname(spec.origin))
    return json.dumps({"llvmlite": folder, "cpu": cpu, "features": features}).encode() + b"\n"


# ***** what others call *****

_POOL: list[_Pool] = []
_COMPILED = [0]


def compiled_here() -> None:
    """Count a compilation of this process."""
    _COMPILED[0] += 1


def expect_many() -> None:
    """Say that this process will compile a lot, before it has."""
    _COMPILED[0] = max(_COMPILED[0], BURST)


def wanted() -> bool:
    """Whether texts should be sent: this process compiles a lot, and may start workers."""
    if _COMPILED[0] < BURST or (_POOL and _POOL[0].failed) or not _can_start():
        return False
    return COMPILE_WORKERS.get() > 0


def _can_start() -> bool:
    if not hasattr(os, "posix_spawn") or not sys.executable or getattr(sys, "frozen", False):
        return False
    processes = sys.modules.get("multiprocessing.process")
    return processes is None or processes.parent_process() is None or "RUSHLIGHT_COMPILE_WORKERS" in os.environ


def knows(key: bytes) -> bool:
    """Whether the object of that key was sent for."""
    return bool(_POOL) and key in _POOL[0].tasks


def send(key: bytes, opt: str, text: str, processor: Callable[[], tuple[str, str]]) -> None:
    """Let a worker compile a text for a processor (LLVM's name of it, its features); `take` has the object."""
    if not _POOL:
        _POOL.append(_Pool())
        if not _REGISTERED:
            _register()
    _POOL[0].send(key, LEVELS.index(opt), text.encode(), processor)


def take(key: bytes, compile_text: Callable[[str, str], bytes] | None = None) -> tuple[bytes | None, str | None]:
    """The object that was sent for, waited for where a worker is at it, or None; and the text, None where none was
    sent.

    While a worker is at it, texts that were sent, that none has begun and that are not longer are compiled here, by
    `compile_text(text, opt)`.
    """
    return _POOL[0].take(key, compile_text) if _POOL else (None, None)


def close() -> None:
    """End all workers, and the threads that feed them; what was sent for is compiled by whoever asks for it."""
    if not _POOL:
        return
    pool = _POOL.pop()
    with pool.lock:
        pool.failed = True
        pool.queue.clear()
        for worker in pool.workers:  # as long as it is listed nobody has waited for it
            os.kill(worker.pid, 9)
        pool.changed.notify_all()
        threads = list(pool.threads)
    for thread in threads:
        thread.join(_LAST)


_REGISTERED: list[Any] = []
_LAST = 5.0  # seconds to wait for threads whose workers were killed


def _register() -> None:
    """End workers with the process, and before a fork: Python warns of threads then, and the child shall not hold the
    pipes.
    """
    import atexit

    _REGISTERED.append(atexit.register(close))
    os.register_at_fork(before=close, after_in_child=_forget)


def _forget() -> None:
    """A child has compiled nothing yet."""
    _COMPILED[0] = 0
    _POOL.clear()
