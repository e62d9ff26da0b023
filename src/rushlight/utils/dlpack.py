"""Sharing memory with other libraries over DLPack."""

from __future__ import annotations

from rushlight._engine.dlpack import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
