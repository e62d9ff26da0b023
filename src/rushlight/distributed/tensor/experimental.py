"""`torch.distributed.tensor.experimental`: there are no tensors spread over processes for these to work on."""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__ = ["implicit_replication"]

implicit_replication = absent_function(
    "torch.distributed.tensor.experimental.implicit_replication", "there are no process groups yet"
)
