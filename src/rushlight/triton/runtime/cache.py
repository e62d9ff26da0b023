"""`triton.runtime.cache`: files that are kept between processes, in TRITON_CACHE_DIR (~/.triton/cache)."""

from __future__ import annotations

import os
import uuid
from typing import Any

__all__ = ["CacheManager", "FileCacheManager", "get_cache_manager"]


class CacheManager:
    """Keeps files of a key."""

    def get_file(self, filename: str) -> str | None:
        raise NotImplementedError("a cache manager says where a file is")

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        raise NotImplementedError("a cache manager writes a file")


class FileCacheManager(CacheManager):
    """Files in a folder named by the key.  Each is written whole, under its name at the end."""

    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        self.key = key
        root = os.environ.get("TRITON_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".triton", "cache")
        self.cache_dir = os.path.join(root, key)

    def _make_path(self, filename: str) -> str:
        return os.path.join(self.cache_dir, filename)

    def has_file(self, filename: str) -> bool:
        return os.path.exists(self._make_path(filename))

    def get_file(self, filename: str) -> str | None:
        """The path of a file that is there."""
        return self._make_path(filename) if self.has_file(filename) else None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        """Write a file; its path."""
        os.makedirs(self.cache_dir, exist_ok=True)
        path = self._make_path(filename)
        partial = f"{path}.{uuid.uuid4().hex}"
        with open(partial, "wb") as file:
            file.write(data if isinstance(data, bytes) else str(data).encode())
        os.replace(partial, path)
        return path


def get_cache_manager(key: str) -> FileCacheManager:
    return FileCacheManager(key)
