"""All ranks at once: one trace of a job, and who waits for whom.

>>> import rushlight as torch
>>> import rushlight.distributed as dist
>>> from rushlight.distributed.watching import load_balance
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
>>> with load_balance() as balance:
...     dist.all_reduce(torch.ones(3))
>>> [(row.rank, row.collectives, row.nbytes) for row in balance.rows]
[(0, 1, 12)]
>>> dist.destroy_process_group()
"""

from __future__ import annotations

from rushlight.distributed.watching.balance import LoadBalance, RankRow, load_balance
from rushlight.distributed.watching.clocks import clock_offsets
from rushlight.distributed.watching.traces import merge_trace_files, merge_traces

__all__ = ["LoadBalance", "RankRow", "clock_offsets", "load_balance", "merge_trace_files", "merge_traces"]
