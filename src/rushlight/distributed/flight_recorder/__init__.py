"""The flight recorder: the last collectives and messages of every rank, and a command that says where ranks diverged.

Each process keeps its last operations (`RUSHLIGHT_FLIGHT_SIZE`, 2000). When an operation times out or a rank fails, every
rank writes a file; `python -m rushlight.distributed.flight_recorder.fr_trace DIRECTORY` reads those of all ranks.

>>> from rushlight.distributed import flight_recorder
>>> flight_recorder.entries()[-3:] if torch.distributed.is_initialized() else []
[]
"""

from __future__ import annotations

import signal
from typing import Any

from rushlight._interface.distributed import FLIGHT

__all__ = ["clear", "dump", "dump_on_signal", "entries"]


def entries() -> list[dict[str, Any]]:
    """The operations that are kept, oldest first: name, number, group, sizes, dtypes, state, times, the user's line."""
    return FLIGHT.entries()


def dump(path: str | None = None) -> str:
    """Write this rank's file now; its path.  Without `path` it is `RUSHLIGHT_FLIGHT_FILE` with the rank behind it."""
    return FLIGHT.dump(path)


def clear() -> None:
    """Forget the operations that are kept."""
    FLIGHT.clear()


def dump_on_signal(number: int = signal.SIGUSR2) -> None:
    """Write this rank's file whenever the process gets a signal; the job goes on.  Call it in the main thread.

    `RUSHLIGHT_FLIGHT_SIGNAL=USR2` in the environment does the same in every process that joins a job.
    """
    signal.signal(number, lambda *_: FLIGHT.dump())
