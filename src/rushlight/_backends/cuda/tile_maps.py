"""Tensor maps of launches: encoded by the driver from a launch's arguments, and kept, because most launches repeat."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from rushlight._codegen.threads.tile_maps import MAP_BYTES, Corners, TileMap

__all__ = ["TileMaps", "kind_of"]

# of the driver's enumerations: the types of elements, no interleaving, the swizzle of 128 bytes, lines of 256 bytes in L2, zeros outside
KINDS = {"float16": 6, "float32": 7, "bfloat16": 9}
_BYTES = 0
_PLAIN, _SWIZZLE_128, _L2_256, _ZEROS = 0, 3, 3, 0
_KEPT = 256


def kind_of(tile: TileMap) -> int:
    """The driver's number for the elements of a map."""
    return KINDS.get(tile.dtype, _BYTES)


class TileMaps:
    """The maps of one kernel."""

    __slots__ = ("driver", "known", "maps")

    def __init__(self, driver: Any, maps: Sequence[TileMap]) -> None:
        self.driver, self.maps = driver, maps
        self.known: dict[Any, bytes] = {}

    def appended(self, words: Any) -> Any:
        """The words of a launch with the maps behind them."""
        given = list(words)
        described = [(*m.of(given), m.corners(given)) for m in self.maps]
        key = repr(described)
        made = self.known.get(key)
        if made is None:
            if len(self.known) >= _KEPT:
                self.known.clear()
            made = self.known[key] = b"".join(self._encoded(m, *d) for m, d in zip(self.maps, described, strict=True))
        count = len(given) + len(made) // 8
        return (ctypes.c_int64 * count).from_buffer_copy(bytes(words) + made)

    def _encoded(
        self, tile: TileMap, address: int, sizes: list[int], strides: list[int], corners: Corners | None
    ) -> bytes:
        kind, how = kind_of(tile), (_PLAIN, _SWIZZLE_128, _L2_256, _ZEROS)
        raw: bytes
        if corners is None:
            ones = (1,) * len(sizes)
            raw = self.driver.cuTensorMapEncodeTiled(kind, address, sizes, strides, tile.box, ones, *how)
        else:
            lower, upper, steps = corners
            raw = self.driver.cuTensorMapEncodeIm2col(
                kind, address, sizes, strides, lower, upper, *tile.box, [1, *steps, 1], *how
            )
        assert len(raw) == MAP_BYTES
        return raw
