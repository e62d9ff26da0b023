"""The memory plan of a program: offsets in one block for what lives between its kernels."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ALIGNMENT", "planned"]

ALIGNMENT = 64  # bytes: a cache line


def planned(buffers: Sequence[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Offsets for buffers of (bytes, first, last): two that live at one time do not overlap.  Also the size of the block.

    The largest are placed first, each at the lowest offset that is free all the time it lives.

    >>> planned([(100, 0, 1), (100, 1, 2), (100, 2, 3)])
    ([0, 128, 0], 256)
    """
    offsets, size = [0] * len(buffers), 0
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; by offset
    for k in sorted(range(len(buffers)), key=lambda k: (-buffers[k][0], buffers[k][1])):
        nbytes, first, last = buffers[k]
        nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
        at = 0
        for offset, end, begin, until in placed:
            if until < first or begin > last:
                continue
            if offset >= at + nbytes:
                break
            at = max(at, end)
        offsets[k] = at
        size = max(size, at + nbytes)
        entry = (at, at + nbytes, first, last)
        low, high = 0, len(placed)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if placed[middle][0] <= at else (low, middle)
        placed.insert(low, entry)
    return offsets, size
