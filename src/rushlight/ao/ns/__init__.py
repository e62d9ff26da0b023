"""`torch.ao.ns`: how far quantized numbers are from floats."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["fx", "sensitivity"]

__getattr__ = lazy_files(__name__, {}, __all__)
