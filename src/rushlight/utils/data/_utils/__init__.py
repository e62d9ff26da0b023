"""What loaders are made of: collation, fetching, workers, and the memory and messages between workers and the main process."""

from __future__ import annotations

from typing import Any

from rushlight._base.importing import import_whole
from rushlight._base.naming import no_name

MP_STATUS_CHECK_INTERVAL = (
    5.0  # seconds after which a waiting worker looks whether its parent lives, and that a dropped worker has to leave
)
_PAGES = ("collate", "fetch", "worker")

__all__ = ["MP_STATUS_CHECK_INTERVAL"]


def __getattr__(name: str) -> Any:
    if name in _PAGES:
        return import_whole(f"{__name__}.{name}")
    raise no_name(__name__, name)
