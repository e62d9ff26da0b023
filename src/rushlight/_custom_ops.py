"""The older page of `torch.library`: `torch._custom_ops`."""

from __future__ import annotations

from rushlight.library import get_ctx

__all__ = ["get_ctx"]
