"""Tensors in boxes, each of which one process has."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

_HOMES = {
    **dict.fromkeys(("Shard", "ShardedTensor", "ShardedTensorBase", "_CUSTOM_SHARDED_OPS", "_SHARDED_OPS"), "api"),
    **dict.fromkeys(("ShardMetadata", "ShardedTensorMetadata", "TensorProperties"), "metadata"),
    **dict.fromkeys(
        (
            "custom_sharded_op_impl", "empty", "full", "init_from_local_shards", "ones", "pre_load_state_dict_hook", "rand", "randn",
            "state_dict_hook", "zeros",
        ),
        "making",
    ),
}  # fmt: skip

__all__ = [
    "Shard", "ShardMetadata", "ShardedTensor", "ShardedTensorBase", "ShardedTensorMetadata", "TensorProperties", "custom_sharded_op_impl",
    "empty", "full", "init_from_local_shards", "ones", "pre_load_state_dict_hook", "rand", "randn", "state_dict_hook", "zeros",
]  # fmt: skip

# How tensors are cut needs the metadata of this page, and its tensors how they are cut.
__getattr__ = lazy_files(__name__, _HOMES, ("api", "metadata", "shard", "making"))
