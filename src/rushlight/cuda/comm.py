"""Copies between GPUs, as `torch.cuda.comm`: each needs one."""

from __future__ import annotations

from rushlight.cuda.refusals import needs_gpu

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]

broadcast = needs_gpu("comm.broadcast")
broadcast_coalesced = needs_gpu("comm.broadcast_coalesced")
gather = needs_gpu("comm.gather")
reduce_add = needs_gpu("comm.reduce_add")
reduce_add_coalesced = needs_gpu("comm.reduce_add_coalesced")
scatter = needs_gpu("comm.scatter")
