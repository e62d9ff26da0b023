"""One part of a sharded tensor that this process has."""

from __future__ import annotations

from dataclasses import dataclass

from rushlight import Tensor
from rushlight.distributed._shard.metadata import ShardMetadata
from rushlight.distributed.remote_device import _remote_device

__all__ = ["Shard"]


@dataclass
class Shard:
    """A tensor, and where it lies in the whole.  ValueError where its shape or device is another than `metadata` says."""

    tensor: Tensor
    metadata: ShardMetadata

    def __post_init__(self) -> None:
        if list(self.tensor.size()) != self.metadata.shard_sizes:
            raise ValueError(
                "Shard tensor size does not match with metadata.shard_lengths! "
                f"Found shard tensor size: {list(self.tensor.size())}, metadata.shard_lengths: {self.metadata.shard_sizes}, "
            )
        place = self.metadata.placement
        if place is not None and place.device() != self.tensor.device:
            raise ValueError(
                "Local shard tensor device does not match with local Shard's placement! Found local shard tensor device:"
                f" {self.tensor.device}, local shard metadata placement device: {place.device()}"
            )

    @classmethod
    def from_tensor_and_offsets(cls, tensor: Tensor, shard_offsets: list[int], rank: int) -> Shard:
        """A tensor of a rank that begins at `shard_offsets` in the whole."""
        place = _remote_device(f"rank:{rank}/{tensor.device}")
        return cls(tensor, ShardMetadata(shard_offsets, list(tensor.size()), place))
