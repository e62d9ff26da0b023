"""Files of shared memory that MPI makes, and that killed ranks would leave behind."""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["SHM", "remove_own_segments", "remove_unused_segments"]

SHM = "/dev/shm/"
_NAME = "mpich_shm_"


def remove_own_segments() -> None:
    """Remove the names of what this process has mapped: the memory stays until the last process lets it go."""
    for path in _mapped("self"):
        _remove(path)


def remove_unused_segments(since: float) -> None:
    """Remove what this user's processes made after this time, and none has mapped any more."""
    try:
        names = [entry for entry in os.scandir(SHM) if entry.name.startswith(_NAME)]
        found = {e.path for e in names if e.stat().st_uid == os.getuid() and e.stat().st_ctime >= since - 1}
    except OSError:
        return
    for process in os.listdir("/proc") if found else ():
        if process.isdigit():
            found.difference_update(_mapped(process))
    for path in found:
        _remove(path)


def _mapped(process: str) -> Iterator[str]:
    """The files of shared memory that a process has mapped, as far as they have names."""
    try:
        with open(f"/proc/{process}/maps") as file:
            for line in file:
                if _NAME in line:
                    path = line.rstrip("\n").split(None, 5)[5]
                    if path.startswith(SHM) and not path.endswith("(deleted)"):
                        yield path
    except OSError:
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # another process was faster
