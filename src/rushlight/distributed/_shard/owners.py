"""Which rank has a part."""

from __future__ import annotations

from typing import Any

from rushlight.distributed import distributed_c10d as dist

__all__ = ["owner_of"]


def owner_of(process_group: Any, place: Any) -> tuple[int, Any]:
    """The rank and the device of a placement.

    ValueError for none, for one that names no rank, and for a rank that is not in the group.
    """
    if place is None:
        raise ValueError("remote device is None")
    rank = place.rank()
    if rank is None:
        raise ValueError(f"{place} names no rank: parts of tensors are placed by rank, as 'rank:0/cpu'")
    ranks = dist.get_process_group_ranks(process_group)
    if rank not in ranks:
        raise ValueError(f"Global rank {rank} does not exist in input process group: {ranks}")
    return rank, place.device()
