"""`triton.language.extra`: functions of vendors' libraries."""

from __future__ import annotations

from . import cuda, hip, libdevice

__all__ = ["cuda", "hip", "libdevice"]
