"""`torch.ao`: quantized and pruned models: the tools that make them, and the modules that they are made of."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["nn", "ns", "operators", "pruning", "quantization"]

__getattr__ = lazy_files(__name__, {}, __all__)
