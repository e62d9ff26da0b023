"""Ways to spread a module over processes that leave it the class it is: their names."""

from __future__ import annotations

from typing import Any

from rushlight._base.importing import import_whole
from rushlight._base.naming import no_name

__all__ = ["fsdp"]


def __getattr__(name: str) -> Any:
    if name == "fsdp":
        return import_whole(f"{__name__}.fsdp")
    raise no_name(__name__, name)
