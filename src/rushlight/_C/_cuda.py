"""PyTorch's native functions of GPUs (`torch._C._cuda_...`), which programs and generated code call directly.

Each is a public function of `torch.cuda`, most of them with the number of a device as the argument.  Streams travel as
three numbers: `(stream_id, device_index, device_type)`.
"""

from __future__ import annotations

from typing import Any

from rushlight._interface.base import import_whole

__all__: list[str] = []

_CUDA = 1  # PyTorch's number of the device type

# By the name behind "_cuda_": the page of `torch.cuda` (its own: "") and the function there.
_PUBLIC = {
    "canDeviceAccessPeer": ("", "can_device_access_peer"), "cudaCachingAllocator_raw_alloc": ("memory", "caching_allocator_alloc"),
    "cudaCachingAllocator_raw_delete": ("memory", "caching_allocator_delete"), "emptyCache": ("memory", "empty_cache"),
    "exchangeDevice": ("", "_exchange_device"), "getAllocatorBackend": ("memory", "get_allocator_backend"),
    "getCurrentBlasHandle": ("", "current_blas_handle"), "getCurrentSolverHandle": ("", "current_solver_handle"), "getDevice": ("", "current_device"),
    "getDeviceCount": ("", "device_count"), "get_sync_debug_mode": ("", "get_sync_debug_mode"), "init": ("", "init"), "ipc_collect": ("", "ipc_collect"),
    "isCurrentStreamCapturing": ("", "is_current_stream_capturing"), "isInBadFork": ("", "_is_in_bad_fork"),
    "maybeExchangeDevice": ("", "_maybe_exchange_device"), "memoryStats": ("memory", "memory_stats_as_nested_dict"),
    "hostMemoryStats": ("memory", "host_memory_stats_as_nested_dict"), "resetAccumulatedHostMemoryStats": ("memory", "reset_accumulated_host_memory_stats"),
    "resetAccumulatedMemoryStats": ("memory", "reset_accumulated_memory_stats"), "resetPeakHostMemoryStats": ("memory", "reset_peak_host_memory_stats"),
    "resetPeakMemoryStats": ("memory", "reset_peak_memory_stats"), "setDevice": ("", "set_device"),
    "setMemoryFraction": ("memory", "set_per_process_memory_fraction"), "set_sync_debug_mode": ("", "set_sync_debug_mode"), "sleep": ("", "_sleep"),
    "synchronize": ("", "synchronize"),
}  # fmt: skip


def _numbers(stream: Any) -> tuple[int, int, int]:
    return stream.stream_id, stream.device_index, _CUDA


def _getCurrentStream(device: int) -> tuple[int, int, int]:
    """The stream that this thread's calls on a device go to."""
    return _numbers(import_whole("rushlight.cuda").current_stream(device))


def _getDefaultStream(device: int) -> tuple[int, int, int]:
    """The default stream of a device."""
    return _numbers(import_whole("rushlight.cuda").default_stream(device))


def _getStreamFromExternal(data_ptr: int, device: int) -> tuple[int, int, int]:
    """The stream of another library, by the driver's handle."""
    return _numbers(import_whole("rushlight.cuda").get_stream_from_external(data_ptr, device))


def _getCurrentRawStream(device: int) -> int:
    """The driver's handle of the current stream of a device, as kernels are launched on it."""
    return int(import_whole("rushlight.cuda").current_stream(device).cuda_stream)


def _setStream(stream_id: int, device_index: int, device_type: int) -> None:
    """Make a stream the current one of its device, and this device the current one."""
    if device_type != _CUDA:
        raise RuntimeError(
            f"_cuda_setStream sets streams of GPUs (device_type {_CUDA}), not those of device_type {device_type}"
        )
    cuda = import_whole("rushlight.cuda")
    cuda.set_stream(cuda.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


_OWN = {
    "getCurrentRawStream": _getCurrentRawStream, "getCurrentStream": _getCurrentStream, "getDefaultStream": _getDefaultStream,
    "getStreamFromExternal": _getStreamFromExternal, "setStream": _setStream,
}  # fmt: skip


def find(name: str) -> Any:
    """The function behind `torch._C._cuda_<name>`; None where there is none."""
    if name in _OWN:
        return _OWN[name]
    if name not in _PUBLIC:
        return None
    page, function = _PUBLIC[name]
    return getattr(import_whole(f"rushlight.cuda.{page}" if page else "rushlight.cuda"), function)
