"""`torch.distributed.pipelining`: a model in stages on several ranks, fed with micro-batches.

>>> import rushlight as torch
>>> import rushlight.distributed as dist
>>> from rushlight.distributed.pipelining import Schedule1F1B, SplitPoint, pipeline
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
>>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
>>> pipe = pipeline(net, (torch.ones(2, 4),), split_spec={"2": SplitPoint.BEGINNING})
>>> [sorted(pipe.get_stage_module(k).state_dict()) for k in range(pipe.num_stages)]
[['0.bias', '0.weight'], ['2.bias', '2.weight']]
>>> dist.destroy_process_group()
"""

from __future__ import annotations

from rushlight.distributed.pipelining._IR import Pipe, SplitPoint, pipe_split, pipeline
from rushlight.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from rushlight.distributed.pipelining.stage import PipelineStage, build_stage

__all__ = [
    "Pipe", "PipelineStage", "Schedule1F1B", "ScheduleDualPipeV", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS", "ScheduleZBVZeroBubble", "SplitPoint", "build_stage", "pipe_split", "pipeline",
]  # fmt: skip
