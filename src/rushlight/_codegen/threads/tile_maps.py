"""Tensor maps: what a bulk copy of tiles (TMA) knows of an array, as a kernel's launch makes it of the kernel's arguments.

A kernel takes each map as a parameter of 128 bytes behind its own.  NVIDIA's driver encodes it in a form of its own; the
emulated driver as a record of 16 words, which the twin reads: address, sizes of 5 dims, strides in bytes of all but the
first, sizes of the box, and the bytes of an element.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["MAP_BYTES", "MOST_DIMS", "TileMap", "record"]

MAP_BYTES, MOST_DIMS = 128, 5
_RECORD = struct.Struct("<16q")


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

    def of(self, words: Sequence[int]) -> tuple[int, list[int], list[int]]:
        """The address, the sizes, and the strides in bytes, for the arguments of a launch."""
        sizes, strides = ([_number(x, words) for x in xs] for xs in (self.sizes, self.strides))
        return words[self.pointer], sizes, [s * self.itemsize for s in strides]


def _number(x: Any, words: Sequence[int]) -> int:
    return words[x[0]] if isinstance(x, (tuple, list)) else x


def record(address: int, sizes: Sequence[int], strides: Sequence[int], box: Sequence[int], itemsize: int) -> bytes:
    """The record of an emulated tensor map."""
    more = MOST_DIMS - len(sizes)
    ones = [1] * more
    return _RECORD.pack(address, *sizes, *ones, *strides, *[0] * more, *box, *ones, itemsize)
