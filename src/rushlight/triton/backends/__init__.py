"""`triton.backends`: what kernels are compiled for."""

from __future__ import annotations

from . import compiler, driver

__all__ = ["compiler", "driver"]
