"""Tools around models and tensors: `checkpoint`, `data` (datasets and loaders), `dlpack` and `hooks` (removable hook handles)."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["checkpoint", "data", "dlpack", "hooks", "serialization"]


def __getattr__(name: str) -> Any:
    if name in __all__ or name == "_pytree":
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"rushlight.utils has no {name!r} yet")
