"""PyTorch's native special functions: pickles of functions name them so."""

from __future__ import annotations

from typing import Any

from rushlight._C._native import native_operator
from rushlight._interface.operators import SPACES

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    found = SPACES["special"].get(name.removeprefix("special_"))
    return native_operator(name, f"_C._special.{name}") if found is None else found
