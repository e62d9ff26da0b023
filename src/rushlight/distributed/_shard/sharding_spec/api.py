"""How a tensor is cut: a list of boxes, or whatever a program's own class says."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rushlight.distributed._shard.metadata import ShardMetadata
from rushlight.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata
from rushlight.distributed._shard.sharding_spec._internals import check_tensor, validate_non_overlapping_shards_metadata
from rushlight.distributed.remote_device import _remote_device

__all__ = ["DevicePlacementSpec", "EnumerableShardingSpec", "PlacementSpec", "ShardingSpec", "custom_sharding_spec_op"]


class PlacementSpec(ABC):  # noqa: B024  # as it is in PyTorch: a mark
    """Where something is."""


@dataclass
class DevicePlacementSpec(PlacementSpec):
    """On one device of a process; a text becomes a `_remote_device`."""

    device: Any

    def __post_init__(self) -> None:
        if not isinstance(self.device, _remote_device):
            self.device = _remote_device(self.device)


class ShardingSpec(ABC):
    """How tensors are cut, and who has which part."""

    @abstractmethod
    def build_metadata(self, tensor_sizes: Any, tensor_properties: Any) -> Any:
        """The `ShardedTensorMetadata` of a tensor of a shape."""

    @abstractmethod
    def shard(self, tensor: Any, src_rank: int = 0, process_group: Any = None) -> Any:
        """The `ShardedTensor` of a tensor that `src_rank` has."""


# What programs registered for their own classes: class name -> function of tensors -> implementation.
_CUSTOM_SHARDING_SPEC_OPS: dict[str, dict[Any, Callable[..., Any]]] = {}


def custom_sharding_spec_op(sharding_spec_class: type, func: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let `implementation(types, args, kwargs, process_group)`, which is decorated, compute a function of tensors that
    are cut in this way.
    """
    table = _CUSTOM_SHARDING_SPEC_OPS.setdefault(sharding_spec_class.__qualname__, {})

    def register(implementation: Callable[..., Any]) -> Callable[..., Any]:
        table[func] = implementation
        return implementation

    return register


def custom_op(spec: ShardingSpec, func: Any) -> Callable[..., Any] | None:
    """The operator registered for a function."""
    return _CUSTOM_SHARDING_SPEC_OPS.get(type(spec).__qualname__, {}).get(func)


@dataclass
class EnumerableShardingSpec(ShardingSpec):
    """Boxes, one by one.  ValueError for none, for boxes of different numbers of dims, and for such that overlap."""

    shards: list[ShardMetadata]

    def __post_init__(self) -> None:
        if not self.shards:
            raise ValueError(f"Empty shard list provided: {self.shards}")
        ranks = [len(shard.shard_offsets) for shard in self.shards]
        for before, rank in itertools.pairwise(ranks):
            if before != rank:
                raise ValueError(f"Found inconsistent ranks for shards: {before} and {rank}")
        validate_non_overlapping_shards_metadata(self.shards)

    def build_metadata(self, tensor_sizes: Any, tensor_properties: Any) -> Any:
        """ValueError where the boxes do not make up a tensor of this shape."""
        check_tensor(self.shards, tensor_sizes)
        return ShardedTensorMetadata(self.shards, tensor_sizes, tensor_properties)

    def shard(self, tensor: Any, src_rank: int = 0, process_group: Any = None) -> Any:
        """NotImplementedError: each process makes its boxes itself (`init_from_local_shards`)."""
        raise NotImplementedError("EnumerableShardingSpec.shard not implemented yet!")
