"""`torch.distributed.fsdp`: parameters spread over processes (`fully_shard`).

`FullyShardedDataParallel`, the older class, is not built: it is a name for `isinstance` and annotations.
"""

from __future__ import annotations

from rushlight._interface.base import absent_class
from rushlight.distributed.fsdp.policies import (
    CPUOffloadPolicy,
    DataParallelMeshDims,
    MixedPrecisionPolicy,
    OffloadPolicy,
)
from rushlight.distributed.fsdp.sharding import (
    FSDPModule,
    UnshardHandle,
    fully_shard,
    register_fsdp_forward_method,
    share_comm_ctx,
)

__all__ = [
    "CPUOffloadPolicy",
    "DataParallelMeshDims",
    "FSDPModule",
    "FullyShardedDataParallel",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
    "share_comm_ctx",
]

FullyShardedDataParallel = absent_class(
    "torch.distributed.fsdp.FullyShardedDataParallel", "fully_shard does the same with other words"
)
