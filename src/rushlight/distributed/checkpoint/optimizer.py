"""The state of an optimizer for parameters that are in parts, from a checkpoint."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.distributed import distributed_c10d as dist
from rushlight.distributed.checkpoint._nested_dict import unflatten_state_dict
from rushlight.distributed.checkpoint.default_planner import paths_of
from rushlight.distributed.checkpoint.metadata import BytesStorageMetadata
from rushlight.distributed.checkpoint.planner import LoadPlanner
from rushlight.distributed.checkpoint.state_dict_loader import _load_state_dict
from rushlight.distributed.checkpoint.storage import StorageReader
from rushlight.distributed.tensor import DTensor, distribute_tensor

__all__ = ["load_sharded_optimizer_state_dict"]


def load_sharded_optimizer_state_dict(
    model_state_dict: dict[str, Any],
    optimizer_key: str,
    storage_reader: StorageReader,
    planner: LoadPlanner | None = None,
) -> dict[str, Any]:
    """Load what a checkpoint has below `optimizer_key`: states that are named as parameters lie as these do.

    States of another shape than their parameter, and those of parameters that no process divides, are whole.
    """
    metadata = storage_reader.read_metadata()
    paths = paths_of(metadata)
    wanted: dict[str, Any] = {}
    for name, held in metadata.state_dict_metadata.items():
        path = paths.get(name, ())
        if not path or path[0] != optimizer_key:
            continue
        if isinstance(held, BytesStorageMetadata):
            wanted[name] = "<bytes_io>"
            continue
        value: Any = rushlight.zeros(held.size, dtype=held.properties.dtype)
        like = model_state_dict.get(str(path[2])) if len(path) > 2 else None
        if isinstance(like, DTensor) and like.shape == held.size:
            value = distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)
        wanted[name] = value
    _load_state_dict(wanted, storage_reader, None, 0, not dist.is_initialized(), planner)
    return unflatten_state_dict(wanted, paths)
