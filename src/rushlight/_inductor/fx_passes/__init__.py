"""`torch._inductor.fx_passes`: passes over graphs of aten operators that users add to."""

from __future__ import annotations

__all__ = ["freezing_patterns"]
