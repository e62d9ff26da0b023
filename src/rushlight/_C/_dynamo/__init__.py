"""Settings of the native half of compiled functions."""

from __future__ import annotations

from rushlight._C._dynamo import eval_frame

__all__ = ["eval_frame"]
