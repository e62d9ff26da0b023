"""Tensors that are cut along one dim, as `torch.chunk` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import rushlight
from rushlight._interface.base import LazyModule
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed._shard.metadata import ShardMetadata
from rushlight.distributed._shard.owners import owner_of
from rushlight.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from rushlight.distributed._shard.sharded_tensor.shard import Shard
from rushlight.distributed._shard.sharding_spec._internals import get_chunked_dim_size, get_split_size
from rushlight.distributed._shard.sharding_spec.api import EnumerableShardingSpec, ShardingSpec
from rushlight.distributed.remote_device import _remote_device

__all__ = ["ChunkShardingSpec"]

sharded: Any = LazyModule("rushlight.distributed._shard.sharded_tensor.api")  # which cuts by this page


@dataclass
class ChunkShardingSpec(ShardingSpec):
    """As many chunks along `dim` as there are placements; texts become `_remote_device`s.

    NotImplementedError for a dim by name, ValueError for what is no number.

    >>> spec = ChunkShardingSpec(0, ["rank:0/cpu", "rank:1/cpu"])
    >>> [shard.shard_sizes for shard in spec.build_metadata([5, 2], None).shards_metadata]
    [[3, 2], [2, 2]]
    """

    dim: int | str
    placements: list[Any]

    def __post_init__(self) -> None:
        self._number()
        for k, place in enumerate(self.placements):
            if not isinstance(place, _remote_device):
                self.placements[k] = _remote_device(place)

    def _number(self) -> int:
        if isinstance(self.dim, str):
            raise NotImplementedError("ChunkShardingSpec does not support named dimension yet!")
        if not isinstance(self.dim, int):
            raise ValueError(f"Sharding dim needs to be an integer, found: {self.dim}")
        return self.dim

    def build_metadata(self, tensor_sizes: Any, tensor_properties: Any) -> Any:
        """The chunks of a tensor of a shape.  ValueError where it has no such dim."""
        dim, found = self._number(), []
        if not -len(tensor_sizes) <= dim < len(tensor_sizes):
            raise ValueError(f"Invalid sharding dim: {self.dim}")
        split = get_split_size(tensor_sizes[dim], len(self.placements))
        for k, place in enumerate(self.placements):
            offsets, sizes = [0] * len(tensor_sizes), list(tensor_sizes)
            offsets[dim], sizes[dim] = split * k, get_chunked_dim_size(tensor_sizes[dim], split, k)
            found.append(ShardMetadata(offsets, sizes, place))
        return ShardedTensorMetadata(found, tensor_sizes, tensor_properties)

    def shard(self, tensor: Any, src_rank: int = 0, process_group: Any = None) -> Any:
        """Send each process of a group its chunk of the tensor that `src_rank` (a place in the group, a rank of the job
        without one) has; all processes give a tensor of this shape and dtype.
        """
        dim, whole = self._number(), tensor.detach()
        data = self.build_metadata(tensor.size(), TensorProperties.create_from_tensor(tensor))
        shape = list(tensor.shape)
        shape[dim] = get_split_size(shape[dim], len(self.placements))
        rows: dict[int, Any] = {}
        mine = None
        for chunk in data.shards_metadata:
            rank, _ = owner_of(process_group, chunk.placement)
            row = whole.new_zeros(shape)  # all rows of a message have one length
            first, count = chunk.shard_offsets[dim], chunk.shard_sizes[dim]
            if count:
                row.narrow(dim, 0, count).copy_(whole.narrow(dim, first, count))
            rows[dist.get_group_rank(process_group, rank) if process_group is not None else rank] = row
            mine = chunk if rank == dist.get_rank() else mine
        if mine is None:
            raise AssertionError(f"rank {dist.get_rank()} has no chunk: {self.placements}")
        local = whole.new_empty(shape)
        sends = dist.get_rank(process_group) == src_rank
        listed = [rows[k] for k in range(dist.get_world_size(process_group))] if sends else None
        where = src_rank if process_group is None else dist.get_global_rank(process_group, src_rank)
        dist.scatter(local, listed, src=where, group=process_group)
        part = local.narrow(dim, 0, mine.shard_sizes[dim]).clone(memory_format=rushlight.contiguous_format)
        part.requires_grad_(tensor.requires_grad)
        return sharded.ShardedTensor._init_from_local_shards_and_global_metadata(
            [Shard(part, mine)], data, process_group=process_group, sharding_spec=self
        )


def _infer_sharding_spec_from_shards_metadata(shards_metadata: Sequence[ShardMetadata]) -> ShardingSpec:
    """Chunks along one dim, where the boxes are such; else the boxes."""
    dims = {d for shard in shards_metadata for d, offset in enumerate(shard.shard_offsets) if offset}
    if len(dims) == 1:
        dim = dims.pop()
        ordered = sorted(shards_metadata, key=lambda shard: shard.shard_offsets[dim])
        spec = ChunkShardingSpec(dim, [shard.placement for shard in ordered])
        sizes = list(ordered[0].shard_sizes)
        sizes[dim] = sum(shard.shard_sizes[dim] for shard in ordered)
        chunks = spec.build_metadata(sizes, None).shards_metadata
        if all(
            a.shard_sizes == b.shard_sizes and a.shard_offsets == b.shard_offsets
            for a, b in zip(chunks, ordered, strict=True)
        ):
            return spec
    return EnumerableShardingSpec(list(shards_metadata))
