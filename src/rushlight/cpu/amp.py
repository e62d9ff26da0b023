"""Mixed precision by its older names, as `torch.cpu.amp`."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight import bfloat16 as BFLOAT16
from rushlight.amp import GradScaler as _GradScaler
from rushlight.amp import autocast as _autocast

__all__ = ["GradScaler", "autocast"]


def _older(name: str) -> None:
    warnings.warn(
        f"`torch.cpu.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}('cpu', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class GradScaler(_GradScaler):
    """`torch.amp.GradScaler("cpu", ...)`, which it tells to use instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _older("GradScaler")
        super().__init__("cpu", *args, **kwargs)


class autocast(_autocast):
    """`torch.amp.autocast("cpu", ...)`, which it tells to use instead."""

    def __init__(self, enabled: bool = True, dtype: Any = BFLOAT16, cache_enabled: bool = True) -> None:
        _older("autocast")
        super().__init__("cpu", dtype, enabled, cache_enabled)
