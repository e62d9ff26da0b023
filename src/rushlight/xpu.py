"""Questions about Intel's GPUs, as `torch.xpu`: there is none, and every answer says so.

Questions are answered; calls that PyTorch ignores without such a device (seeds, emptying the cache) do nothing; the
rest raises.

    >>> torch.xpu.is_available()
    False
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import absent_function

__all__ = [
    "device_count",
    "empty_cache",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
]


def is_available() -> bool:
    """Always False."""
    return False


def is_initialized() -> bool:
    """Always False."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always False: there is no device that could."""
    return False


def device_count() -> int:
    """Always 0."""
    return 0


def manual_seed(seed: int) -> None:
    """Nothing; the seed must still be an integer."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Nothing; the seed must still be an integer."""
    int(seed)


def empty_cache() -> None:
    """Nothing: there is no cache of such memory."""


def memory_allocated(device: Any = None) -> int:
    """Always 0."""
    return 0


memory_reserved = max_memory_allocated = max_memory_reserved = memory_allocated
_WHY = "Torch not compiled with XPU enabled; it needs an Intel GPU, which rushlight does not compute on"
for _name in (
    "Event", "Stream", "current_device", "current_stream", "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state",
    "get_rng_state_all", "init", "initial_seed", "mem_get_info", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats",
    "seed", "seed_all", "set_device", "set_rng_state", "set_rng_state_all", "set_stream", "stream", "synchronize",
):  # fmt: skip
    globals()[_name] = absent_function(f"torch.xpu.{_name}", _WHY, AssertionError)
