"""`torch.cuda._utils`: what packages read of PyTorch's helpers."""

from __future__ import annotations

from typing import Any

from rushlight.cuda.access import index_of
from rushlight.cuda.device import device as _device

__all__: list[str] = []


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of the GPU that an argument means: that of None or "cuda" only where it is `optional`, -1 for a CPU
    where that is allowed.
    """
    return int(device.idx) if isinstance(device, _device) else index_of(device, optional, allow_cpu)
