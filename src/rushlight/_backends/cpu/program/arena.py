"""The memory plan of a program: offsets in one block for what lives between its kernels."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence

__all__ = ["ALIGNMENT", "free_place", "planned"]

ALIGNMENT = 64  # bytes: a cache line
MOST_BY_SIZE = 512  # buffers up to which both orders are tried


def planned(buffers: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Offsets for buffers of (bytes, first, last): two that live at one time do not overlap.  Also the size of the
    block.

    >>> planned([(100, 0, 1), (100, 1, 2), (100, 2, 3)])
    ([0, 128, 0], 256)
    """
    by_time = _first_come(buffers)
    if len(buffers) > MOST_BY_SIZE:
        return by_time
    return min(_largest_first(buffers), by_time, key=lambda plan: plan[1])


def _rounded(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _largest_first(buffers: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """The largest are placed first, each at the lowest offset that is free all the time it lives."""
    offsets, size = [0] * len(buffers), 0
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; by offset
    for k in sorted(range(len(buffers)), key=lambda k: (-buffers[k][0], buffers[k][1])):
        nbytes, first, last = buffers[k]
        offsets[k] = at = free_place(placed, nbytes, first, last)
        size = max(size, at + _rounded(nbytes))
        insort(placed, (at, at + _rounded(nbytes), first, last))
    return offsets, size


def free_place(placed: Sequence[tuple[int, int, int, int]], nbytes: int, first: int, last: int) -> int:
    """The lowest offset that is free all the time from `first` to `last`; `placed` holds (offset, end, first, last), by
    offset.
    """
    at, nbytes = 0, _rounded(nbytes)
    for offset, end, begin, until in placed:
        if until < first or begin > last:
            continue
        if offset >= at + nbytes:
            break
        if end > at:
            at = end
    return at


def _first_come(buffers: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """In the order of time, each into the smallest gap that holds it: nearly linear, for programs of many kernels."""
    offsets, size = [0] * len(buffers), 0
    ending: dict[int, list[int]] = {}
    for k, (_, _, last) in enumerate(buffers):
        ending.setdefault(last, []).append(k)
    done = sorted(ending)
    gaps: list[tuple[int, int]] = []  # offset, bytes; by offset
    at = 0
    for k in sorted(range(len(buffers)), key=lambda k: (buffers[k][1], -buffers[k][0])):
        nbytes, first, _ = buffers[k]
        nbytes = _rounded(nbytes)
        while at < len(done) and done[at] < first:
            for over in ending[done[at]]:
                _give_back(gaps, offsets[over], _rounded(buffers[over][0]))
            at += 1
        fitting = [gap for gap in gaps if gap[1] >= nbytes]
        if fitting:
            gap = min(fitting, key=lambda gap: (gap[1], gap[0]))
            gaps.remove(gap)
            offsets[k] = gap[0]
            if gap[1] > nbytes:
                insort(gaps, (gap[0] + nbytes, gap[1] - nbytes))
            continue
        if gaps and gaps[-1][0] + gaps[-1][1] == size:  # the last gap grows
            offsets[k] = gaps.pop()[0]
        else:
            offsets[k] = size
        size = offsets[k] + nbytes
    return offsets, size


def _give_back(gaps: list[tuple[int, int]], offset: int, nbytes: int) -> None:
    """Add a gap, and join it with its neighbours."""
    at = bisect(gaps, (offset, 0))
    if at < len(gaps) and gaps[at][0] == offset + nbytes:
        nbytes += gaps.pop(at)[1]
    if at and sum(gaps[at - 1]) == offset:
        offset, before = gaps.pop(at - 1)
        nbytes += before
    insort(gaps, (offset, nbytes))
