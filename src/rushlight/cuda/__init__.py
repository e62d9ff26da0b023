"""What a program may ask about CUDA, as `torch.cuda`: there is none, and every answer says so.

Questions (`is_available`, `device_count`) are answered; calls that PyTorch itself ignores on a machine without a GPU
(seeds, emptying the cache) do nothing; whatever needs a GPU raises RuntimeError.

    >>> torch.cuda.is_available()
    False
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight._interface.base import MissingDeviceError, import_whole
from rushlight._surface.dispatch import AcceleratorError as AcceleratorError
from rushlight._surface.dispatch import OutOfMemoryError as OutOfMemoryError
from rushlight.cuda import graphs, memory, random, streams
from rushlight.cuda.refusals import gpu_class, needs_gpu

_REFUSED = (
    "can_device_access_peer", "clock_rate", "cudart", "current_blas_handle", "current_device", "current_stream", "default_stream", "device_memory_used",
    "get_device_capability", "get_device_name", "get_device_properties", "get_stream_from_external", "get_sync_debug_mode", "init", "ipc_collect",
    "memory_usage", "power_draw", "set_device", "set_stream", "set_sync_debug_mode", "stream", "synchronize", "temperature", "utilization",
)  # fmt: skip
# For `isinstance` and annotations there are classes, of which nobody has an object.
_CLASSES = (
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor", "IntTensor", "LongTensor", "ShortTensor",
    "StreamContext",
)  # fmt: skip
_PAGES = ("amp", "comm", "nccl", "nvtx", "profiler", "sparse")

__all__ = [  # noqa: PLE0604
    "default_generators", "device", "device_count", "get_arch_list", "is_available", "is_bf16_supported", "is_initialized", "is_tf32_supported",
    *graphs.__all__, *memory.__all__, *random.__all__, *streams.__all__, *_REFUSED, *_CLASSES,
]  # fmt: skip

for _page in (graphs, memory, random, streams):
    globals().update((_name, getattr(_page, _name)) for _name in _page.__all__)
for _name in _REFUSED:
    globals()[_name] = needs_gpu(_name)
for _name in _CLASSES:
    globals()[_name] = gpu_class(_name)
del _name, _page


def is_available() -> bool:
    """Always False."""
    return False


def is_initialized() -> bool:
    """Always False."""
    return False


def device_count() -> int:
    """Always 0."""
    return 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always False: there is no GPU that could."""
    return False


def is_tf32_supported() -> bool:
    """Always False."""
    return False


class CudaError(RuntimeError):
    """A call of CUDA's runtime failed; never raised here."""


class DeferredCudaCallError(Exception):
    """A call that waited for the GPU failed; never raised here."""


def _number(device: Any) -> int:
    """The number of a GPU; -1 for None and other devices."""
    found = None if device is None else rushlight.device(device) if isinstance(device, str) else device
    return -1 if found is None or found.type != "cuda" else found.index or 0


class device:
    """A context in which a GPU is the current one; a negative number, as code for both kinds of machine has it, changes
    nothing.

    >>> with torch.cuda.device(-1):
    ...     pass
    """

    def __init__(self, device: Any) -> None:
        self.idx = device if isinstance(device, int) else _number(device)

    def __enter__(self) -> None:
        if self.idx >= 0:
            raise MissingDeviceError(
                f"torch.cuda.device({self.idx}) needs a CUDA GPU, and rushlight computes on the CPU only"
            )

    def __exit__(self, *exc: object) -> None:
        pass


def get_arch_list() -> list[str]:
    """The kinds of GPU that kernels were compiled for: none."""
    return []


default_generators: tuple[Any, ...] = ()


def __getattr__(name: str) -> Any:
    if name in _PAGES:
        return import_whole(f"rushlight.cuda.{name}")
    raise AttributeError(f"rushlight.cuda has no {name!r}: rushlight computes on the CPU only")
