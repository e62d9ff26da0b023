"""`triton.backends.driver`: the driver in use."""

from __future__ import annotations

from ..runtime.driver import Driver

__all__ = ["Driver"]
