"""`torch.ao.nn.qat`: float modules whose weight is rounded as its integers will be, for training."""

from __future__ import annotations

from rushlight._interface.base import lazy_files
from rushlight.ao.nn.qat.modules import Conv1d, Conv2d, Conv3d, Embedding, EmbeddingBag, Linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]

__getattr__ = lazy_files(__name__, {}, ["dynamic", "modules"])
