"""Ways to spread a module over processes that leave it the class it is: their names."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["fsdp"]


def __getattr__(name: str) -> Any:
    if name == "fsdp":
        return import_module(f"{__name__}.fsdp")
    raise AttributeError(f"rushlight.distributed._composable has no {name!r} yet")
