"""Saving and loading in PyTorch's file format, in both directions.

`save` and `load` are also found at the package root. Files are zip archives that real PyTorch reads, and files that real
PyTorch wrote are read here. Loading runs no code from a file unless `weights_only=False` is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PLACES = {
    "add_safe_globals": "allowed",
    "clear_safe_globals": "allowed",
    "get_safe_globals": "allowed",
    "get_unsafe_globals_in_checkpoint": "loading",
    "load": "loading",
    "safe_globals": "allowed",
    "save": "saving",
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"rushlight.serialization has no {name!r} yet")
    value = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value
