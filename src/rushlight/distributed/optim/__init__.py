"""Optimizers of several processes: `ZeroRedundancyOptimizer`, `PostLocalSGDOptimizer`."""

from __future__ import annotations

from rushlight._interface.base import absent_class, lazy_files

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

DistributedOptimizer = absent_class("torch.distributed.optim.DistributedOptimizer", "it needs torch.distributed.rpc")
_HOMES = {"PostLocalSGDOptimizer": "post_localSGD_optimizer", "ZeroRedundancyOptimizer": "zero_redundancy_optimizer"}
__getattr__ = lazy_files(__name__, _HOMES, tuple(_HOMES.values()))
