"""How tensors are cut into parts, and where these are."""

from __future__ import annotations

from rushlight.distributed._shard.metadata import ShardMetadata
from rushlight.distributed._shard.sharding_spec.api import (
    DevicePlacementSpec,
    EnumerableShardingSpec,
    PlacementSpec,
    ShardingSpec,
    custom_sharding_spec_op,
)
from rushlight.distributed._shard.sharding_spec.chunk_sharding_spec import (
    ChunkShardingSpec,
    _infer_sharding_spec_from_shards_metadata,
)

__all__ = [
    "ChunkShardingSpec", "DevicePlacementSpec", "EnumerableShardingSpec", "PlacementSpec", "ShardMetadata", "ShardingSpec",
    "_infer_sharding_spec_from_shards_metadata", "custom_sharding_spec_op",
]  # fmt: skip
