"""`torch._inductor.lowering`: how Inductor computes operators in its own loops.

Compiled programs here take an operator's definition over other operators, so functions that are registered are kept
and never called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._interface.base import absent_function

__all__ = ["lowerings", "register_lowering", "to_dtype"]

lowerings: dict[Any, Callable[..., Any]] = {}


def register_lowering(aten_fn: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that puts a function into `lowerings` for an operator, or for each of a list."""

    def registered(function: Callable[..., Any]) -> Callable[..., Any]:
        for each in aten_fn if isinstance(aten_fn, (list, tuple)) else [aten_fn]:
            lowerings[each] = function
        return function

    return registered


to_dtype = absent_function("torch._inductor.lowering.to_dtype", "there are no loops of Inductor here")
