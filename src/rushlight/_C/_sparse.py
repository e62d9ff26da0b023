"""PyTorch's native sparse functions: pickles of functions name them so."""

from __future__ import annotations

from typing import Any

from rushlight import sparse
from rushlight._C._native import native_operator

__all__: list[str] = []


def __getattr__(name: str) -> Any:
    found = (
        None if name.startswith("__") else getattr(sparse, name.removeprefix("_sparse_").removeprefix("sparse_"), None)
    )
    return native_operator(name, f"_C._sparse.{name}") if found is None else found
