"""Metadata of a sharded tensor, the same on all processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rushlight import Size
from rushlight.distributed._shard.metadata import ShardMetadata
from rushlight.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING as MEM_FORMAT_ENCODING
from rushlight.distributed.checkpoint.metadata import TensorProperties

__all__ = ["MEM_FORMAT_ENCODING", "ShardMetadata", "ShardedTensorMetadata", "TensorProperties"]


@dataclass
class ShardedTensorMetadata:
    """All parts, the whole tensor's shape, and its dtype with other properties."""

    shards_metadata: list[ShardMetadata] = field(default_factory=list)
    size: Any = field(default_factory=lambda: Size([]))
    tensor_properties: Any = field(default_factory=TensorProperties)
