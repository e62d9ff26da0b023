"""The main process' side of a loader's workers: starting them, talking with them, noticing when one dies, and leaving
none behind.
"""

from __future__ import annotations

import itertools
import multiprocessing.reduction
import os
import pickle
import select
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from rushlight.utils.data import _utils
from rushlight.utils.data._utils.wire import ENDS, Inbox, Outbox
from rushlight.utils.data._utils.worker import run

__all__ = ["WorkerPool"]

_KEYS = itertools.count(1)
_LOOK = 1.0  # seconds after which the processes are looked at, should the system not have told of an end
_MEMORY = {
    signal.SIGBUS: " It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    signal.SIGKILL: " The system does that to processes when memory runs out.",
}


class Handle:
    """An open descriptor that a process can be started with."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> tuple[Any, ...]:
        if self.number < 0:  # there is none
            return Handle, (self.number,)
        return _handle, (multiprocessing.reduction.DupFd(self.number),)


def _handle(sent: Any) -> Handle:
    return Handle(sent.detach())


class WorkerHandle:
    """One worker, as the main process sees it."""

    def __init__(self, context: Any, worker: int, setup: Callable[..., Any]) -> None:
        self.worker = worker
        self.sock, theirs = socket.socketpair()
        ENDS.add(self.sock)
        key = next(_KEYS)
        self.inbox, self.outbox = Inbox(self.sock, key), Outbox(self.sock)
        self.report = os.memfd_create("rushlight-report") if hasattr(os, "memfd_create") else -1
        self.farewell = ""
        self.dismissed = self.closed = False
        try:
            self.process = context.Process(
                target=run, args=(setup(worker=worker, sock=theirs, key=key, report=Handle(self.report)),)
            )
            self.process.daemon = True
            self._start(context)
        except BaseException:
            self.release()
            raise
        finally:
            theirs.close()
        self.sentinel = self.process.sentinel

    def _start(self, context: Any) -> None:
        """Start the process; an error of pickling tells which way of starting needs it."""
        try:
            self.process.start()
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            how = context.get_start_method()
            if how != "fork":
                error.add_note(
                    f"The loader's workers are started by {how!r}, which sends them the dataset, collate_fn and worker_init_fn by pickle: classes and "
                    "functions must be at the top level of a module. Python does so by default from 3.14 on, on macOS always; where the system can "
                    'fork, DataLoader(..., multiprocessing_context="fork") starts them as copies of this process, which need no pickle.'
                )
            raise

    def send(self, epoch: int, number: int, index: Any, stateful: bool) -> None:
        """Give it a task."""
        self.outbox.send((epoch, number, index, stateful, self.inbox.returned()))

    def dismiss(self) -> None:
        """There will be no more tasks: it ends when it has done those it has."""
        if not self.dismissed:
            self.dismissed = True
            self.outbox.send(None)

    def release(self) -> None:
        """Close what is open."""
        self.closed = True
        self.sock.close()
        self.inbox.close()
        if self.report >= 0:
            os.close(self.report)
            self.report = -1

    def crash(self) -> str:
        """Python's report on a fatal signal of the process."""
        if self.report < 0:
            return ""
        lines = os.pread(self.report, 1 << 16, 0).decode(errors="replace").splitlines()
        ours = [
            k
            for k, line in enumerate(lines)
            if line.endswith(" in run") and os.path.join("_utils", "worker.py") in line
        ]
        # Below that are frames of the main process that forked it
        return "\n".join(lines[: ours[0] + 1] if ours else lines)


class WorkerPool:
    """All workers of one iteration."""

    def __init__(self, context: Any, workers: int, setup: Callable[..., Any]) -> None:
        self.owner = os.getpid()
        self.links: list[WorkerHandle] = []
        self._poll = select.poll()
        self._of: dict[int, WorkerHandle] = {}
        try:
            for worker in range(workers):
                link = WorkerHandle(context, worker, setup)
                self.links.append(link)
                for handle in (link.sock.fileno(), link.sentinel):
                    self._poll.register(handle, select.POLLIN)
                    self._of[handle] = link
        except BaseException:
            self.close(at_once=True)
            raise

    # ***** talking *****

    def wait(self, timeout: float | None, doing: Callable[[int], str]) -> list[tuple[WorkerHandle, Any]]:
        """The messages that arrive next; none when there were none within `timeout` seconds. RuntimeError when a worker
        is gone.
        """
        last = None if timeout is None else time.monotonic() + timeout
        while True:
            for link in self.links:
                if link.outbox.waiting:
                    link.outbox.flush()
            busy = any(link.outbox.waiting for link in self.links)
            left = _LOOK if last is None else min(_LOOK, max(0.0, last - time.monotonic()))
            ready = self._poll.poll((min(left, 0.01) if busy else left) * 1000)
            found = []
            for link in {id(link): link for link in (self._of[handle] for handle, _ in ready)}.values():
                found += self._read(link, doing)
            if found:
                return found
            if not ready:
                for link in self.links:
                    if not link.closed and not link.process.is_alive():
                        found += self._read(link, doing)
            if found or (last is not None and time.monotonic() >= last):
                return found

    def _read(self, link: WorkerHandle, doing: Callable[[int], str]) -> list[tuple[WorkerHandle, Any]]:
        """Data that a worker has sent; its end, if it has ended."""
        alive = link.process.is_alive()  # asked first: what it sent before its end is there when it is not alive
        open_ = link.inbox.read()
        while open_ and not alive:  # all that is left
            before = len(link.inbox._data)
            open_ = link.inbox.read()
            if len(link.inbox._data) == before:
                break
        found = []
        while (message := link.inbox.message()) is not None:
            if message[0] < 0:
                link.farewell = message[2]
            else:
                found.append((link, message))
        if (not alive or not open_) and not found:
            self._ended(link, doing)
        return found

    def _ended(self, link: WorkerHandle, doing: Callable[[int], str]) -> None:
        link.process.join(_LOOK)
        code = link.process.exitcode
        if link.dismissed and code == 0:
            self._unregister(link)
            link.release()
            return
        raise self._death(link, code, doing(link.worker))

    def _unregister(self, link: WorkerHandle) -> None:
        for handle in (link.sock.fileno(), link.sentinel):
            if self._of.pop(handle, None) is not None:
                self._poll.unregister(handle)

    def _death(self, link: WorkerHandle, code: int | None, doing: str) -> RuntimeError:
        pid = link.process.pid
        if code is not None and code < 0:
            name = signal.strsignal(-code) or str(-code)
            hint = _MEMORY.get(-code, "")  # type: ignore[call-overload]
            cause = f"DataLoader worker (pid {pid}) is killed by signal: {name}. {hint.lstrip() if -code == signal.SIGBUS else ''}"
            how = f"worker {link.worker} was killed by signal {-code} ({name}){doing}.{hint}"
        else:
            cause = (
                f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {code}. Details are lost due to multiprocessing. "
                "Rerunning with num_workers=0 may give better error trace."
            )
            how = f"worker {link.worker} ended with exit code {code}{doing}."
        told = link.farewell or link.crash()
        error = RuntimeError(
            f"DataLoader worker (pid(s) {pid}) exited unexpectedly: {how}" + (f"\nOriginal {told}" if told else "")
        )
        error.__cause__ = RuntimeError(cause)
        return error

    # ***** the end *****

    def close(self, at_once: bool = False) -> None:
        """End all workers and wait for their end; those that are busy get a few seconds unless it has to be `at_once`."""
        if os.getpid() != self.owner:
            return  # a copy in a forked process
        for link in self.links:
            if not link.closed:
                link.sock.close()
        if at_once:
            for link in self.links:
                link.process.terminate()
        last = time.monotonic() + (1.0 if at_once else _utils.MP_STATUS_CHECK_INTERVAL)
        for link in self.links:
            link.process.join(max(0.0, last - time.monotonic()))
        for link in self.links:
            if link.process.is_alive():
                link.process.terminate()
                link.process.join(0.5)
                if link.process.is_alive():
                    link.process.kill()
                    link.process.join()
            link.release()
            link.process.close()
        self.links = []
