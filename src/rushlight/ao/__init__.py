"""`torch.ao`: of the tools that make quantized models, what models in floats hold."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import lazy_files

__all__ = ["quantization"]


__getattr__ = lazy_files(__name__, {}, __all__)
