"""`torch.distributed.algorithms`: hooks of `DistributedDataParallel`, and averages of models."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["ddp_comm_hooks", "model_averaging"]

__getattr__ = lazy_files(__name__, {}, ("ddp_comm_hooks", "model_averaging"))
