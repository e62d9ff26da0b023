"""`torch._export`: what checks, stores and catalogues exported programs."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["db", "error", "serde", "utils", "verifier"]

__getattr__ = lazy_files("rushlight._export", {}, __all__)
