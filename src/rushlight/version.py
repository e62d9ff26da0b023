"""Versions, as `torch.version`: rushlight's own, and None for every accelerator toolkit it is not built with."""

from __future__ import annotations

from rushlight import __version__ as _VERSION

__all__ = ["__version__", "cuda", "debug", "git_version", "hip", "rocm", "xpu"]

__version__ = str(_VERSION)
cuda: str | None = None
hip: str | None = None
rocm: str | None = None
xpu: str | None = None
git_version: str | None = None
debug = False
