"""`torch.fx._compatibility`: what a function promises to later versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["compatibility"]

_T = TypeVar("_T")


def compatibility(is_backward_compatible: bool) -> Callable[[_T], _T]:
    """A decorator that notes whether a function or class will stay as it is; here it changes nothing."""

    def mark(fn: _T) -> _T:
        return fn

    return mark
