"""`torch.distributed.tensor.parallel`: modules whose products are divided among processes."""

from __future__ import annotations

from rushlight.distributed.tensor.parallel.api import loss_parallel, parallelize_module
from rushlight.distributed.tensor.parallel.experts import ExpertParallel
from rushlight.distributed.tensor.parallel.style import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

__all__ = [
    "ColwiseParallel",
    "ExpertParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]
