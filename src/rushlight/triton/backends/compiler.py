"""`triton.backends.compiler`: the target of a kernel."""

from __future__ import annotations

from ..compiler.compiler import GPUTarget

__all__ = ["GPUTarget"]
