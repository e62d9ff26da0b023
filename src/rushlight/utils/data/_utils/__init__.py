"""What loaders are made of: collation, fetching, workers, and the memory and messages between workers and the main
process.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import lazy_files

MP_STATUS_CHECK_INTERVAL = (
    5.0  # seconds after which a waiting worker looks whether its parent lives, and that a dropped worker has to leave
)
_PAGES = ("collate", "fetch", "worker")

__all__ = ["MP_STATUS_CHECK_INTERVAL"]


__getattr__ = lazy_files(__name__, {}, _PAGES)
