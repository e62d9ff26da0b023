"""Many collectives waited for as one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight.distributed.c10d.messages import start_batch
from rushlight.distributed.c10d.work import Work, ended
from rushlight.distributed.c10d.world import group_of

__all__ = ["coalescing_manager"]


class _Coalesced:
    """Handle that `_coalescing_manager(async_ops=True)` gives."""

    def __init__(self) -> None:
        self.works: list[Work] = []

    def append(self, work: Any) -> None:
        """Wait for another piece of work too."""
        if work is not None:
            self.works.append(work)

    def wait(self) -> None:
        """Wait for all."""
        for work in self.works:
            work.wait()


@contextmanager
def coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[_Coalesced]:
    """Collectives inside begin at once and are waited for at the end, or by `wait()` with `async_ops=True`."""
    pg = group_of(group)
    if pg._coalescing is not None:
        raise ValueError("ProcessGroup has non-empty op list at the start of coalescing")
    pg._coalescing = []
    together = _Coalesced()
    try:
        yield together
    except BaseException:
        pg._coalescing, pg._batched = None, []
        raise
    works, pg._coalescing = pg._coalescing, None
    messages = start_batch(pg)
    together.append(ended(works if messages is None else [*works, messages]))
    if not async_ops:
        together.wait()
