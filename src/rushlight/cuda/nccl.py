"""Collectives between GPUs, as `torch.cuda.nccl`: each needs one."""

from __future__ import annotations

from rushlight.cuda.refusals import needs_gpu

__all__ = ["all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter"]

all_gather = needs_gpu("nccl.all_gather")
all_reduce = needs_gpu("nccl.all_reduce")
broadcast = needs_gpu("nccl.broadcast")
reduce = needs_gpu("nccl.reduce")
reduce_scatter = needs_gpu("nccl.reduce_scatter")
