"""Which collectives a program makes, by module, and where the parts of a `DTensor` are.

>>> import rushlight as torch
>>> import rushlight.distributed as dist
>>> from rushlight.distributed.tensor.debug import CommDebugMode
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
>>> with CommDebugMode() as comm:
...     dist.all_reduce(torch.ones(3))
>>> comm.get_total_counts(), comm.get_comm_counts()[torch.ops.c10d.allreduce_]
(1, 1)
>>> dist.destroy_process_group()
"""

from __future__ import annotations

from rushlight.distributed.tensor.debug._comm_mode import CommDebugMode
from rushlight.distributed.tensor.debug._visualize_sharding import visualize_sharding

__all__ = ["CommDebugMode", "visualize_sharding"]
