"""`torch._dynamo.eval_frame`, where programs look for the class of compiled modules and for decorators."""

from __future__ import annotations

from rushlight.compiler import OptimizedModule
from rushlight.compiler.compilation import disable, optimize, optimize_assert, run
from rushlight.compiler.explanation import explain
from rushlight.compiler.marks import innermost_function as innermost_fn

__all__ = ["OptimizedModule", "disable", "explain", "innermost_fn", "optimize", "optimize_assert", "run"]
