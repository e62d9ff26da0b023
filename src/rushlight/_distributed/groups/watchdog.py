"""The watchdog: sees to operations on devices' streams, for which no thread waits.

It asks whether they are done, looks for errors that come later than the call, for ranks that died, for the timeout; and
aborts the communicators of a group that failed.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

from rushlight._base.knobs import Knob
from rushlight._distributed.engines.nccl_library import IN_PROGRESS, SUCCESS
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.operation import Operation
from rushlight._distributed.groups.watch import LIMIT, WATCH

__all__ = ["WATCHDOG", "Watchdog"]

RAISES: Knob[bool] = Knob(
    "nccl_async_error_handling", env="RUSHLIGHT_NCCL_ASYNC_ERROR_HANDLING", kind=bool, default=True,
    doc="Whether the failure of a collective on a GPU is raised in the main thread where no call has raised it within half a second: "
    "what it left in memory must not be taken for a result.",
)  # fmt: skip
_QUICK, _SLOW = 2e-4, 5e-3  # seconds between two looks, at first and later
_SOON = 0.05  # how long operations are looked at quickly
_TOLD_WITHIN = 0.5


class Watchdog:
    """One thread for all groups of devices; it begins with the first operation."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.running: list[Operation] = []
        self.thread: threading.Thread | None = None

    def add(self, operation: Operation) -> None:
        """See to the end of an operation, whose `block` is an event behind it."""
        with self.changed:
            self.running.append(operation)
            if self.thread is None:
                self.thread = threading.Thread(target=self._loop, name="rushlight-watchdog", daemon=True)
                self.thread.start()
            self.changed.notify()

    def has(self, group: Any) -> bool:
        """Whether operations of a group are not done yet."""
        with self.changed:
            return any(operation.group is group for operation in self.running)

    def _loop(self) -> None:
        began, looked = time.monotonic(), 0.0
        while True:
            with self.changed:
                while not self.running:
                    self.changed.wait()
                    began = time.monotonic()
                running = list(self.running)
            done = [operation for operation in running if self._finished(operation)]
            now = time.monotonic()
            if now - looked > LIMIT / 1e9:
                looked = now
                for group in {id(o.group): o.group for o in running if not o.done}.values():
                    self._look(group, [o for o in running if o.group is group and not o.done])
            if done:
                began = now
            time.sleep(_QUICK if now - began < _SOON else _SLOW)

    def _finished(self, operation: Operation) -> bool:
        """Whether an operation is done; it is told so then."""
        try:
            if not operation.block.query():
                return False
            error = operation.group.broken or self._error_of(operation.group, operation)
        except Exception as failure:  # the device itself failed
            error = DistBackendError(f"{operation.text()} failed: {failure}")
        if error is not None:
            self._fail(operation.group, error)
            return True
        self._forget([operation])
        operation.finish()
        return True

    def _look(self, group: Any, operations: list[Operation]) -> None:
        """Look for errors of a group's communicators, and around."""
        try:
            error = self._error_of(group, operations[0])
            if error is not None:
                raise error
            for operation in operations:
                WATCH.check(operation)
        except Exception as error:
            self._fail(group, WATCH.explained(error))

    def _error_of(self, group: Any, operation: Operation) -> DistBackendError | None:
        """The error that one of a group's communicators has met since its calls returned."""
        for communicator in (group.communicator, *list(group.pairs.values())):
            code = communicator.state()
            if code not in (SUCCESS, IN_PROGRESS):
                return DistBackendError(
                    f"rank {group.ranks[group.rank]}: {operation.text()} at {operation.where()} failed: "
                    f"{communicator.library.error_text(code)}"
                )
        return None

    def _fail(self, group: Any, error: BaseException) -> None:
        group.fail(error)
        with self.changed:
            lost = [operation for operation in self.running if operation.group is group]
        self._forget(lost)
        for operation in lost:
            operation.finish(group.broken)
        if RAISES.get():
            threading.Thread(target=_tell, args=(group,), name="rushlight-failure", daemon=True).start()

    def _forget(self, operations: list[Operation]) -> None:
        with self.changed:
            for operation in operations:
                if operation in self.running:
                    self.running.remove(operation)


def _tell(group: Any) -> None:
    """Raise a group's error in the main thread, unless a call raises it soon."""
    until = time.monotonic() + _TOLD_WITHIN
    while time.monotonic() < until:
        if group.told:
            return
        time.sleep(0.01)
    group.told = True
    error = group.broken

    class Failure(type(error)):  # type: ignore[misc]
        """The error, made without arguments, as the interpreter makes it."""

        def __init__(self) -> None:
            Exception.__init__(self, str(error))
            self.__dict__.update(error.__dict__)

    Failure.__name__ = Failure.__qualname__ = type(error).__name__
    main = threading.main_thread().ident
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main or 0), ctypes.py_object(Failure))


WATCHDOG = Watchdog()
