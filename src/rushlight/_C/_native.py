"""Operators under the names of PyTorch's native modules."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import import_whole


def native_operator(name: str, shown: str) -> Any:
    """The operator that `torch.ops.aten` has under this name.  AttributeError, which names it as `shown`, where there is none."""
    found = None if name.startswith("__") else getattr(import_whole("rushlight.ops").aten, name, None)
    if found is None:
        raise AttributeError(f"rushlight has no '{shown}' yet", name=name)
    return found
