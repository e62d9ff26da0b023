"""Optimizers of several processes: `ZeroRedundancyOptimizer`, `PostLocalSGDOptimizer`."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["DistributedOptimizer", "PostLocalSGDOptimizer", "ZeroRedundancyOptimizer", "as_functional_optim"]

_HOMES = {
    "DistributedOptimizer": "optimizer",
    "PostLocalSGDOptimizer": "post_localSGD_optimizer",
    "ZeroRedundancyOptimizer": "zero_redundancy_optimizer",
    "as_functional_optim": "functional",
    "functional_optim_map": "functional",
    "_apply_optimizer_in_backward": "apply_optimizer_in_backward",
    "_get_in_backward_optimizers": "apply_optimizer_in_backward",
}
__getattr__ = lazy_files(__name__, _HOMES, tuple(dict.fromkeys(_HOMES.values())))
