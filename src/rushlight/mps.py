"""Questions about Apple's GPUs, as `torch.mps`: there is none, and every answer says so.

>>> torch.mps.is_available()
False
"""

from __future__ import annotations

from rushlight._interface.base import absent_function

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


_WHY = "it needs an Apple GPU, which rushlight does not compute on"
for _name in (
    "Event", "compile_shader", "current_allocated_memory", "driver_allocated_memory", "empty_cache", "get_rng_state", "recommended_max_memory",
    "seed", "set_per_process_memory_fraction", "set_rng_state", "synchronize",
):  # fmt: skip
    globals()[_name] = absent_function(f"torch.mps.{_name}", _WHY, RuntimeError)
