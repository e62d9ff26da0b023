"""Importing this declares every operator: one module a family."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from rushlight import _ops

__all__ = ["FAMILIES"]

_NOT_FAMILIES = ("bodies", "families", "schema", "table")

FAMILIES = tuple(
    module.name for module in iter_modules(_ops.__path__) if module.name not in _NOT_FAMILIES and not module.name.startswith("samples")
)
for _family in FAMILIES:
    import_module(f"rushlight._ops.{_family}")
