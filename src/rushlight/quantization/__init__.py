"""`torch.quantization`: the older place of `torch.ao.quantization`."""

from __future__ import annotations

from typing import Any

from rushlight.ao import quantization as _page

__all__ = list(_page.__all__)


def __getattr__(name: str) -> Any:
    return getattr(_page, name)
