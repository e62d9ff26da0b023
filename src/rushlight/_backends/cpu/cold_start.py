"""What nearly every program needs is sent to workers at once where nothing was ever compiled: it is ready when it is
asked for.
"""

from __future__ import annotations

from rushlight._backends.cpu.gemm.blas import product_ahead
from rushlight._native.objectcode import begins_empty

__all__ = ["compile_ahead"]


def compile_ahead() -> None:
    """Let workers begin with the routines of products."""
    if begins_empty():
        product_ahead("f32")
