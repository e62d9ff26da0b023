"""What loaders are made of: collation, fetching, workers, and the memory and messages between workers and the main process."""

from __future__ import annotations

from importlib import import_module
from typing import Any

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds after which a waiting worker looks whether its parent lives, and that a dropped worker has to leave
_PAGES = ("collate", "fetch", "worker")

__all__ = ["MP_STATUS_CHECK_INTERVAL"]


def __getattr__(name: str) -> Any:
    if name in _PAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"rushlight.utils.data._utils has no {name!r} yet")
