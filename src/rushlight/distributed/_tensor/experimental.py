"""The older name of `torch.distributed.tensor.experimental`."""

from __future__ import annotations

from rushlight.distributed.tensor.experimental import implicit_replication

__all__ = ["implicit_replication"]
