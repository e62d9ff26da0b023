"""Python's collector of cycles, held off while many objects are made that live on."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["thawed", "uncollected"]

_MOST = 1_000_000  # objects that may become old unseen, among them cycles that nobody needs, before all are looked at
_unseen = [0, 0]  # objects since the last full collection; how many of these there were


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector of cycles: it would walk all nodes of a large graph many times while they are made.

    At the end they count as old, as most of them live on: the collector looks at them when it next looks at everything,
    not at once and as part of each younger generation again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            _grow_old()
            gc.enable()


def _grow_old() -> None:
    """Move all objects to the oldest generation, unless too many came there without having been looked at."""
    made, full = gc.get_count()[0], gc.get_stats()[2]["collections"]
    if made <= gc.get_threshold()[0] or gc.get_freeze_count():  # nothing to collect; or a program froze its own objects
        return
    _unseen[:] = made + (_unseen[0] if full == _unseen[1] else 0), full
    if _unseen[0] > _MOST:
        gc.collect()
    else:
        gc.freeze()
        gc.unfreeze()


@contextmanager
def thawed() -> Iterator[None]:
    """A time in which the collector lists what `gc.freeze` took out of its sight; it is frozen again afterwards, with
    all that lives then.
    """
    frozen = gc.get_freeze_count()
    if frozen:
        gc.unfreeze()
    try:
        yield
    finally:
        if frozen:
            gc.freeze()
