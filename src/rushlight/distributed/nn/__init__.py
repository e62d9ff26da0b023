"""Collective operations with gradients, as `torch.distributed.nn`: they need a process group, so calling one raises
NotImplementedError.
"""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]

_WHY = "there are no process groups yet"
all_gather, all_reduce = (
    absent_function("torch.distributed.nn.all_gather", _WHY),
    absent_function("torch.distributed.nn.all_reduce", _WHY),
)
all_to_all, broadcast = (
    absent_function("torch.distributed.nn.all_to_all", _WHY),
    absent_function("torch.distributed.nn.broadcast", _WHY),
)
gather, reduce = (
    absent_function("torch.distributed.nn.gather", _WHY),
    absent_function("torch.distributed.nn.reduce", _WHY),
)
reduce_scatter, scatter = (
    absent_function("torch.distributed.nn.reduce_scatter", _WHY),
    absent_function("torch.distributed.nn.scatter", _WHY),
)
