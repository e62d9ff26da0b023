"""Parts of loaders: collation, fetching, workers, and the memory and messages between workers and the main
process.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import lazy_files

MP_STATUS_CHECK_INTERVAL = (
    5.0  # seconds after which a waiting worker looks whether its parent lives, and that a dropped worker has to leave
)
HAS_NUMPY = True
python_exit_status = False  # whether the interpreter ends
_PAGES = ("collate", "fetch", "pin_memory", "signal_handling", "worker")

__all__ = ["HAS_NUMPY", "MP_STATUS_CHECK_INTERVAL", "python_exit_status"]


__getattr__ = lazy_files(__name__, {}, _PAGES)
