"""Each process's account of its parts, and the agreement of all."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import accumulate
from typing import Any

import rushlight
from rushlight import Size
from rushlight.distributed._shard.metadata import ShardMetadata
from rushlight.distributed._shard.owners import owner_of
from rushlight.distributed._shard.sharded_tensor.metadata import ShardedTensorMetadata, TensorProperties
from rushlight.distributed._shard.sharded_tensor.shard import Shard
from rushlight.distributed._shard.sharding_spec._internals import check_tensor, validate_non_overlapping_shards_metadata

__all__ = ["agreed", "check_parts", "metadata_of"]

_PROPERTIES = ("dtype", "requires_grad", "pin_memory")


def _of(tensor: Any, name: str) -> Any:
    return tensor.is_pinned() if name == "pin_memory" else getattr(tensor, name)


def metadata_of(shards: Sequence[Shard], size: Size, rank: int, group: Any) -> ShardedTensorMetadata:
    """The metadata that this process knows.  ValueError for parts that belong to others, or are not alike."""
    first = shards[0].tensor
    for shard in shards:
        x = shard.tensor
        owner, device = owner_of(group, shard.metadata.placement)
        if x.layout is not rushlight.strided:
            raise ValueError(f"Only torch.strided layout is currently supported, but found {x.layout} on rank:{rank}!")
        if not x.is_contiguous():
            raise ValueError("Only torch.contiguous_format memory_format is currently supported!")
        if owner != rank:
            raise ValueError(
                "Local shard metadata's rank does not match with the rank in its process group! Found current rank in the"
                f" process group: {rank}, local ShardMetadata placement's rank: {owner}"
            )
        if x.device != device:
            raise ValueError(
                "Local shard tensor device does not match with local Shard's placement! Found local shard tensor device:"
                f" {x.device}, local shard metadata placement device: {device}"
            )
        for name, (a, b) in {
            "size": (shard.metadata.shard_sizes, list(x.size())),
            **{name: (_of(x, name), _of(first, name)) for name in _PROPERTIES},
        }.items():
            if a != b:
                raise ValueError(
                    f"Local shards' tensor {name} property need to be the same on rank:{rank}! Found one local shard tensor"
                    f" {name}={a}, the other local shard tensor {name}={b}."
                )
    properties = TensorProperties(first.dtype, first.layout, first.requires_grad, pin_memory=first.is_pinned())
    return ShardedTensorMetadata([shard.metadata for shard in shards], size, properties)


def agreed(told: Sequence[ShardedTensorMetadata | None], by_rows: bool) -> ShardedTensorMetadata:
    """The metadata of all processes together; `by_rows`: parts lie one behind the other along dim 0, by rank.

    ValueError where they contradict each other, or the parts do not make up the whole.
    """
    speakers = [(rank, one) for rank, one in enumerate(told) if one is not None]
    if not speakers:
        raise ValueError("ShardedTensor have no local shards on all ranks!")
    first, found = speakers[0][0], deepcopy(speakers[0][1])
    for rank, one in speakers[1:]:
        pairs = {"global_size": (found.size, one.size)}
        pairs |= {
            name: (getattr(found.tensor_properties, name), getattr(one.tensor_properties, name)) for name in _PROPERTIES
        }
        for name, (a, b) in pairs.items():
            if a != b:
                raise ValueError(
                    f"ShardedTensor {name} property does not match from different ranks! Found {name}={a} on rank:{first},"
                    f" and {name}={b} on rank:{rank}."
                )
        found.shards_metadata.extend(deepcopy(one.shards_metadata))
    if by_rows:
        _lay_out(found)
    validate_non_overlapping_shards_metadata(found.shards_metadata)
    check_tensor(found.shards_metadata, found.size)
    return found


def _rank_of(part: ShardMetadata) -> int:
    rank = part.placement.rank() if part.placement is not None else None
    return -1 if rank is None else rank


def _lay_out(found: ShardedTensorMetadata) -> None:
    """Offsets and the whole shape of parts that lie one behind the other."""
    parts = sorted(found.shards_metadata, key=_rank_of)
    ends = [0, *accumulate(part.shard_sizes[0] for part in parts)]
    for part, start in zip(parts, ends, strict=False):
        part.shard_offsets = [start] + [0] * (len(part.shard_sizes) - 1)
    found.size = Size([ends[-1], *parts[0].shard_sizes[1:]])


def check_parts(shards: Sequence[Shard], data: ShardedTensorMetadata, rank: int, group: Any) -> None:
    """RuntimeError or ValueError where this process's parts are not what `data` says."""
    if not data.shards_metadata:
        raise ValueError("shards_metadata must not be empty!")
    own = [part for part in data.shards_metadata if owner_of(group, part.placement)[0] == rank]
    if len(own) != len(shards):
        raise RuntimeError(
            f"Number of local shards ({len(shards)}) does not match number of local shards metadata in"
            f" sharded_tensor_metadata ({len(own)}) on rank ({rank}) "
        )
    properties = data.tensor_properties
    if properties.layout is not rushlight.strided:
        raise ValueError("Only torch.strided layout is currently supported")
    for shard in shards:
        if not shard.tensor.is_contiguous():
            raise ValueError("Only torch.contiguous_format memory_format is currently supported")
        for name in ("layout", *_PROPERTIES):
            expected, actual = getattr(properties, name), _of(shard.tensor, name)
            if expected != actual:
                raise ValueError(
                    f"Local shards' tensor {name} property is incompatible with tensor property on rank {rank}:"
                    f" tensor property {name}={expected}, local shard tensor {name}={actual}."
                )
    validate_non_overlapping_shards_metadata(data.shards_metadata)
    check_tensor(data.shards_metadata, list(data.size))
