"""How far the clocks of ranks are apart."""

from __future__ import annotations

import os
import time
from typing import Any

import rushlight
from rushlight.distributed import distributed_c10d as dist

__all__ = ["clock_offsets"]

_TAG = 30002


def _clock_name() -> str:
    """The same on all processes that share a monotonic clock: those of one start of one machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip() + os.readlink("/proc/self/ns/time")
    except OSError:
        return f"{os.uname().nodename} {os.getpid()}"


def clock_offsets(group: Any = None, rounds: int = 16, measure: bool = False) -> list[float]:
    """Seconds by which the monotonic clock of each rank of a group is ahead of its first rank's.  All ranks call it.

    Ranks of one machine share a clock: their offset is 0 and nothing is sent, unless `measure`.  Others answer `rounds`
    messages each; the offset is that of the quickest, and off by at most half of its way there and back.
    """
    names: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(names, _clock_name(), group=group)
    here, offsets = dist.get_rank(group), rushlight.zeros(len(names), dtype=rushlight.float64)
    for place, name in enumerate(names):
        if place and (measure or name != names[0]):
            if here == 0:
                offsets[place] = _ask(place, group, rounds)
            elif here == place:
                _answer(group, rounds)
    dist.broadcast(offsets, group=group, group_src=0)
    return [float(x) for x in offsets.tolist()]


def _ask(place: int, group: Any, rounds: int) -> float:
    """The offset of one rank, by its answers."""
    message, best = rushlight.zeros(1, dtype=rushlight.float64), (float("inf"), 0.0)
    for _ in range(rounds):
        sent = time.monotonic()
        dist.send(message, group=group, tag=_TAG, group_dst=place)
        dist.recv(message, group=group, tag=_TAG, group_src=place)
        came = time.monotonic()
        best = min(best, (came - sent, message.item() - (sent + came) / 2))
    return best[1]


def _answer(group: Any, rounds: int) -> None:
    message = rushlight.zeros(1, dtype=rushlight.float64)
    for _ in range(rounds):
        dist.recv(message, group=group, tag=_TAG, group_src=0)
        message.fill_(time.monotonic())
        dist.send(message, group=group, tag=_TAG, group_dst=0)
