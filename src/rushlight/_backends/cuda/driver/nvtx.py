"""NVIDIA's library of marks for profilers, where it is installed."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["library"]

_NAME = "libnvToolsExt.so.1"


def _places() -> list[str]:
    spec = importlib.util.find_spec("nvidia")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    return [*(str(Path(root) / "nvtx" / "lib" / _NAME) for root in roots), _NAME]


@lru_cache(maxsize=1)
def library() -> Any:
    """The library, or None."""
    for place in _places():
        try:
            found: Any = ctypes.CDLL(place)
        except OSError:
            continue
        for name in ("nvtxMarkA", "nvtxRangePushA", "nvtxRangeStartA"):
            getattr(found, name).argtypes = (ctypes.c_char_p,)
        found.nvtxRangeStartA.restype = ctypes.c_uint64
        found.nvtxRangeEnd.argtypes = (ctypes.c_uint64,)
        return found
    return None
