"""The memory of GPUs, as `torch.cuda.memory`: a caching allocator, its statistics, its pools.

Without a GPU questions about what is held are answered (nothing is), and everything else raises RuntimeError.
"""

from __future__ import annotations

import ctypes
import json
import pickle
import sys
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.cuda.access import OnGpu, device_of, gpu, gpus, index_of, on_gpu, why_no_gpu
from rushlight.cuda.summary import summary

__all__ = [
    "CUDAPluggableAllocator", "MemPool", "caching_allocator_alloc", "caching_allocator_delete", "caching_allocator_disabled", "caching_allocator_enable",
    "change_current_allocator", "empty_cache", "get_allocator_backend", "get_per_process_memory_fraction", "host_memory_stats",
    "host_memory_stats_as_nested_dict", "list_gpu_processes", "max_memory_allocated", "max_memory_cached", "max_memory_reserved", "mem_get_info",
    "memory_allocated", "memory_cached", "memory_reserved", "memory_snapshot", "memory_stats", "memory_stats_as_nested_dict", "memory_summary",
    "reset_accumulated_host_memory_stats", "reset_accumulated_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached",
    "reset_peak_host_memory_stats", "reset_peak_memory_stats", "set_per_process_memory_fraction", "use_mem_pool",
]  # fmt: skip


def _allocator(device: Any = None) -> Any:
    return gpus().memory.allocators[device_of(device).index]


def _unused() -> bool:
    """Whether no GPU was used: nothing can be held then, and asking makes no context."""
    return why_no_gpu() is not None


# ***** what is held *****


def empty_cache() -> None:
    """Give memory that is kept for reuse back to the driver, so that other programs can have it."""
    if not _unused():
        gpus().empty_cache(device_of(None))


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """The statistics of a GPU's memory as nested dicts; see `memory_stats`."""
    return {} if _unused() else _allocator(device).settled().nested()


def _flat(found: OrderedDict[str, Any], prefix: str, value: Any) -> None:
    if isinstance(value, dict):
        for name, inner in value.items():
            _flat(found, f"{prefix}.{name}" if prefix else name, inner)
    else:
        found[prefix] = value


def _sorted(nested: dict[str, Any]) -> OrderedDict[str, Any]:
    found: OrderedDict[str, Any] = OrderedDict()
    _flat(found, "", nested)
    return OrderedDict(sorted(found.items()))


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """The statistics of a GPU's memory by PyTorch's names.

    `"allocated_bytes.all.current"`: for each of `allocated_bytes` (of tensors), `reserved_bytes` (from the driver),
    `active_bytes`, `inactive_split_bytes`, `requested_bytes`, `allocation`, `segment`, `active`, `inactive_split`, by pool
    (`all`, `small_pool`, `large_pool`) the `current` number, its `peak`, and what was `allocated` and `freed` in all.
    Empty without a GPU.
    """
    return _sorted(memory_stats_as_nested_dict(device))


def memory_allocated(device: Any = None) -> int:
    """Bytes that tensors hold on a GPU."""
    return 0 if _unused() else int(_allocator(device).settled().current("allocated_bytes"))


def max_memory_allocated(device: Any = None) -> int:
    """The most bytes that tensors have held at a time."""
    return 0 if _unused() else int(_allocator(device).settled().peak("allocated_bytes"))


def memory_reserved(device: Any = None) -> int:
    """Bytes that the driver gave: held by tensors, or kept for reuse."""
    return 0 if _unused() else int(_allocator(device).settled().current("reserved_bytes"))


def max_memory_reserved(device: Any = None) -> int:
    """The most of these bytes at a time."""
    return 0 if _unused() else int(_allocator(device).settled().peak("reserved_bytes"))


def _renamed(name: str, now: str) -> None:
    warnings.warn(f"`torch.cuda.{name}` has been renamed to `torch.cuda.{now}`", FutureWarning, stacklevel=3)


def memory_cached(device: Any = None) -> int:
    """`memory_reserved`, by its older name."""
    _renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Any = None) -> int:
    """`max_memory_reserved`, by its older name."""
    _renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


@on_gpu
def reset_peak_memory_stats(device: Any = None) -> None:
    """Start measuring the most bytes anew."""
    _allocator(device).settled().reset_peaks()


@on_gpu
def reset_accumulated_memory_stats(device: Any = None) -> None:
    """Start counting what was allocated and freed anew."""
    _allocator(device).settled().reset_accumulated()


def _reset(name: str, device: Any) -> None:
    warnings.warn(
        f"torch.cuda.{name} now calls torch.cuda.reset_peak_memory_stats, which resets /all/ peak memory stats.",
        FutureWarning,
        stacklevel=3,
    )
    reset_peak_memory_stats(device)


def reset_max_memory_allocated(device: Any = None) -> None:
    """`reset_peak_memory_stats`, by an older name."""
    _reset("reset_max_memory_allocated", device)


def reset_max_memory_cached(device: Any = None) -> None:
    """`reset_peak_memory_stats`, by an older name."""
    _reset("reset_max_memory_cached", device)


@on_gpu
def mem_get_info(device: Any = None) -> tuple[int, int]:
    """(free, total) bytes of a GPU, as the driver sees them."""
    free, total = gpus().memory_info(device_of(device))
    return int(free), int(total)


@on_gpu
def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """The statistics as a table to be read."""
    place = device_of(device)
    return summary(place.index or 0, memory_stats_as_nested_dict(place), abbreviated)


def list_gpu_processes(device: Any = None) -> str:
    """The processes that use a GPU and how much memory they hold, as text."""
    if _unused():
        return "no processes are running: there is no CUDA GPU"
    place = device_of(device)
    found = gpus().management(place).processes()
    lines = [f"process {process:>10d} uses {used / (1 << 20):>12.3f} MB GPU memory" for process, used in found]
    return "\n".join([f"GPU:{place.index}", *(lines or ["no processes are running"])])


# ***** memory of the host *****


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The statistics of pinned memory as nested dicts."""
    return {} if _unused() else gpus().memory.pinned.statistics.nested()


def host_memory_stats() -> OrderedDict[str, Any]:
    """The statistics of pinned memory, by names as those of `memory_stats`."""
    return _sorted(host_memory_stats_as_nested_dict())


@on_gpu
def reset_peak_host_memory_stats() -> None:
    """Start measuring the most bytes of pinned memory anew."""
    gpus().memory.pinned.statistics.reset_peaks()


@on_gpu
def reset_accumulated_host_memory_stats() -> None:
    """Start counting pinned memory that was allocated and freed anew."""
    gpus().memory.pinned.statistics.reset_accumulated()


# ***** settings *****


@on_gpu
@trace_marks.changes_later_calls
def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
    """Let the process hold at most this share of a GPU's memory; beyond it OutOfMemoryError is raised."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _allocator(device).set_fraction(fraction)


@on_gpu
def get_per_process_memory_fraction(device: Any = None) -> float:
    """The share that the process may hold."""
    found = _allocator(device)
    total = gpus().properties(device_of(device))["total_memory"]
    return 1.0 if found.limit is None else float(found.limit / total)


@on_gpu
def get_allocator_backend() -> str:
    """The name of the allocator: "native", or "pluggable" for a program's own."""
    return "native" if gpus().memory.allocators[0].plugged is None else "pluggable"


@trace_marks.changes_later_calls
def _set_allocator_settings(env: str) -> None:
    """Replace the allocator's settings; the text is that of `PYTORCH_CUDA_ALLOC_CONF`."""
    gpus().memory.set(env)


def caching_allocator_enable(value: bool = True) -> None:
    """Whether freed memory is kept for reuse."""
    if not _unused():
        for allocator in gpus().memory.allocators:
            allocator.caches = value


@contextmanager
def caching_allocator_disabled() -> Iterator[None]:
    """A context in which freed memory goes back to the driver at once."""
    before = not _unused() and gpus().memory.allocators[0].caches
    caching_allocator_enable(False)
    try:
        yield
    finally:
        caching_allocator_enable(before)


class _CUDAAllocator:
    """An allocator of GPUs' memory: `allocator()` is what `MemPool` and `change_current_allocator` take."""

    def __init__(self, allocator: Any) -> None:
        self._allocator = allocator

    def allocator(self) -> Any:
        """The C functions; None for rushlight's own."""
        return self._allocator


def _cuda_customAllocator(alloc_fn: int, free_fn: int) -> Any:
    """An allocator from the addresses of two C functions."""
    return gpu("CUDAPluggableAllocator").memory.pluggable(alloc_fn, free_fn)


class CUDAPluggableAllocator(_CUDAAllocator):
    """An allocator from a shared library: two C functions by their names.

    `void *alloc_fn_name(ssize_t size, int device, cudaStream_t stream)` and `void free_fn_name(void *address, size_t size, int
    device, cudaStream_t stream)`.
    """

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        gpu("CUDAPluggableAllocator")
        self._library = ctypes.CDLL(path_to_so_file)
        found = [ctypes.cast(getattr(self._library, n), ctypes.c_void_p).value for n in (alloc_fn_name, free_fn_name)]
        super().__init__(_cuda_customAllocator(found[0] or 0, found[1] or 0))


@on_gpu
def change_current_allocator(allocator: Any) -> None:
    """Let an allocator serve all requests from now on: nothing is kept for reuse then, and there are no pools.

    RuntimeError where memory was asked for already.
    """
    gpus().memory.plug(allocator.allocator())


@on_gpu
def _get_current_allocator() -> Any:
    return _CUDAAllocator(gpus().memory.allocators[0].plugged)


# ***** memory for other libraries *****

_LENT: dict[int, Any] = {}


@on_gpu
def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
    """The address of memory for another library, for work on a stream (a `Stream` or its handle), by default the current
    one.
    """
    if size < 0:
        raise ValueError(f"Invalid memory size: {size}")
    backend, place = gpus(), device_of(device)
    if isinstance(stream, int):
        stream = backend.external_stream(stream, place)
    handle = backend.current_stream(place) if stream is None else getattr(stream, "_handle", stream)
    chunk = backend.memory.allocators[place.index].allocate(size, handle)
    _LENT[chunk.address] = chunk
    return int(chunk.address)


@on_gpu
def caching_allocator_delete(mem_ptr: int) -> None:
    """Give memory back that `caching_allocator_alloc` lent."""
    chunk = _LENT.pop(mem_ptr, None)
    if chunk is None:
        raise RuntimeError(f"invalid device pointer: {mem_ptr:#x}")
    gpus().memory.allocators[gpus().memory.device_at(mem_ptr)].free(chunk)


_IDENTITIES = count(1)


class MemPool(OnGpu):
    """A pool of memory apart from the usual one; `with use_mem_pool(pool):` serves requests from it.

    Its memory can go back to the driver when the pool and all graphs that use it are gone.  It comes from `allocator`
    (`CUDAPluggableAllocator(...).allocator()`), by default from the driver.  With `use_on_oom` other requests are served by it
    where the device has no memory left; with `no_split` a segment serves one tensor at a time.
    """

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        self._id, self._allocator = (0, next(_IDENTITIES)), allocator
        self._held = [a.hold(self._id) for a in gpus().memory.allocators]
        for pools in self._held:
            pools.source, pools.helps, pools.splits = allocator, use_on_oom, not no_split

    @property
    def id(self) -> tuple[int, int]:
        """The identifier that graphs take as their pool."""
        return self._id

    @property
    def allocator(self) -> Any:
        """Who gives the memory; None: the driver."""
        return self._allocator

    def use_count(self) -> int:
        """How many hold the pool: this object, and graphs."""
        return int(self._held[index_of(None)].users)

    def snapshot(self) -> list[dict[str, Any]]:
        """The segments of the pool; see `memory_snapshot`."""
        return memory_snapshot(self._id)

    def __del__(self) -> None:
        if hasattr(self, "_held"):
            for allocator in gpus().memory.allocators:
                allocator.leave(self._id)


@contextmanager
def use_mem_pool(pool: MemPool, device: Any = None) -> Iterator[None]:
    """A context in which this thread's requests on a GPU are served from a pool."""
    import threading

    allocator, thread = _allocator(device), threading.get_ident()
    held = allocator.hold(pool.id)
    allocator.route(held, lambda stream: threading.get_ident() == thread, capturing=False)
    try:
        yield
    finally:
        allocator.end_route(held, capturing=False)
        allocator.leave(pool.id)


# ***** pictures *****


@on_gpu
def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Contents of the allocators of all GPUs: a dict for each segment, with its blocks."""
    return [
        _segment(allocator, segment, chunks)
        for allocator in gpus().memory.allocators
        for segment, chunks in allocator.snapshot()
        if mempool_id is None or segment.pool.owner.identity == tuple(mempool_id)
    ]


def _segment(allocator: Any, segment: Any, chunks: list[Any]) -> dict[str, Any]:
    lent = [c for c in chunks if c.lent]
    active = [c for c in chunks if c.lent or c.waits]
    return {
        "device": allocator.index, "address": chunks[0].address, "total_size": sum(c.nbytes for c in chunks), "allocated_size": sum(c.nbytes for c in lent),
        "active_size": sum(c.nbytes for c in active), "requested_size": sum(c.requested for c in lent), "stream": segment.stream,
        "segment_type": "small" if segment.pool.small else "large", "segment_pool_id": segment.pool.owner.identity, "is_expandable": segment.is_expandable,
        "frames": allocator.history.frames(allocator.history.stack_of_segment(segment.address)), "blocks": [_block(allocator, c) for c in chunks],
    }  # fmt: skip


def _block(allocator: Any, chunk: Any) -> dict[str, Any]:
    state = "active_allocated" if chunk.lent else "active_awaiting_free" if chunk.waits else "inactive"
    stack = allocator.history.stack_of(chunk.address) if chunk.lent else None
    return {
        "address": chunk.address,
        "size": chunk.nbytes,
        "requested_size": chunk.requested if chunk.lent else 0,
        "state": state,
        "frames": allocator.history.frames(stack or (() if chunk.user is None else (chunk.user,))),
    }


_metadata = [""]


@trace_marks.changes_later_calls
def _set_memory_metadata(metadata: str) -> None:
    """A text that events of memory have from now on."""
    _metadata[0] = metadata


def _get_memory_metadata() -> str:
    return _metadata[0]


def _record_memory_history(
    enabled: str | None = "all", context: str | None = "all", stacks: str = "all", max_entries: int = sys.maxsize, device: Any = None,
    clear_history: bool = False, compile_context: bool = False, global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:  # fmt: skip
    """Record stacks of what is held ("state"), or all requests beside it ("all"), for `_snapshot`; None stops.

    `context` says which stacks: of what is held ("state"), of events that lend memory ("alloc"), of all.  Stacks are of
    Python.  RuntimeError for words that mean nothing.
    """
    if isinstance(enabled, bool):  # of older programs
        enabled = "all" if enabled else None
    memory = gpu("memory._record_memory_history").memory
    memory.record_history(
        (enabled, context, stacks, max_entries, skip_actions or (), _get_memory_metadata), clear_history
    )


@on_gpu
def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """The stack that asked for the memory at an address; None where none was recorded."""
    for allocator in gpus().memory.allocators:
        stack = allocator.settled() and allocator.history.stack_of(data_ptr)
        if stack:
            return list(allocator.history.frames(stack))
    return None


@on_gpu
def _snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """Segments, recorded events and settings, in the form that PyTorch's viewer of memory reads."""
    segments = memory_snapshot()
    traces = [allocator.history.entries() for allocator in gpus().memory.allocators]
    for allocator in gpus().memory.allocators:
        allocator.history.snapshot()
    settings = gpus().memory.allocators[0].settings
    return {
        "segments": segments,
        "device_traces": traces,
        "allocator_settings": settings.shown(),
        "external_annotations": [],
    }


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Write `_snapshot()` to a file, as JSON where its name says so."""
    found = _snapshot()
    if filename.endswith(".json"):
        with open(filename, "w") as file:
            json.dump(found, file)
        return
    with open(filename, "wb") as data:
        pickle.dump(found, data)
