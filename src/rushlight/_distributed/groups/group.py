"""Groups: operations in order, on the caller's thread where nothing is before them.

Within a group one operation runs at a time, in the order in which they were asked for, so that all ranks do the same.
Messages between two ranks are not in that order: they start when they are asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from rushlight._distributed.engines.mpi import Call
from rushlight._distributed.engines.progress_native import bound
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.checking import comparer
from rushlight._distributed.groups.flight import FLIGHT
from rushlight._distributed.groups.operation import Block, Operation
from rushlight._distributed.groups.thread import THREAD
from rushlight._distributed.groups.watch import LIMIT, WATCH

__all__ = ["GROUPS", "Group"]

# number -> group: graphs and records name groups by their numbers.
GROUPS: dict[int, Group] = {}

# ns of yielding before the first sleep: what moves much memory gets longer.
YIELDING = 1_000_000


class Group:
    """Processes that work together; `ranks` are their numbers in the whole job, `rank` is this one's place."""

    CALLS_MPI = True  # whether steps may be calls of the engine

    def __init__(self, number: int, name: str, ranks: Sequence[int], communicator: Any, timeout: float) -> None:
        self.number, self.name, self.ranks = number, name, tuple(ranks)
        self.communicator = communicator
        self.rank, self.size = communicator.rank, communicator.size
        self.timeout = timeout
        self.description, self.backend = "undefined", ""
        self.count = self.messages = 0
        self.turn = threading.Lock()  # whoever has it runs an operation
        self.pending: deque[Operation] = deque()
        self.block: Any = Block() if self.size > 1 and self.CALLS_MPI else None
        self.broken: BaseException | None = None
        self.compare: Any = None  # steps that compare an operation among the ranks, in debug mode
        GROUPS[number] = FLIGHT.groups[name] = self

    def free(self) -> None:
        """Give up what the communicator holds."""
        self.communicator.free()

    def way_to(self, place: int, batched: bool) -> tuple[Any, int]:
        """The communicator by which messages go to or come from a place, and its place there."""
        return self.communicator, place

    def is_busy(self) -> bool:
        """Whether an operation runs or waits."""
        return bool(self.pending) or self.turn.locked()

    def compare_calls(self) -> None:
        """Debug mode: compare every operation among the ranks before it begins."""
        self.compare = comparer(self)

    def run(self, operation: Operation) -> None:
        """Run an operation to its end; on this thread if no other one is before it."""
        if not self.pending and self.turn.acquire(blocking=False):
            try:
                if not self.pending:
                    self._number(operation)
                    self._run_here(operation)
                    return
            finally:
                self.turn.release()
                if self.pending:
                    THREAD.wake(self)
        self.start(operation)
        self.wait(operation)

    def start(self, operation: Operation) -> Operation:
        """Put an operation behind those that were asked for."""
        operation.make_waitable()
        self._number(operation)
        if self.size == 1:
            self._run_here(operation)
            operation.finish()
            return operation
        self.pending.append(operation)
        THREAD.wake(self)
        return operation

    def start_message(self, operation: Operation) -> Operation:
        """Start a message now; the thread sees to its end."""
        operation.make_waitable()
        self._check()
        block = self._begin_message(operation)
        code = bound("start")(block.address)
        if code < 0:
            raise WATCH.explained(operation.failed_call(code))
        THREAD.watch(operation)
        return operation

    def run_message(self, operation: Operation) -> None:
        """Send or receive on this thread."""
        self._check()
        block = self._begin_message(operation)
        try:
            self._finish_call(operation, block, bound("run")(block.address, YIELDING + operation.nbytes, LIMIT))
        except KeyboardInterrupt:
            operation.make_waitable()
            THREAD.watch(operation)
            raise
        for step in operation.steps[1:]:
            step()
        operation.settle()
        operation.done = True

    def _begin_message(self, operation: Operation) -> Block:
        self.messages += 1
        FLIGHT.note(operation, self.messages)
        operation.block = operation.received = block = Block()
        operation.began = time.monotonic()
        operation.at = 1
        block.describe(operation.steps[0].words)
        return block

    def _check(self) -> None:
        if self.broken is not None:
            raise DistBackendError(
                f"the process group {self.name!r} cannot be used any more: {self.broken}; "
                "destroy_process_group() and start the job again"
            ) from self.broken

    def _number(self, operation: Operation) -> None:
        self._check()
        self.count += 1
        operation.number = self.count
        FLIGHT.note(operation, self.count)
        if self.compare is not None:
            operation.steps = [*self.compare(operation), *operation.steps]

    # ***** on the caller's thread *****

    def _run_here(self, operation: Operation) -> None:
        steps, run = operation.steps, bound("run")
        operation.began = time.monotonic()
        while operation.at < len(steps):
            step = steps[operation.at]
            operation.at += 1
            if type(step) is not Call:
                try:
                    step()
                except BaseException as error:
                    operation.finish(error)
                    raise
                continue
            operation.block = block = self.block
            block.describe(step.words)
            try:
                code = run(block.address, YIELDING + operation.nbytes, LIMIT)
                if code != 1:
                    self._finish_call(operation, block, code)
            except KeyboardInterrupt:
                self._leave(operation)
                raise
            except BaseException as error:
                self.broken = error
                operation.finish(error)
                raise
            operation.block = None
        operation.settle()
        operation.done = True

    def _finish_call(self, operation: Operation, block: Block, code: int) -> None:
        """Wait on for a call that was started; `code` is what the wait so far gave."""
        while code == 0:
            WATCH.check(operation)
            code = bound("wait")(block.address, 0, operation.nbytes, LIMIT)
        if code < 0:
            raise WATCH.explained(operation.failed_call(code))

    def _leave(self, operation: Operation) -> None:
        """Let the thread finish what the user has interrupted, so that the group can still be used."""
        self.block = Block()
        operation.make_waitable()
        self.pending.appendleft(operation)

    def wait(self, operation: Operation, timeout: float | None = None) -> bool:
        """Wait until an operation is done, and raise its error; False where `timeout` seconds were not enough."""
        if not operation.done:
            began = time.monotonic()
            operation.stood = operation.stood or began
            operation.standing = True
            try:
                if not self._wait(operation, None if timeout is None else began + timeout):
                    return False
            finally:
                operation.blocked += time.monotonic() - began
                operation.standing = False
        if operation.error is not None:
            raise operation.error
        return True

    def _wait(self, operation: Operation, until: float | None) -> bool:
        if THREAD.is_here():
            THREAD.run_until(operation)
        while not operation.done:
            assert operation.event is not None
            left = 1.0 if until is None else min(1.0, until - time.monotonic())
            if left <= 0:
                return False
            operation.event.wait(left)
        return True
