"""Which part of a spread tensor a process has: `torch.distributed.tensor._utils`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight.distributed.tensor.placement_types import Placement, Shard, nesting

__all__ = ["compute_local_shape_and_global_offset"]


def compute_local_shape_and_global_offset(
    global_shape: Sequence[int], mesh: Any, placements: Sequence[Placement]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of this process's part of a tensor of `global_shape`, and where in the tensor it begins.

    `placements` has one placement for each dim of `mesh`; a dim of the tensor that several of them cut is cut by the
    first one first, but for strided parts.  A process outside of the mesh has the shape (0,) and no offset.
    """
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return (0,), ()
    shape, offset = list(global_shape), [0] * len(global_shape)
    for number in nesting(placements):
        placement = placements[number]
        if isinstance(placement, Shard):
            size, begin = Shard.local_shard_size_and_offset(shape[placement.dim], mesh.size(number), coordinate[number])
            shape[placement.dim] = size
            offset[placement.dim] += begin
    return tuple(shape), tuple(offset)
