"""Declares every operator on import: one module a family."""

from __future__ import annotations

import os
from importlib import import_module

from rushlight import _ops

__all__ = ["FAMILIES", "MODULES"]

_ROOMS = ("elementwise", "linalg", "nn", "reductions", "shapes")
_NOT_FAMILIES = ("__init__", "bodies", "families", "forms", "index_arguments", "schema", "special_tables", "table")


def _modules(room: str) -> list[tuple[str, str]]:
    """(family, module) for each file of a room; `pkgutil` would find them too, but it loads `inspect`."""
    folders = [os.path.join(folder, room) for folder in _ops.__path__]
    files = [name for folder in folders for name in os.listdir(folder) if name.endswith(".py")]
    package = f"rushlight._ops.{room}" if room else "rushlight._ops"
    return [(name, f"{package}.{name}") for name in (file.removesuffix(".py") for file in files)]


MODULES = dict(sorted(each for room in ("", *_ROOMS) for each in _modules(room) if each[0] not in _NOT_FAMILIES))
FAMILIES = tuple(MODULES)
for _module in MODULES.values():
    import_module(_module)
