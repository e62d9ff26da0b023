"""Questions about Meta's accelerators, as `torch.mtia`: there is none, and every answer says so.

>>> torch.mtia.is_available()
False
"""

from __future__ import annotations

from rushlight._interface.base import absent_function

__all__ = ["DeferredMtiaCallError", "device_count", "is_available", "is_initialized", "manual_seed", "manual_seed_all"]


class DeferredMtiaCallError(Exception):
    """Of calls that wait for the first use of a device: nothing raises it."""


def is_available() -> bool:
    """Always False."""
    return False


def is_initialized() -> bool:
    """Always False."""
    return False


def device_count() -> int:
    """Always 0."""
    return 0


def manual_seed(seed: int) -> None:
    """Nothing; the seed must still be an integer."""
    int(seed)


manual_seed_all = manual_seed


_WHY = "it needs one of Meta's accelerators, which rushlight does not compute on"
for _name in (
    "Event", "Stream", "current_device", "current_stream", "default_stream", "empty_cache", "get_device_capability", "get_device_properties",
    "get_rng_state", "init", "max_memory_allocated", "memory_allocated", "memory_stats", "reset_peak_memory_stats", "seed", "seed_all",
    "set_device", "set_rng_state", "set_stream", "stream", "synchronize",
):  # fmt: skip
    globals()[_name] = absent_function(f"torch.mtia.{_name}", _WHY, RuntimeError)
