"""Ways to spread a module over processes that leave it the class it is: their names."""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import lazy_files

__all__ = ["fsdp"]


__getattr__ = lazy_files(__name__, {}, __all__)
