"""`breakpoint`: a debugger on one rank, while the others wait."""

from __future__ import annotations

import pdb  # noqa: T100 (a debugger is what is asked for)
import sys
from datetime import timedelta
from typing import Any

from rushlight._interface.base import warn_user
from rushlight.distributed.c10d.collectives import barrier
from rushlight.distributed.c10d.world import WORLD, default_group

__all__ = ["breakpoint"]

_CALLS: dict[tuple[str, int], int] = {}  # how often each line came here


class _Pdb(pdb.Pdb):
    """Reads the terminal, also in a process whose standard input is not it."""

    def interaction(self, *args: Any, **kwargs: Any) -> None:
        before = sys.stdin
        try:
            with open("/dev/stdin") as sys.stdin:
                super().interaction(*args, **kwargs)
        finally:
            sys.stdin = before


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float | None = 3600) -> None:
    """Stop in the debugger on one rank; the others wait in a barrier until it goes on.  All ranks call it.

    The first `skip` calls from a line pass.  The timeout of every group becomes `timeout_s`, so that nobody's patience
    ends meanwhile; None leaves them.
    """
    frame = sys._getframe(1)
    if skip > 0:
        line = frame.f_code.co_filename, frame.f_lineno
        _CALLS[line] = _CALLS.get(line, 0) + 1
        if _CALLS[line] <= skip:
            warn_user(f"torch.distributed.breakpoint: call {_CALLS[line]} of {skip} that are skipped")
            return
    default = default_group()
    if timeout_s is not None:
        for group in WORLD.groups:
            group.set_timeout(timedelta(seconds=timeout_s))
    if default.rank() == rank:
        debugger = _Pdb()
        debugger.message(f"rank {rank} stops here; the others wait until it goes on (c)")
        debugger.set_trace(frame)
    barrier()
