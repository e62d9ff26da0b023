"""Waiting with open eyes: is a rank dead, is somebody late, is the time over?

`WATCH.monitor` is set when the processes of a job are watched: its `check()` raises an error that names the rank that
failed; it is told what this rank waits in (`enter`), and asked what the others do (`notices`).
"""

from __future__ import annotations

import logging
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
NOTICED = 0.5  # seconds of waiting after which a rank writes down what it waits in
MOST_NAMED = 8
_LOG = logging.getLogger("rushlight.distributed")


class Watch:
    """What a process knows of the others of its job."""

    def __init__(self) -> None:
        self.monitor: Any = None
        self.failed = False  # an operation did not end: MPI cannot be ended in good order

    def check(self, operation: Any) -> None:
        """Raise the error of a dead rank, or of an operation that waits too long; warn of one that waits long."""
        group, waited = operation.group, operation.late_by()
        if self.monitor is not None:
            self.monitor.check(group.ranks, waited)
            if waited > NOTICED and not operation.noticed:
                operation.noticed = True
                self.monitor.enter(f"{operation.text()} at {operation.where()}")
        after = operation.warned or LATE_AFTER.get()
        if waited > group.timeout:
            raise DistBackendError(
                f"rank {group.ranks[group.rank]}: timed out after {waited:.1f} s (the timeout of the group is {group.timeout:g} s) in "
                f"{operation.text()} at {operation.where()}{self.others(operation)}"
            )
        if waited > after:
            operation.warned = 2 * after
            _LOG.warning(
                "rank %d has waited %.0f s in %s at %s%s",
                group.ranks[group.rank],
                waited,
                operation.text(),
                operation.where(),
                self.others(operation),
            )

    def others(self, operation: Any) -> str:
        """What the other ranks of an operation's group do, those first that are somewhere else."""
        ranks = [rank for rank in operation.group.ranks if rank != operation.group.ranks[operation.group.rank]]
        if self.monitor is None:
            return f"; of the ranks {ranks} at least one has not joined"
        told = self.monitor.notices()
        here = operation.text()
        late = [rank for rank in ranks if not told.get(rank, "").startswith(here)]
        lines = [
            f"rank {rank} has not joined: {told.get(rank) or 'it computes, or waits in nothing'}"
            for rank in late[:MOST_NAMED]
        ]
        if len(late) > MOST_NAMED:
            lines.append(f"and {len(late) - MOST_NAMED} more")
        return "".join(f"; {line}" for line in lines)

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
