"""Mixed precision by its older names, as `torch.cpu.amp`."""

from __future__ import annotations

from typing import Any

from rushlight._types.dtype import BFLOAT16
from rushlight.amp import GradScaler as _GradScaler
from rushlight.amp import autocast as _autocast

__all__ = ["GradScaler", "autocast"]


class GradScaler(_GradScaler):
    """`torch.amp.GradScaler("cpu", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cpu", *args, **kwargs)


class autocast(_autocast):
    """`torch.amp.autocast("cpu", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = BFLOAT16, cache_enabled: bool = True) -> None:
        super().__init__("cpu", dtype, enabled, cache_enabled)
