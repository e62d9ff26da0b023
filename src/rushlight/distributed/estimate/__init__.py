"""The planner: how long a training step of a layout would take, and how much memory a rank would need.

`model_work` runs a model on tensors without memory and counts its work; `measure` takes the speeds of the machine on which
a group runs; `estimate` replays the step's computing and collectives; `better_layouts` tries all layouts of so many ranks.
What they give is predicted.

>>> import rushlight as torch
>>> from rushlight.distributed.estimate import Layout, Link, Machine, estimate, model_work
>>> model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(8)])
>>> work = model_work(model, torch.empty(64, 1024))
>>> machine = Machine(flops=1e13, bandwidth=1e12, near=Link(1e-5, 1e-10))
>>> one = estimate(work, Layout(dp=4), machine)
>>> one.memory.parameters == 4 * work.elements, 0 < one.seconds < 1
(True, True)
"""

from __future__ import annotations

from rushlight.distributed.estimate.layouts import Layout
from rushlight.distributed.estimate.machine import Link, Machine, measure
from rushlight.distributed.estimate.planning import Estimate, Memory, better_layouts, estimate, table
from rushlight.distributed.estimate.work import Layer, ModelWork, Work, model_work

__all__ = [
    "Estimate", "Layer", "Layout", "Link", "Machine", "Memory", "ModelWork", "Work", "better_layouts", "estimate", "measure", "model_work",
    "table",
]  # fmt: skip
