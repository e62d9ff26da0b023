"""Memory for tensors: the `Storage` type, the pool's settings and its statistics.

    >>> from rushlight._backends.cpu.runtime.storage import alloc
    >>> s = alloc(1000)
    >>> s.nbytes, s.version, s.owner, s.ptr % 64
    (1000, 0, None, 0)

`alloc`, `alloc_zeroed`, `from_owner`, `resize` and `Storage` are the runtime's own native objects; importing them from
here loads the runtime, so modules that are imported early should ask for them late.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

from rushlight._backends.cpu.runtime import pool_native
from rushlight._backends.cpu.runtime import runtime as _runtime
from rushlight._backends.cpu.runtime.limits import MEMORY_LIMIT_MB, POOL_CAP_MB

__all__ = [
    "MEMORY_LIMIT_MB",
    "POOL_CAP_MB",
    "empty_cache",
    "memory_stats",
    "reset_peak",
    "set_memory_limit",
    "set_pool_cap",
]

_NATIVE = ("Storage", "alloc", "alloc_zeroed", "from_owner", "resize")


def __getattr__(name: str) -> Any:
    if name in _NATIVE:
        value = getattr(_runtime.runtime(), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def set_pool_cap(nbytes: int) -> None:
    """Keep at most `nbytes` of freed memory for reuse; what is kept beyond that is given back now."""
    state = _runtime.runtime().state
    state[pool_native.CAP] = max(0, nbytes)
    if state[pool_native.CACHED] > nbytes:
        empty_cache()


def set_memory_limit(nbytes: int) -> None:
    """Refuse allocations that would make the pool hold more than `nbytes` in all; 0 lifts the limit."""
    _runtime.runtime().state[pool_native.LIMIT] = max(0, nbytes)


def empty_cache() -> None:
    """Give all freed memory that the pool keeps back to the system, and what the C library keeps of small blocks."""
    _runtime.runtime().empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:  # only the GNU library has it
        trim(ctypes.c_size_t(0))


def memory_stats() -> dict[str, int]:
    """Statistics of the pool, in bytes and counts.

    `allocated`, `cached` (freed, kept for reuse), `peak_allocated`, `peak_held` (allocated and cached together), `live`
    (blocks in use), `cached_blocks`, `allocations` (since the start), `system_calls`, `trims`, `cap`, `limit`.
    """
    s, p = _runtime.runtime().state, pool_native
    return {
        "allocated": s[p.ALLOCATED],
        "cached": s[p.CACHED],
        "peak_allocated": s[p.PEAK],
        "peak_held": s[p.PEAK_HELD],
        "live": s[p.LIVE],
        "cached_blocks": s[p.CACHED_BLOCKS],
        "allocations": s[p.TOTAL],
        "system_calls": s[p.SYSTEM_CALLS],
        "trims": s[p.TRIMS],
        "cap": s[p.CAP],
        "limit": s[p.LIMIT],
    }


def reset_peak() -> None:
    """Start measuring the peaks anew."""
    s, p = _runtime.runtime().state, pool_native
    s[p.PEAK], s[p.PEAK_HELD] = s[p.ALLOCATED], s[p.ALLOCATED] + s[p.CACHED]
