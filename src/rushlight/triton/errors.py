"""`triton.errors`: the base of this package's errors."""

from __future__ import annotations

from .runtime.errors import TritonError

__all__ = ["TritonError"]
