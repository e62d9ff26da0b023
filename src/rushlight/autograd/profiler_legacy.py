"""The profiler of long ago, under its name: `torch.autograd.profiler.profile` with a warning."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight.profiler import session

__all__ = ["profile"]


class profile(session.profile):
    """`torch.autograd.profiler.profile`; FutureWarning when it is made: use `torch.profiler`."""

    def __init__(self, enabled: bool = True, **options: Any) -> None:
        warnings.warn(
            "`torch.autograd.profiler_legacy.profile` is deprecated. Use `torch.profiler` instead.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(enabled, **options)
