"""Mixed precision by its older names, as `torch.cuda.amp`."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import float16 as FLOAT16
from rushlight.amp import GradScaler as _GradScaler
from rushlight.amp import autocast as _autocast
from rushlight.amp import custom_bwd as _custom_bwd
from rushlight.amp import custom_fwd as _custom_fwd
from rushlight.amp.grad_scaler import OptState as OptState

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]


def _older(name: str, now: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use `torch.amp.{name}({now})` instead.",
        FutureWarning,
        stacklevel=3,
    )


def amp_definitely_not_available() -> bool:
    """Whether there is no GPU that mixed precision could run on."""
    return not rushlight.cuda.is_available()


class GradScaler(_GradScaler):
    """`torch.amp.GradScaler("cuda", ...)`, which it tells to use instead."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _older("GradScaler", "'cuda', args...")
        super().__init__("cuda", *args, **kwargs)


class autocast(_autocast):
    """`torch.amp.autocast("cuda", ...)`, which it tells to use instead."""

    def __init__(self, enabled: bool = True, dtype: Any = FLOAT16, cache_enabled: bool = True) -> None:
        _older("autocast", "'cuda', args...")
        super().__init__("cuda", dtype, enabled, cache_enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: Any = None) -> Callable[..., Any]:
    """`torch.amp.custom_fwd(..., device_type="cuda")`, which it tells to use instead."""
    _older("custom_fwd", "args..., device_type='cuda'")
    return _custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.amp.custom_bwd(..., device_type="cuda")`, which it tells to use instead."""
    _older("custom_bwd", "args..., device_type='cuda'")
    return _custom_bwd(bwd, device_type="cuda")
