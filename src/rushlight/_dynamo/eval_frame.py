"""`torch._dynamo.eval_frame`, where programs look for the class of compiled modules."""

from __future__ import annotations

from rushlight.compiler import OptimizedModule

__all__ = ["OptimizedModule"]
