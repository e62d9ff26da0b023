"""Tensors that are cut into parts, as older checkpoints and programs have them; newer ones have `DTensor`."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["_shard_tensor", "load_with_process_group", "shard_module", "shard_parameter"]

__getattr__ = lazy_files(
    __name__,
    dict.fromkeys(__all__, "api"),
    ("api", "metadata", "sharded_tensor", "sharder", "sharding_plan", "sharding_spec"),
)
