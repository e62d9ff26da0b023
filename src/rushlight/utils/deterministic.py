"""`fill_uninitialized_memory`: whether new memory is filled while deterministic algorithms are asked for."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rushlight._interface.operators import MODE

__all__ = ["fill_uninitialized_memory"]

fill_uninitialized_memory: bool


class _Page(ModuleType):
    """The module, whose setting takes True and False only."""

    @property
    def fill_uninitialized_memory(self) -> bool:
        """Whether `torch.empty` and its like are filled with NaN (the largest integer) under deterministic algorithms."""
        return MODE.fills

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode: Any) -> None:
        if not isinstance(mode, bool):
            raise RuntimeError(f"expected a bool, but got {type(mode).__name__}")
        MODE.fills = mode


sys.modules[__name__].__class__ = _Page
