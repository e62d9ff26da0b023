"""What a program may ask about Apple's GPUs, as `torch.mps`: there is none, and every answer says so.

>>> torch.mps.is_available()
False
"""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["device_count", "is_available", "manual_seed"]


def is_available() -> bool:
    """Always False."""
    return False


def device_count() -> int:
    """Always 0."""
    return 0


def manual_seed(seed: int) -> None:
    """Nothing; the seed must still be an integer."""
    int(seed)


def _needs_device(name: str) -> None:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(f"torch.mps.{name} needs an Apple GPU, and rushlight computes on the CPU only")

    refuse.__name__, refuse.__doc__ = name, "RuntimeError: there is no such device."
    globals()[name] = refuse


for _name in (
    "Event",
    "compile_shader",
    "current_allocated_memory",
    "driver_allocated_memory",
    "empty_cache",
    "get_rng_state",
    "recommended_max_memory",
    "seed",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "synchronize",
):
    _needs_device(_name)
