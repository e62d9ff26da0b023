"""Writing what was recorded to a file: a reader never sees half of it."""

from __future__ import annotations

import gzip
import os
from typing import Any

__all__ = ["write_text"]


def write_text(path: str, text: str, compressed: bool) -> None:
    """Write a text under a temporary name beside `path` and rename it.

    OSError where the folder does not exist or may not be written to; what was at `path` stays then.
    """
    unfinished = f"{path}.{os.getpid()}.tmp"
    opened: Any = (
        gzip.open(unfinished, "wt", encoding="utf-8") if compressed else open(unfinished, "w", encoding="utf-8")
    )
    try:
        with opened as file:
            file.write(text)
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.remove(unfinished)
        raise
