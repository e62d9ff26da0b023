"""What a program may ask about Intel's GPUs, as `torch.xpu`: there is none, and every answer says so.

Questions are answered; calls that PyTorch ignores without such a device (seeds, emptying the cache) do nothing; the
rest raises.

    >>> torch.xpu.is_available()
    False
"""

from __future__ import annotations

from typing import Any, NoReturn

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


def _nothing_held(name: str) -> None:
    def held(device: Any = None) -> int:
        return 0

    held.__name__, held.__doc__ = name, "Always 0."
    globals()[name] = held


def _needs_device(name: str) -> None:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise AssertionError(
            f"Torch not compiled with XPU enabled: torch.xpu.{name} needs an Intel GPU, and rushlight computes on the CPU only"
        )

    refuse.__name__, refuse.__doc__ = name, "AssertionError: there is no such device."
    globals()[name] = refuse


for _name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
    _nothing_held(_name)
for _name in (
    "Event", "Stream", "current_device", "current_stream", "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state",
    "get_rng_state_all", "init", "initial_seed", "mem_get_info", "memory_stats", "reset_accumulated_memory_stats", "reset_peak_memory_stats", "seed",
    "seed_all", "set_device", "set_rng_state", "set_rng_state_all", "set_stream", "stream", "synchronize",
):  # fmt: skip
    _needs_device(_name)
