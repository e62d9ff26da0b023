"""Blocking calls of MPI's that are collective: made on a thread that can be left when a process is gone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.watch import WATCH

__all__ = ["apart", "subset"]


def subset(communicator: Any, ranks: Sequence[int], tag: int, timeout: float) -> Any:
    """A communicator of some ranks of another one, made by these alone."""
    if len(ranks) == 1 or communicator.size == 1:
        return communicator.subset(ranks, tag)
    what = f"make a communicator of ranks {list(ranks)}: one of them has not come"
    return apart(lambda: communicator.subset(ranks, tag), timeout, what)


def apart(call: Callable[[], Any], timeout: float, what: str) -> Any:
    """The result of a function that runs on a thread of its own; an error where a rank dies or the time is over."""
    found: list[Any] = []
    done = threading.Event()

    def run() -> None:
        try:
            found.append((call(), None))
        except BaseException as error:
            found.append((None, error))
        done.set()

    threading.Thread(target=run, name="rushlight-communicator", daemon=True).start()
    until = time.monotonic() + timeout
    while not done.wait(0.02):
        if WATCH.monitor is not None:
            WATCH.monitor.check()
        if time.monotonic() > until:
            raise DistBackendError(f"timed out after {timeout:g} s: could not {what}")
    result, error = found[0]
    if error is not None:
        raise WATCH.explained(error)
    return result
