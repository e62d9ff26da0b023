"""Mixed precision: regions in which operators choose their dtypes, and the scaling of losses that float16 needs."""

from __future__ import annotations

from rushlight.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from rushlight.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
