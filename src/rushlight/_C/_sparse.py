"""PyTorch's native sparse functions: pickles of functions name them so."""

from __future__ import annotations

from typing import Any

from rushlight import sparse

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    found = getattr(sparse, name.removeprefix("_sparse_").removeprefix("sparse_"), None)
    if found is None or name.startswith("__"):
        raise AttributeError(f"rushlight has no '_C._sparse.{name}' yet", name=name)
    return found
