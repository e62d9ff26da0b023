"""The older name of `torch.distributed.tensor.experimental`."""

from __future__ import annotations

from rushlight.distributed.tensor.experimental import (
    context_parallel,
    implicit_replication,
    local_map,
    register_sharding,
)

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]
