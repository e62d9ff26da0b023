"""What a program may ask about CUDA, as `torch.cuda`: there is none, and every answer says so.

Questions (`is_available`, `device_count`) are answered; calls that PyTorch itself ignores on a machine without a GPU (seeds,
emptying the cache) do nothing; whatever needs a GPU raises RuntimeError.

    >>> torch.cuda.is_available()
    False
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NoReturn

from rushlight._base.errors import MissingDeviceError
from rushlight._types.device import Device

__all__ = [
    "current_device", "device_count", "empty_cache", "get_device_capability", "get_device_name", "get_device_properties",
    "is_available", "is_bf16_supported", "is_initialized", "manual_seed", "manual_seed_all", "mem_get_info", "set_device",
    "synchronize",
]  # fmt: skip


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


def manual_seed(seed: int) -> None:
    """Nothing, as in PyTorch without a GPU; the seed must still be an integer."""
    int(seed)


def manual_seed_all(seed: int) -> None:
    """Nothing, as in PyTorch without a GPU; the seed must still be an integer."""
    int(seed)


def get_rng_state_all() -> list[Any]:
    """The state of every GPU's generator: none."""
    return []


def set_rng_state_all(new_states: Any) -> None:
    """Put the states of all GPUs' generators back; RuntimeError for more states than the none there are."""
    if len(list(new_states)):
        raise RuntimeError("torch.cuda.set_rng_state_all needs a CUDA GPU, and rushlight computes on the CPU only")


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


def _needs_gpu(name: str) -> Any:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise MissingDeviceError(f"torch.cuda.{name} needs a CUDA GPU, and rushlight computes on the CPU only")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "RuntimeError: there is no GPU."
    return refuse


for _name in (
    "current_device", "current_stream", "default_stream", "get_device_capability", "get_device_name", "get_device_properties",
    "get_rng_state", "init", "ipc_collect", "mem_get_info", "memory_stats", "memory_summary",
    "reset_peak_memory_stats", "set_device", "set_rng_state", "stream", "synchronize",
):  # fmt: skip
    globals()[_name] = _needs_gpu(_name)
# For `isinstance` and annotations there are classes, of which nobody has an object.
for _name in (
    "BFloat16Tensor", "BoolTensor", "ByteTensor", "CUDAGraph", "CharTensor", "DoubleTensor", "Event", "ExternalStream", "FloatTensor", "HalfTensor",
    "IntTensor", "LongTensor", "MemPool", "ShortTensor", "Stream", "StreamContext", "graph",
):  # fmt: skip
    globals()[_name] = type(_name, (), {"__new__": _needs_gpu(_name), "__module__": __name__, "__doc__": "RuntimeError: there is no GPU."})
del _name


def _number(device: Any) -> int:
    """The number of a GPU; -1 for None and other devices."""
    found = None if device is None else Device(device) if isinstance(device, str) else device
    return -1 if found is None or found.type != "cuda" else found.index or 0


class device:
    """A context in which a GPU is the current one; a negative number, as code for both kinds of machine has it, changes nothing.

    >>> with torch.cuda.device(-1):
    ...     pass
    """

    def __init__(self, device: Any) -> None:
        self.idx = device if isinstance(device, int) else _number(device)

    def __enter__(self) -> None:
        if self.idx >= 0:
            raise MissingDeviceError(f"torch.cuda.device({self.idx}) needs a CUDA GPU, and rushlight computes on the CPU only")

    def __exit__(self, *exc: object) -> None:
        pass


def get_arch_list() -> list[str]:
    """The kinds of GPU that kernels were compiled for: none."""
    return []


def is_current_stream_capturing() -> bool:
    """Whether a graph of kernels is being recorded: False."""
    return False


default_generators: tuple[Any, ...] = ()


def __getattr__(name: str) -> Any:
    if name in ("amp", "nvtx"):
        return import_module(f"rushlight.cuda.{name}")
    raise AttributeError(f"rushlight.cuda has no {name!r}: rushlight computes on the CPU only")
