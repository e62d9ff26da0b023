"""NVIDIA's library of marks for profilers, where it is installed."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

__all__ = ["library"]

_NAMES = ("libnvToolsExt.so.1", "libnvtx3interop.so.1")  # of wheels for CUDA up to 12.8, and from 13 on
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "nvtxMarkA": (ctypes.c_char_p,),
    "nvtxRangePushA": (ctypes.c_char_p,),
    "nvtxRangePop": (),
    "nvtxRangeStartA": (ctypes.c_char_p,),
    "nvtxRangeEnd": (ctypes.c_uint64,),
}


def _places() -> Iterator[str]:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        for name in _NAMES:
            yield from sorted(str(path) for path in Path(root).glob(f"*/lib/{name}"))
    yield from _NAMES


@lru_cache(maxsize=1)
def library() -> Any:
    """The library, or None."""
    for place in _places():
        try:
            found: Any = ctypes.CDLL(place)
        except OSError:
            continue
        for name, arguments in _SIGNATURES.items():
            getattr(found, name).argtypes = arguments
        found.nvtxRangeStartA.restype = ctypes.c_uint64
        return found
    return None
