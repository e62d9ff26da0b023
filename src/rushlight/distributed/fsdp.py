"""Parameters spread over processes (`fully_shard`): names for `isinstance` and annotations."""

from __future__ import annotations

from rushlight._interface.base import absent_class, absent_function

__all__ = [
    "CPUOffloadPolicy", "FSDPModule", "FullyShardedDataParallel", "MixedPrecisionPolicy", "OffloadPolicy", "UnshardHandle", "fully_shard",
    "register_fsdp_forward_method",
]  # fmt: skip

_WHY = "there are no process groups yet"
CPUOffloadPolicy, FSDPModule, FullyShardedDataParallel, MixedPrecisionPolicy, OffloadPolicy, UnshardHandle = (
    absent_class(f"torch.distributed.fsdp.{name}", _WHY)
    for name in (
        "CPUOffloadPolicy",
        "FSDPModule",
        "FullyShardedDataParallel",
        "MixedPrecisionPolicy",
        "OffloadPolicy",
        "UnshardHandle",
    )
)
fully_shard = absent_function("torch.distributed.fsdp.fully_shard", _WHY)
register_fsdp_forward_method = absent_function("torch.distributed.fsdp.register_fsdp_forward_method", _WHY)
