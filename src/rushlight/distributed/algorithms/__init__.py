"""`torch.distributed.algorithms`: hooks of `DistributedDataParallel`, and averages of models."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["Join", "JoinHook", "Joinable", "ddp_comm_hooks", "join", "model_averaging"]

__getattr__ = lazy_files(
    __name__,
    dict.fromkeys(("Join", "JoinHook", "Joinable"), "join"),
    ("_checkpoint", "ddp_comm_hooks", "join", "model_averaging"),
)
