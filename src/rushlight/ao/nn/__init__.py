"""`torch.ao.nn`: modules that are fused, trained for quantization, or quantized."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["intrinsic", "qat", "quantizable", "quantized"]

__getattr__ = lazy_files(__name__, {}, __all__)
