"""Tensor maps: what a bulk copy of tiles (TMA) knows of an array, as a kernel's launch makes it of the kernel's arguments.

A kernel takes each map as a parameter of 128 bytes behind its own.  NVIDIA's driver encodes it in a form of its own; the
emulated driver as a record of 16 words, which the twin reads: address, sizes of 5 dims, strides in bytes of all but the
first, sizes of the box, and the bytes of an element.

A map of windows (`Windows`, what CUDA calls im2col) describes images: a box is a run of positions by some channels.  Its record
has in the words of the box the channels, the positions, and for each dim of an image step, first place and count of positions;
bit 32 of the last word tells it from others.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["MAP_BYTES", "MOST_DIMS", "WINDOWS", "Corners", "TileMap", "Windows", "described", "record", "window_record"]

MAP_BYTES, MOST_DIMS = 128, 5
WINDOWS = 1 << 32
_RECORD = struct.Struct("<16q")


class Windows(NamedTuple):
    """Positions along the dims of an image, the dim with neighbours in memory first: position p is at p * step - lo."""

    steps: tuple[int, ...]
    lo: tuple[int, ...]
    counts: tuple[int | tuple[int], ...]


class Corners(NamedTuple):
    """The box of all positions along the dims of an image, as the driver is told it: its begin from the image's begin, its end
    from the image's end, and the steps in it.
    """

    lower: list[int]
    upper: list[int]
    steps: list[int]

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """How many positions there are along each dim, of images of such sizes."""
        dims = zip(self.lower, self.upper, self.steps, sizes, strict=True)
        return [(size + upper - lower - 1) // step + 1 for lower, upper, step, size in dims]


class TileMap(NamedTuple):
    """An array and the box of a copy, the dim with neighbours in memory first.

    Sizes, and strides (in elements, of all dims but the first), are numbers, or (k,) for the argument number k.
    """

    dtype: str
    itemsize: int
    pointer: int  # the number of the argument that is the array's address
    sizes: tuple[int | tuple[int], ...]
    strides: tuple[int | tuple[int], ...]
    box: tuple[int, ...]
    windows: Windows | None = None  # then the box is channels and positions

    def numbers(self) -> list[int | tuple[int]]:
        """All sizes, strides and counts."""
        return [*self.sizes, *self.strides, *(self.windows.counts if self.windows else ())]

    def of(self, words: Sequence[int]) -> tuple[int, list[int], list[int]]:
        """The address, the sizes, and the strides in bytes, for the arguments of a launch."""
        sizes, strides = ([_number(x, words) for x in xs] for xs in (self.sizes, self.strides))
        return words[self.pointer], sizes, [s * self.itemsize for s in strides]

    def corners(self, words: Sequence[int]) -> Corners | None:
        """Of windows, for the arguments of a launch."""
        if self.windows is None:
            return None
        steps, lo, counts = self.windows
        spaces = [_number(x, words) for x in self.sizes[1:-1]]
        upper = [
            (_number(n, words) - 1) * step - low + 1 - size
            for n, step, low, size in zip(counts, steps, lo, spaces, strict=True)
        ]
        return Corners([-low for low in lo], upper, list(steps))


def described(given: Sequence[Any]) -> TileMap:
    """A map that lists tell, as they come from a file."""
    made = TileMap(*given)
    return made if made.windows is None else made._replace(windows=Windows(*made.windows))


def _number(x: Any, words: Sequence[int]) -> int:
    return words[x[0]] if isinstance(x, (tuple, list)) else x


def record(address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], itemsize: int) -> bytes:
    """The record of an emulated tensor map."""
    more = MOST_DIMS - len(sizes)
    ones = [1] * more
    return _RECORD.pack(address, *sizes, *ones, *strides, *[0] * more, *box, *ones, itemsize)


def window_record(
    address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], corners: Corners, itemsize: int
) -> bytes:
    """The record of an emulated tensor map of windows."""
    more, counts = MOST_DIMS - len(sizes), corners.counts(sizes[1:-1])
    dims = [
        count << 32 | (lower & 0xFFFF) << 16 | step
        for count, lower, step in zip(counts, corners.lower, corners.steps, strict=True)
    ]
    dims += [1 << 32 | 1] * (MOST_DIMS - 2 - len(dims))
    # images are the last of the dims, so that a map of fewer dims has others of one place before them
    ones, last = [1] * more, sizes[-1]
    steps = [*strides[:-1], *[0] * more, strides[-1]]
    return _RECORD.pack(address, *sizes[:-1], *ones, last, *steps, *box, *dims, itemsize | WINDOWS)
