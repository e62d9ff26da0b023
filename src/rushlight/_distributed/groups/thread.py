"""The communication thread: runs operations for which nobody waits, so that they overlap with computing."""

from __future__ import annotations

import threading
import time
from array import array
from typing import Any

from rushlight._distributed.engines.mpi import Call
from rushlight._distributed.engines.progress_native import bound
from rushlight._distributed.groups.operation import Block, Operation
from rushlight._distributed.groups.watch import LIMIT, WATCH

__all__ = ["THREAD", "CommunicationThread"]

YIELDING = 200_000  # ns: this thread takes little from the one that computes


class CommunicationThread:
    """One thread for all groups; it begins with the first operation that is given to it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.kick = array("q", [0])  # set: look at `groups` again
        self.kick_address = self.kick.buffer_info()[0]
        self.groups: list[Any] = []  # with operations that may begin
        self.active: list[Operation] = []
        self.messages: list[Operation] = []  # started elsewhere, to be watched
        self.thread: threading.Thread | None = None

    def is_here(self) -> bool:
        """Whether the caller is this thread."""
        return threading.current_thread() is self.thread

    def wake(self, group: Any) -> None:
        """Look at the operations of a group."""
        with self.changed:
            if group not in self.groups:
                self.groups.append(group)
            self._notify()

    def watch(self, operation: Operation) -> None:
        """Poll an operation whose call was started elsewhere."""
        with self.changed:
            self.messages.append(operation)
            self._notify()

    def _notify(self) -> None:
        self.kick[0] = 1
        if self.thread is None:
            self.thread = threading.Thread(target=self._loop, name="rushlight-communication", daemon=True)
            self.thread.start()
        self.changed.notify()

    def _loop(self) -> None:
        while True:
            with self.changed:
                while not (self.groups or self.messages or self.active):
                    self.changed.wait()
            self.step()

    def run_until(self, operation: Operation) -> None:
        """Go on with all operations, on this thread, until one is done: what a callback waits for."""
        while not operation.done:
            self.step()

    def step(self) -> None:
        """Begin what may begin, and poll until one of the running operations has come further."""
        with self.changed:
            self.kick[0] = 0
            groups, self.groups = self.groups, []
            self.active += self.messages
            self.messages = []
        waiting = [group for group in groups if not self._begin(group)]
        if self.active:
            self._poll()
        elif waiting:
            time.sleep(1e-5)
        if waiting:
            with self.changed:
                self.groups += [group for group in waiting if group not in self.groups]

    def _begin(self, group: Any) -> bool:
        """Begin the next operation of a group; False where it has to wait for one that runs elsewhere."""
        while group.pending:
            if any(operation.group is group and operation.number for operation in self.active):
                return True  # the end of that one begins the next
            if not group.turn.acquire(blocking=False):
                return False
            if not group.pending:
                group.turn.release()
                return True
            operation = group.pending.popleft()
            operation.began = time.monotonic()
            self.active.append(operation)
            if operation.block is None:  # else its call is in flight
                self._advance(operation)
        return True

    def _advance(self, operation: Operation) -> None:
        """Run steps up to the next call, and start it."""
        group = operation.group
        try:
            if group.broken is not None:
                group._check()
            while operation.at < len(operation.steps):
                step = operation.steps[operation.at]
                operation.at += 1
                if type(step) is Call:
                    operation.block = block = group.block
                    block.describe(step.words)
                    code = bound("start")(block.address)
                    if code < 0:
                        raise WATCH.explained(operation.failed_call(code))
                    return
                step()
        except BaseException as error:
            self._end(operation, error)
        else:
            self._end(operation)

    def _end(self, operation: Operation, error: BaseException | None = None) -> None:
        self.active.remove(operation)
        group = operation.group
        in_turn = bool(operation.number)
        if error is not None:
            if operation.block is not None:
                group.broken = error
            if in_turn and operation.block is group.block:
                group.block = Block() if group.size > 1 else None
        if in_turn:
            group.turn.release()
            if group.pending:
                with self.changed:
                    if group not in self.groups:
                        self.groups.append(group)
        operation.finish(error)

    def _poll(self) -> None:
        active = self.active
        blocks = array("q", [operation.block.address for operation in active if operation.block is not None])
        many = max(operation.nbytes for operation in active)
        found = bound("poll")(blocks.buffer_info()[0], len(active), self.kick_address, YIELDING + many // 4, LIMIT)
        if found >= 0:
            operation = active[found]
            assert operation.block is not None
            code = operation.block.code
            if code < 0:
                self._end(operation, WATCH.explained(operation.failed_call(code)))
            else:
                operation.block = None
                self._advance(operation)
            return
        for operation in list(active):
            try:
                WATCH.check(operation)
            except Exception as error:
                self._end(operation, error)


THREAD = CommunicationThread()
