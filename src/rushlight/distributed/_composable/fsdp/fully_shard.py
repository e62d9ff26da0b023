"""The module from which programs took `fully_shard` before it was in `torch.distributed.fsdp`."""

from __future__ import annotations

from rushlight.distributed.fsdp import FSDPModule, UnshardHandle, fully_shard, register_fsdp_forward_method

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]
