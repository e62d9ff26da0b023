"""Declares every operator on import: one module a family."""

from __future__ import annotations

import os
from importlib import import_module

from rushlight import _ops

__all__ = ["FAMILIES"]

_NOT_FAMILIES = ("bodies", "families", "forms", "index_arguments", "schema", "special_tables", "table")

# `pkgutil` would find the modules too, but it loads `inspect`.
_FILES = sorted(name for folder in _ops.__path__ for name in os.listdir(folder) if name.endswith(".py"))
_MODULES = [name.removesuffix(".py") for name in _FILES]
FAMILIES = tuple(
    name for name in _MODULES if name not in (*_NOT_FAMILIES, "__init__") and not name.startswith("samples")
)
for _family in FAMILIES:
    import_module(f"rushlight._ops.{_family}")
