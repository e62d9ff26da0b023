"""`torch.onnx.symbolic_helper` for packages that describe their operators to an exporter: the descriptions are
accepted, and nobody calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["parse_args"]


def parse_args(*arg_descriptors: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that says how a description reads its arguments; the function is returned."""
    return lambda function: function
