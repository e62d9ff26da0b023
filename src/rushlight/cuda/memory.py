"""The memory of GPUs, as `torch.cuda.memory`: none is held, and what would change that refuses."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rushlight.cuda.refusals import gpu_class, needs_gpu

_REFUSED = (
    "caching_allocator_alloc", "caching_allocator_delete", "change_current_allocator", "get_allocator_backend", "get_per_process_memory_fraction",
    "mem_get_info", "memory_snapshot", "memory_summary", "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_peak_host_memory_stats", "reset_peak_memory_stats",
    "set_per_process_memory_fraction", "use_mem_pool",
)  # fmt: skip
_CLASSES = ("CUDAPluggableAllocator", "MemPool")

__all__ = [  # noqa: PLE0604
    "caching_allocator_disabled", "caching_allocator_enable", "empty_cache", "host_memory_stats", "host_memory_stats_as_nested_dict", "list_gpu_processes",
    "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "memory_allocated", "memory_cached", "memory_reserved", "memory_stats",
    "memory_stats_as_nested_dict", *_REFUSED, *_CLASSES,
]  # fmt: skip


def empty_cache() -> None:
    """Nothing: there is no cache of GPU memory."""


def memory_allocated(device: Any = None) -> int:
    """Always 0."""
    return 0


def max_memory_allocated(device: Any = None) -> int:
    """Always 0."""
    return 0


def memory_reserved(device: Any = None) -> int:
    """Always 0."""
    return 0


def max_memory_reserved(device: Any = None) -> int:
    """Always 0."""
    return 0


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """Always empty."""
    return OrderedDict()


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Always empty."""
    return {}


def host_memory_stats() -> OrderedDict[str, Any]:
    """Always empty: nothing is pinned for a GPU."""
    return OrderedDict()


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Always empty."""
    return {}


def caching_allocator_enable(value: bool = True) -> None:
    """Nothing."""


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A context that changes nothing."""
    yield


def list_gpu_processes(device: Any = None) -> str:
    """A line that says that there is no GPU."""
    return "no processes are running: there is no CUDA GPU"


for _name in _REFUSED:
    globals()[_name] = needs_gpu(_name)
for _name in _CLASSES:
    globals()[_name] = gpu_class(_name)
del _name
