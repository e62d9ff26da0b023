"""GPUs as such: which there are, which is the current one, what is known of them, and waiting for them."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight import device as Device
from rushlight._interface.base import trace_marks
from rushlight.cuda.access import device_of, gpu, gpus, index_of, on_gpu, why_no_gpu

__all__ = [
    "can_device_access_peer", "current_blas_handle", "current_device", "current_solver_handle", "device", "device_count", "get_arch_list",
    "get_device_capability", "get_device_name", "get_device_properties", "get_gencode_flags", "get_sync_debug_mode", "init", "ipc_collect",
    "is_available", "is_bf16_supported", "is_initialized", "is_tf32_supported", "set_device", "set_sync_debug_mode", "synchronize",
    "unavailable_reason",
]  # fmt: skip

# The architectures that kernels are generated for.
_ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")


def is_available() -> bool:
    """Whether there is a GPU to use; `unavailable_reason` says why not."""
    return why_no_gpu() is None and int(gpus().device_count()) > 0


def unavailable_reason() -> str | None:
    """Why there is no GPU to use: no driver, one too old, no device, or `CUDA_VISIBLE_DEVICES` hides all; None where
    there is one.

    PyTorch has no such function.

    >>> torch.cuda.is_available() == (torch.cuda.unavailable_reason() is None)
    True
    """
    return why_no_gpu()


def device_count() -> int:
    """How many GPUs the process sees; 0 without a driver."""
    return 0 if why_no_gpu() is not None else int(gpus().device_count())


def is_initialized() -> bool:
    """Whether the process has a context on some GPU: it gets one when it first uses one."""
    return why_no_gpu() is None and bool(gpus().is_initialized)


@on_gpu
def init() -> None:
    """Make the context of the current GPU now; it is made by the first use otherwise."""
    gpus().initialize(device_of(None))


def _lazy_init() -> None:
    gpu("init").initialize(device_of(None))


def _lazy_call(callable: Any, **kwargs: Any) -> None:
    """Call a function as soon as there is a GPU to use: at once, or never."""
    if why_no_gpu() is None:
        callable()


def _is_compiled() -> bool:
    """Whether there are GPUs to compute on, as `torch.backends.cuda.is_built`."""
    return why_no_gpu() is None


def _is_in_bad_fork() -> bool:
    return why_no_gpu() is None and bool(gpus().is_forked)


@on_gpu
def current_device() -> int:
    """The number of the GPU that calls of this thread without a device mean."""
    return int(gpus().current_device())


@on_gpu
@trace_marks.changes_later_calls
def set_device(device: Any) -> None:
    """Let calls of this thread without a device mean this GPU; a negative number changes nothing."""
    index = index_of(device)
    if index >= 0:
        gpus().set_device(index)


class device:
    """A context in which a GPU is the current one; a negative number, as code for both kinds of machine has it, changes
    nothing.

    >>> with torch.cuda.device(-1):
    ...     pass
    """

    def __init__(self, device: Any) -> None:
        self.idx = device if isinstance(device, int) else -1 if device is None else _number(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        if self.idx >= 0:
            backend = gpu(f"device({self.idx})")
            self.prev_idx = backend.current_device()
            backend.set_device(self.idx)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        if self.prev_idx >= 0:
            gpus().set_device(self.prev_idx)


def _exchange_device(device: int) -> int:
    """Make a GPU the current one; the number of the one before, or -1 where `device` is negative and nothing changes."""
    if device < 0:
        return -1
    backend = gpu("_exchange_device")
    before = int(backend.current_device())
    backend.set_device(device)
    return before


_maybe_exchange_device = _exchange_device


class _DeviceGuard:
    """A context in which a GPU, given by its number, is the current one."""

    def __init__(self, index: int) -> None:
        self.idx, self.prev_idx = index, -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        _exchange_device(self.prev_idx)


class device_of_object(device):
    """A context in which the GPU of a tensor or a storage is the current one; nothing for those that are on none."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if getattr(obj, "is_cuda", False) else -1)


device_of_object.__name__ = device_of_object.__qualname__ = "device_of"


def _number(value: Any) -> int:
    found = Device(value) if isinstance(value, str) else value
    return -1 if found.type != "cuda" else found.index or 0


@on_gpu
def synchronize(device: Any = None) -> None:
    """Wait until all work of a GPU is done; a negative number means the current one."""
    gpus().synchronize(device_of(None if isinstance(device, int) and device < 0 else device))


class _Uuid:
    """The identity of a GPU: its text, and `bytes`."""

    def __init__(self, data: bytes) -> None:
        self.bytes = list(data)

    def __str__(self) -> str:
        text = bytes(self.bytes).hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Uuid) and self.bytes == other.bytes

    def __hash__(self) -> int:
        return hash(tuple(self.bytes))


class _CudaDeviceProperties:
    """Properties of a GPU."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.__dict__.update(known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CudaDeviceProperties) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(self.__dict__["uuid"])

    def __repr__(self) -> str:
        d = self.__dict__
        return (
            f"_CudaDeviceProperties(name='{d['name']}', major={d['major']}, minor={d['minor']}, total_memory={d['total_memory'] >> 20}MB, "
            f"multi_processor_count={d['multi_processor_count']}, uuid={d['uuid']}, pci_bus_id={d['pci_bus_id']}, pci_device_id={d['pci_device_id']}, "
            f"pci_domain_id={d['pci_domain_id']}, L2_cache_size={d['L2_cache_size'] >> 20}MB)"
        )


@on_gpu
def get_device_properties(device: Any = None) -> Any:
    """Facts about a GPU: `name`, `major` and `minor`, `total_memory`, `multi_processor_count`, `warp_size`,
    `shared_memory_per_block_optin`, `L2_cache_size`, ...
    """
    known = dict(gpus().properties(device_of(device, "device ")))
    known["uuid"] = _Uuid(known["uuid"])
    return _CudaDeviceProperties(known)


@on_gpu
def get_device_name(device: Any = None) -> str:
    """The name of a GPU."""
    return str(gpus().properties(device_of(device, "device "))["name"])


@on_gpu
def get_device_capability(device: Any = None) -> tuple[int, int]:
    """The compute capability of a GPU: (9, 0) for sm_90."""
    known = gpus().properties(device_of(device, "device "))
    return known["major"], known["minor"]


@on_gpu
def can_device_access_peer(device: Any, peer_device: Any) -> bool:
    """Whether a GPU reaches the memory of another without the host."""
    one, other = device_of(device, "device "), device_of(peer_device, "peer device ")
    return bool(gpus().can_access_peer(one, other))


def get_arch_list() -> list[str]:
    """The architectures that kernels are generated for; empty without a GPU, as PyTorch has it."""
    return list(_ARCHITECTURES) if is_available() else []


def get_gencode_flags() -> str:
    """The same in the words of NVIDIA's compiler."""
    return " ".join(f"-gencode compute={a.replace('sm_', 'compute_')},code={a}" for a in get_arch_list())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be computed with: from compute capability 8.0, with emulation on every GPU."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Whether matrix products may round to TF32: from compute capability 8.0."""
    return is_available() and get_device_capability()[0] >= 8


@on_gpu
def ipc_collect() -> None:
    """Close memory of other processes that nobody shows any longer."""
    gpus().collect_ipc()


_SYNC_MODES = {"default": 0, "warn": 1, "error": 2}


@on_gpu
@trace_marks.changes_later_calls
def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Say what calls do that wait for a GPU (`item()`, copies to pageable memory): "default" nothing, "warn", "error"."""
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _SYNC_MODES[debug_mode]
    if debug_mode not in _SYNC_MODES.values():
        raise RuntimeError("invalid value of debug_mode, expected 0,1,2")
    warnings.warn(
        "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing operations",
        stacklevel=2,
    )
    gpus().sync_debug_mode = debug_mode


@on_gpu
def get_sync_debug_mode() -> int:
    """0: calls that wait say nothing, 1: they warn, 2: they fail."""
    return int(gpus().sync_debug_mode)


@on_gpu
def current_blas_handle() -> int:
    """NotImplementedError: matrix products are not made by a library that has a handle for each thread."""
    raise NotImplementedError("rushlight has no handle of cuBLAS: torch.cuda.current_blas_handle gives one in PyTorch")


@on_gpu
def current_solver_handle() -> int:
    """NotImplementedError: there is no handle of cuSOLVER."""
    raise NotImplementedError(
        "rushlight has no handle of cuSOLVER: torch.cuda.current_solver_handle gives one in PyTorch"
    )
