"""`torch._inductor.decomposition`: decompositions that a compiler of graphs may use."""

from __future__ import annotations

from typing import Any

from rushlight._decomp import register_decomposition as _register

__all__ = ["decompositions", "register_decomposition"]

decompositions: dict[Any, Any] = {}


def register_decomposition(ops: Any) -> Any:
    """Decorator: a function computes an operator (or several) by others; kept in `decompositions`."""
    return _register(ops, decompositions)
