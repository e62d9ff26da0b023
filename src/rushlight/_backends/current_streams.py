"""Each thread's current streams, as far as they are not the default ones of their devices."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rushlight._backends.protocol import StreamHandle
    from rushlight._types.device import Device

__all__ = ["CURRENT_STREAMS", "tell"]


class CurrentStreams(threading.local):
    """`by_device` holds the streams that are not default ones; `side` is the same as a tuple, made anew by a change."""

    ever = False  # whether some thread has chosen one

    def __init__(self) -> None:
        self.by_device: dict[Device, StreamHandle] = {}
        self.side: tuple[StreamHandle, ...] = ()

    def choose(self, stream: StreamHandle, default: bool) -> None:
        """Let a stream be the current one of its device; `default` says whether it is the device's default stream."""
        chosen = dict(self.by_device)  # another thread may have taken this one over
        if default:
            chosen.pop(stream.device, None)
        else:
            chosen[stream.device] = stream
        self.by_device, self.side = chosen, tuple(chosen.values())
        CurrentStreams.ever = CurrentStreams.ever or not default
        self.announce()

    def announce(self) -> None:
        """Tell who wants to know that this thread's streams changed."""
        for told in _TOLD:
            told(bool(self.side))


CURRENT_STREAMS = CurrentStreams()
_TOLD: list[Callable[[bool], None]] = []


def tell(told: Callable[[bool], None]) -> None:
    """Call `told(whether a stream other than a default one is current)` in a thread whose current streams change."""
    _TOLD.append(told)
