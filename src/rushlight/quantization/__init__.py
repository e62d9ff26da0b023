"""`torch.quantization`: the older place of `torch.ao.quantization`."""

from __future__ import annotations

from rushlight.ao import quantization as _page
from rushlight.ao.quantization import *

__all__ = list(_page.__all__)
