"""PyTorch's native linear algebra: pickles of functions name them so."""

from __future__ import annotations

from typing import Any

from rushlight._interface.operators import SPACES

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    found = SPACES["linalg"].get(name.removeprefix("linalg_"))
    if found is None:
        raise AttributeError(f"rushlight has no '_C._linalg.{name}' yet", name=name)
    return found
