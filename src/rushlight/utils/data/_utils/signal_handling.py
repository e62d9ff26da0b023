"""Workers of loaders that other packages wrote for PyTorch: which processes they are, and whether one has died.

PyTorch learns of a dead worker by SIGCHLD.  Here whoever waits for workers looks at them: nothing is done in a signal
handler, which other parts of a program may have set.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = [
    "_error_if_any_worker_fails",
    "_remove_worker_pids",
    "_set_SIGCHLD_handler",
    "_set_worker_pids",
    "_set_worker_signal_handlers",
]

_PIDS: dict[int, tuple[int, ...]] = {}


def _set_worker_pids(key: int, pids: Sequence[int]) -> None:
    """Remember the workers of a loader's pass."""
    _PIDS[key] = tuple(pids)


def _remove_worker_pids(key: int) -> None:
    """Forget them: they are about to end."""
    _PIDS.pop(key, None)


def _error_if_any_worker_fails() -> None:
    """RuntimeError where a remembered worker has died by a signal or with an exit status."""
    for pids in _PIDS.values():
        for pid in pids:
            try:
                found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                continue
            if found is None or found.si_status == 0:
                continue
            if found.si_code == os.CLD_EXITED:
                raise RuntimeError(
                    f"DataLoader worker (pid {pid}) exited unexpectedly with exit code {found.si_status}."
                )
            raise RuntimeError(f"DataLoader worker (pid {pid}) is killed by signal: {found.si_status}.")


def _set_SIGCHLD_handler() -> None:
    """Nothing: see above."""


def _set_worker_signal_handlers() -> None:
    """Nothing: a crash of a worker prints its traceback by `faulthandler` where that is on."""
