"""Optimizers whose state is spread over processes: their names, for `isinstance` and annotations."""

from __future__ import annotations

from rushlight._interface.base import absent_class
from rushlight.optim import Optimizer

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer"]

_WHY = "there are no process groups yet"
DistributedOptimizer = absent_class("torch.distributed.optim.DistributedOptimizer", _WHY)
PostLocalSGDOptimizer = absent_class("torch.distributed.optim.PostLocalSGDOptimizer", _WHY, (Optimizer,))
ZeroRedundancyOptimizer = absent_class("torch.distributed.optim.ZeroRedundancyOptimizer", _WHY, (Optimizer,))
