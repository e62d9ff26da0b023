"""`torch._library`: schemas of functions, as libraries beside PyTorch ask for them."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = ["infer_schema"]

__getattr__ = lazy_files(__name__, {}, __all__)
