"""Items of plans, from tensors of every kind: plain, spread over a mesh, and classes that say their own parts.

A class of tensors that is spread in its own way has three methods: `__create_write_items__(fqn, self)`,
`__create_chunk_list__()` and `__get_tensor_shard__(index)`.
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Size, Tensor
from rushlight.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from rushlight.distributed.checkpoint.planner import (
    LoadItemType,
    ReadItem,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from rushlight.distributed.checkpoint.resharding import overlaps
from rushlight.distributed.tensor import DTensor
from rushlight.distributed.tensor._utils import compute_local_shape_and_global_offset

__all__ = ["create_read_items_for_chunk_list", "find_state_dict_object", "is_elsewhere"]


def is_elsewhere(obj: Any) -> bool:
    """Whether a tensor lies on a mesh that this process is not in."""
    return isinstance(obj, DTensor) and obj.device_mesh.get_coordinate() is None


def _box_of(tensor: Tensor) -> ChunkStorageMetadata:
    """The box of a tensor that this process holds."""
    if not isinstance(tensor, DTensor):
        return ChunkStorageMetadata(Size([0] * tensor.ndim), Size(tensor.shape))
    if any(p.is_partial() for p in tensor.placements):
        raise ValueError(f"terms of a sum are no part of a tensor: redistribute {tensor.placements} before saving")
    shape, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return ChunkStorageMetadata(Size(offset), Size(shape))


def _create_chunk_list(tensor: Any) -> list[ChunkStorageMetadata]:
    """The boxes of a tensor that this process has.  ValueError for what is no tensor."""
    if hasattr(tensor, "__create_chunk_list__"):
        return tensor.__create_chunk_list__()
    if not isinstance(tensor, Tensor):
        raise ValueError(f"Unsupported Type, expecting one of [Tensor, DTensor], but got {type(tensor)}")
    return [_box_of(tensor)]


def _create_write_items(fqn: str, obj: Any) -> list[WriteItem]:
    """Items of an object that this process writes."""
    if hasattr(obj, "__create_write_items__"):
        return obj.__create_write_items__(fqn, obj)
    if not isinstance(obj, Tensor):
        return [WriteItem(MetadataIndex(fqn), WriteItemType.BYTE_IO)]
    if obj.layout is not rushlight.strided or obj.is_nested or obj.is_quantized:
        raise NotImplementedError(f"{fqn}: a checkpoint has strided tensors, this one is {obj.layout}; save its parts")
    box = _box_of(obj)
    spread = isinstance(obj, DTensor)
    data = TensorWriteData(box, TensorProperties.create_from_tensor(_local(obj)), Size(obj.shape))
    kind = WriteItemType.SHARD if spread else WriteItemType.TENSOR
    return [WriteItem(MetadataIndex(fqn, box.offsets), kind, tensor_data=data)]


def _local(tensor: Tensor) -> Tensor:
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _create_read_items(fqn: str, md: STORAGE_TYPES, obj: Any) -> list[ReadItem]:
    """Items that this process reads for an object.  ValueError for a tensor in the checkpoint that is none here."""
    if isinstance(md, BytesStorageMetadata):
        index, nothing = MetadataIndex(fqn), Size([0])
        return [ReadItem(LoadItemType.BYTE_IO, index, nothing, index, nothing, nothing)]
    try:
        boxes = _create_chunk_list(obj)
    except ValueError as error:
        raise ValueError(
            f"Invalid checkpoint metadata for {fqn}, expected BytesStorageMetadata but found {type(md)}"
        ) from error
    items = create_read_items_for_chunk_list(fqn, md, boxes)
    if sum(item.lengths.numel() for item in items) < sum(box.sizes.numel() for box in boxes):
        raise ValueError(
            f"the checkpoint has only a part of {fqn}: {[tuple(box.sizes) for box in md.chunks]} of {md.size}"
        )
    return items


def create_read_items_for_chunk_list(
    fqn: str, checkpoint_md: TensorStorageMetadata, local_chunks: list[ChunkStorageMetadata]
) -> list[ReadItem]:
    """The reads that fill the boxes `local_chunks` of a tensor that was saved in other boxes."""
    return [
        ReadItem(
            LoadItemType.TENSOR,
            MetadataIndex(fqn, local_chunks[here].offsets, here),
            Size(found.here),
            MetadataIndex(fqn, checkpoint_md.chunks[there].offsets, there),
            Size(found.there),
            Size(found.lengths),
        )
        for here, there, found in overlaps(local_chunks, checkpoint_md.chunks)
    ]


def find_state_dict_object(state_dict: dict[str, Any], index: MetadataIndex) -> Any:
    """The object of a key: or of a tensor the part that this process has.  ValueError for what is not here."""
    if index.fqn not in state_dict:
        raise ValueError(f"Could not find FQN: '{index.fqn}'")
    obj = state_dict[index.fqn]
    if hasattr(obj, "__get_tensor_shard__"):
        return obj.__get_tensor_shard__(index)
    if not isinstance(obj, Tensor):
        if index.offset is not None:
            raise ValueError(f"FQN: '{index.fqn}' is not a tensor, and has no part at {index.offset}")
        return obj
    if index.offset is not None and index.offset != _box_of(obj).offsets:
        raise ValueError(f"FQN: '{index.fqn}' has no part here that begins at {index.offset}")
    return _local(obj)


def _compare_save_plans(plan: SavePlan, other_plan: SavePlan) -> bool:
    """Whether two plans write the same things."""
    if plan.usable != other_plan.usable or len(plan.items) != len(other_plan.items):
        return False
    return all(
        a.type == b.type
        and a.index == b.index
        and a.index.index == b.index.index
        and (None if a.tensor_data is None else (a.tensor_data.size, a.tensor_data.chunk))
        == (None if b.tensor_data is None else (b.tensor_data.size, b.tensor_data.chunk))
        for a, b in zip(plan.items, other_plan.items, strict=True)
    )


def _init_state_dict(state_dict: Any) -> Any:
    """Tensors on the meta device become tensors in memory, in place; the elements come from the checkpoint."""
    if isinstance(state_dict, DTensor):
        if not state_dict.is_meta:
            return state_dict
        local = rushlight.empty_like(state_dict._local_tensor, device="cpu")
        mesh, placed = state_dict.device_mesh, state_dict.placements
        return DTensor.from_local(local, mesh, placed, shape=state_dict.size(), stride=state_dict.stride())
    if isinstance(state_dict, Tensor):
        return rushlight.empty_like(state_dict, device="cpu") if state_dict.is_meta else state_dict
    if isinstance(state_dict, dict):
        for key, value in state_dict.items():
            state_dict[key] = _init_state_dict(value)
    elif type(state_dict) in (list, tuple):
        return type(state_dict)(_init_state_dict(value) for value in state_dict)
    return state_dict
