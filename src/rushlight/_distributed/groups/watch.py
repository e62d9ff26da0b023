"""Waiting with open eyes: is a rank dead, is somebody late, is the time over?

`WATCH.monitor` is set when the processes of a job are watched: its `check()` raises an error that names the rank that
failed, and its `late(...)` is told of operations that wait for long, so that others can say who has not joined.
"""

from __future__ import annotations

import time
from typing import Any

from rushlight._base.knobs import Knob
from rushlight._distributed.errors import DistBackendError, RankFailedError

__all__ = ["LATE_AFTER", "LIMIT", "WATCH", "Watch"]

LATE_AFTER: Knob[float] = Knob(
    "late_after", env="RUSHLIGHT_LATE_AFTER", kind=float, default=30.0,
    doc="Seconds after which a process that waits for others in a collective says so; again at doubling intervals.",
)  # fmt: skip


LIMIT = 20_000_000  # ns between two looks around
# An error of MPI's often means that a process is gone: the monitor gets this many seconds to name it.
NEWS = 1.0


class Watch:
    """What a process knows of the others of its job."""

    def __init__(self) -> None:
        self.monitor: Any = None

    def check(self, operation: Any) -> None:
        """Raise the error of a dead rank, or of an operation that waits too long; warn of one that waits long."""
        if self.monitor is not None:
            self.monitor.check()
        waited = operation.late_by()
        if waited > operation.group.timeout:
            raise DistBackendError(self.timed_out(operation, waited))
        after = operation.warned or LATE_AFTER.get()
        if waited > after:
            operation.warned = 2 * after
            if self.monitor is not None:
                self.monitor.late(operation.number, operation.name, operation.describe(), operation.where())

    def timed_out(self, operation: Any, waited: float) -> str:
        """The message of an operation whose time is over."""
        group = operation.group
        return (
            f"rank {group.ranks[group.rank]}: timed out after {waited:.1f} s (the timeout of the group is {group.timeout:g} s) in {operation.text()}, "
            f"asked for at {operation.where()}; one of the ranks {list(group.ranks)} has not joined"
        )

    def explained(self, error: BaseException) -> BaseException:
        """The error of a dead rank in place of one of MPI's, if news of a death come soon."""
        if self.monitor is None or isinstance(error, RankFailedError):
            return error
        until = time.monotonic() + NEWS
        while time.monotonic() < until:
            try:
                self.monitor.check()
            except RankFailedError as named:
                return named
            time.sleep(0.01)
        return error


WATCH = Watch()
