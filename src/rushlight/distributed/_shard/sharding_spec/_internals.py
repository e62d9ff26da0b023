"""Boxes of a tensor: whether they overlap, whether they make the whole, and how a dim is cut into chunks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Any

from rushlight.distributed._shard.metadata import ShardMetadata

__all__ = [
    "check_tensor", "get_chunk_sharding_params", "get_chunked_dim_size", "get_split_size", "validate_non_overlapping_shards_metadata",
]  # fmt: skip


def _overlap(a: ShardMetadata, b: ShardMetadata) -> bool:
    return all(
        x < y + m and y < x + n
        for x, n, y, m in zip(a.shard_offsets, a.shard_sizes, b.shard_offsets, b.shard_sizes, strict=True)
    )


def _overlapping(shards: Sequence[ShardMetadata]) -> tuple[ShardMetadata, ShardMetadata] | None:
    """Two boxes that overlap: along one dim by their order, else pair by pair."""
    dims = range(len(shards[0].shard_offsets))
    differing = [d for d in dims if len({(s.shard_offsets[d], s.shard_sizes[d]) for s in shards}) > 1]
    if not differing:
        empty = all(not any(s.shard_offsets) and not math.prod(s.shard_sizes) for s in shards)
        return None if empty else (shards[0], shards[1])
    if len(differing) > 1:
        return next(((a, b) for a, b in combinations(shards, 2) if _overlap(a, b)), None)
    dim = differing[0]
    ordered = sorted(shards, key=lambda s: (s.shard_offsets[dim], s.shard_offsets[dim] + s.shard_sizes[dim]))
    for a, b in pairwise(ordered):
        if a.shard_offsets[dim] + a.shard_sizes[dim] > b.shard_offsets[dim]:
            return a, b
    return None


def validate_non_overlapping_shards_metadata(shards: Sequence[ShardMetadata]) -> None:
    """ValueError where two boxes overlap."""
    found = _overlapping(shards) if len(shards) > 1 else None
    if found is not None:
        raise ValueError(f"Shards {found[0]} and {found[1]} overlap")


def check_tensor(shards_metadata: Sequence[ShardMetadata], tensor_dims: Sequence[int]) -> None:
    """ValueError where boxes that do not overlap do not make up a tensor of the shape `tensor_dims`."""
    rank = len(shards_metadata[0].shard_offsets)
    if len(tensor_dims) != rank:
        raise ValueError(f"Rank of tensor is {len(tensor_dims)}, but shards rank is {rank}")
    for shard in shards_metadata:
        for offset, length, size in zip(shard.shard_offsets, shard.shard_sizes, tensor_dims, strict=True):
            if length and offset + length > size:  # chunks behind the end are empty
                raise ValueError(
                    f"Shard offset {offset} and length {length} exceeds tensor dim: {size} for shard {shard}"
                )
    volume, whole = sum(math.prod(shard.shard_sizes) for shard in shards_metadata), math.prod(tensor_dims)
    if volume != whole:
        raise ValueError(
            f"Total volume of shards: {volume} does not match tensor volume: {whole}, in other words all the individual"
            " shards do not cover the entire tensor"
        )


def get_split_size(dim_size: int, chunks: int) -> int:
    """How many places each of so many chunks of a dim has, but for the last ones."""
    return (dim_size + chunks - 1) // chunks


def get_chunked_dim_size(dim_size: int, split_size: int, idx: int) -> int:
    """How many places chunk `idx` has."""
    return max(min(dim_size, split_size * (idx + 1)) - split_size * idx, 0)


def get_chunk_sharding_params(sharding_dim_size: int, world_size: int, spec: Any, rank: int) -> tuple[int, int]:
    """Where the chunk of a rank begins, and how many places it has."""
    split = get_split_size(sharding_dim_size, world_size)
    for idx, placement in enumerate(spec.placements):
        if placement.rank() == rank:
            return min(split * idx, sharding_dim_size), get_chunked_dim_size(sharding_dim_size, split, idx)
    return 0, get_chunked_dim_size(sharding_dim_size, split, len(spec.placements) - 1)
