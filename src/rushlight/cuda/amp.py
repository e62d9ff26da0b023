"""Mixed precision by its older names, as `torch.cuda.amp`."""

from __future__ import annotations

from typing import Any

from rushlight.amp import GradScaler as _GradScaler
from rushlight.amp import autocast as _autocast

__all__ = ["GradScaler", "autocast"]


class GradScaler(_GradScaler):
    """`torch.amp.GradScaler("cuda", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("cuda", *args, **kwargs)


class autocast(_autocast):
    """`torch.amp.autocast("cuda", ...)`."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        super().__init__("cuda", dtype, enabled, cache_enabled)
