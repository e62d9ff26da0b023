"""Shares of a GPU, as `torch.cuda.green_contexts`."""

from __future__ import annotations

from rushlight.cuda.runtime import GreenContext

__all__ = ["GreenContext"]

SUPPORTED = False
