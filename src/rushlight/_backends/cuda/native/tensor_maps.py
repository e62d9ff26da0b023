"""Tensor maps of native launches: the tables from which native code has the driver encode them for a call's addresses."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.tile_maps import kind_of
from rushlight._codegen.threads.tile_maps import MAP_BYTES, TileMap

if TYPE_CHECKING:
    from rushlight._backends.cuda.program.executable import Prepared

__all__ = ["KeptMaps", "depend_on_addresses_alone"]


def depend_on_addresses_alone(step: Prepared) -> bool:
    """Whether the tensor maps of a launch have sizes and strides that no call changes."""
    maps = getattr(step.kernel, "maps", None)
    if maps is None:
        return True
    varies = {slot for slot, *_ in [*step.number_slots, *step.address_slots]}
    return not any(isinstance(x, (tuple, list)) and x[0] in varies for m in maps.maps for x in m.numbers())


class KeptMaps:
    """The maps of one launch with these words: `rows` are the values of records MAP, `addresses` where the maps lie."""

    def __init__(self, maps: Sequence[TileMap], words: Any) -> None:
        room = ctypes.create_string_buffer(MAP_BYTES * len(maps) + 64)
        first = -(-ctypes.addressof(room) // 64) * 64
        self.addresses = [first + MAP_BYTES * k for k in range(len(maps))]
        self._keep: list[Any] = [room]
        self.rows = [self._row(m, at, list(words)) for m, at in zip(maps, self.addresses, strict=True)]

    def _row(self, tile: TileMap, at: int, words: list[int]) -> list[int]:
        _, sizes, strides = tile.of(words)
        dims = len(sizes)
        corners = tile.corners(words)
        steps = [1] * dims if corners is None else [1, *corners.steps, 1]
        tables = [array("q", sizes), array("q", strides or [0]), array("I", tile.box), array("I", steps)]
        if corners is not None:
            tables += [array("i", corners.lower), array("i", corners.upper)]
        self._keep += tables
        none = [0, 0] if corners is None else []
        return [tile.pointer, 0, at, kind_of(tile), dims, *[table.buffer_info()[0] for table in tables], *none]
