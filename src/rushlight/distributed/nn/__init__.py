"""Collectives with gradients, as `torch.distributed.nn`."""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "functional",
    "gather",
    "reduce",
    "reduce_scatter",
    "scatter",
]

_FUNCTIONS = [name for name in __all__ if name != "functional"]
__getattr__ = lazy_files(__name__, dict.fromkeys(_FUNCTIONS, "functional"), ("functional",))
