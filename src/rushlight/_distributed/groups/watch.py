"""Waiting with open eyes: is a rank dead, is somebody late, is the time over?

`WATCH.monitor` is set when the processes of a job are watched: its `check()` raises an error that names the rank that
failed; it is told what this rank waits in (`enter`), and asked what the others do (`notices`).
"""

from __future__ import annotations

import logging
import re
import time
from typing import Any

from rushlight._base.knobs import Knob
from rushlight._distributed.errors import DistBackendError, RankFailedError
from rushlight._distributed.groups.flight import FLIGHT, WAITS

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
_CROSSING = 1.0  # in debug mode: seconds of waiting after which ranks look whether they wait for each other
_WAITING = re.compile(WAITS + r"(.+) #(\d+) of group '(.*?)' ")
_LOG = logging.getLogger("rushlight.distributed")


class Watch:
    """A process's view of the others of its job."""

    def __init__(self) -> None:
        self.monitor: Any = None  # see `watched_by`
        self.failed = False  # an operation did not end: MPI cannot be ended in good order

    def watched_by(self, monitor: Any) -> None:
        """Set the monitor; it tells other ranks what the flight recorder knows."""
        self.monitor = monitor
        FLIGHT.rank = monitor.rank
        monitor.tell, monitor.on_dump = FLIGHT.doing, FLIGHT.dump_after_failure

    def check(self, operation: Any) -> None:
        """Raise the error of a dead rank, or of an operation that waits too long; warn of one that waits long."""
        group, waited = operation.group, operation.late_by()
        if self.monitor is not None:
            try:
                self.monitor.check(group.ranks, waited)
            except RankFailedError:
                FLIGHT.dump_after_failure()
                raise
            if waited > NOTICED and not operation.noticed:
                operation.noticed = True
                self.monitor.enter(f"{operation.text()} at {operation.where()}")
        if group.compare is not None and waited > _CROSSING * (1 + operation.looked):
            operation.looked += 1
            self.look_for_crossing(operation)
        after = operation.warned or LATE_AFTER.get()
        if waited > group.timeout:
            if self.monitor is not None:
                self.monitor.ask_for_dumps()
            raise DistBackendError(
                f"rank {group.ranks[group.rank]}: timed out after {waited:.1f} s (the timeout of the group is {group.timeout:g} s) in "
                f"{operation.text()} at {operation.where()}{self.others(operation)}{FLIGHT.dump_after_failure()}"
            )
        if waited > after:
            operation.warned = 2 * after
            _LOG.warning(
                "rank %d has waited %.1f s in %s at %s%s",
                group.ranks[group.rank],
                waited,
                operation.text(),
                operation.where(),
                self.others(operation),
            )

    def look_for_crossing(self, operation: Any) -> None:
        """DistBackendError where another rank stands still in an operation of another group, for which it waits for this
        one: both called their groups in different orders.  Only where one thread of each communicates.
        """
        if self.monitor is None or not operation.blocks() or not FLIGHT.alone:
            return  # another thread may yet join
        here, own = operation.title() + " ", operation.group
        told = self.monitor.notices()
        for rank in own.ranks:
            lines = told.get(rank, "").split("\n")
            found = _WAITING.match(lines[0])
            if rank == FLIGHT.rank or found is None or any(line.removeprefix(WAITS).startswith(here) for line in lines):
                continue
            other = FLIGHT.groups.get(found[3])
            if other is not None and other is not own and FLIGHT.rank in other.ranks and other.count < int(found[2]):
                FLIGHT.crossed = operation
                raise DistBackendError(
                    f"Detected mismatch between collectives on ranks of different groups: rank {FLIGHT.rank} waits in "
                    f"{operation.text()} at {operation.where()}, and rank {rank} {lines[0]}; "
                    "all ranks must use their groups in the same order"
                )

    def others(self, operation: Any) -> str:
        """State of the other ranks of an operation's group, those first that are somewhere else."""
        ranks = [rank for rank in operation.group.ranks if rank != operation.group.ranks[operation.group.rank]]
        if self.monitor is None:
            return f"; of the ranks {ranks} at least one has not joined"
        told = self.monitor.notices()
        here = operation.title() + " "
        late = [
            rank
            for rank in ranks
            if not any(line.removeprefix(WAITS).startswith(here) for line in told.get(rank, "").split("\n"))
        ]
        lines = [
            f"rank {rank} has not joined: {told.get(rank, '').replace(chr(10), ', ') or 'it says nothing of what it does'}"
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
