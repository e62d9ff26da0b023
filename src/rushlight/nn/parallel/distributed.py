"""One module in several processes."""

from __future__ import annotations

from typing import Any

from rushlight.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """A module whose gradients are averaged over processes.  NotImplementedError: it needs `torch.distributed`, which
    rushlight does not have yet.
    """

    def __init__(self, module: Module, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "rushlight has no torch.distributed yet, which nn.parallel.DistributedDataParallel needs to average gradients over processes; in a single "
            "process, use the module itself or nn.DataParallel"
        )
