"""Functions that stand for compiled code in lists of operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["inductor_compiled_code"]


def inductor_compiled_code(func: Callable[..., Any], inputs: Sequence[Any], *, name: str | None = None) -> Any:
    """`func(inputs)`, where `func` is compiled code that takes its inputs as a list.

    >>> inductor_compiled_code(sum, [1, 2])
    3
    """
    return func(inputs)
