"""`torch.distributed` of a build without it: `is_available()` is False, there is no process group, and making one raises NotImplementedError.

>>> import rushlight as torch
>>> torch.distributed.is_available(), torch.distributed.is_initialized()
(False, False)
"""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight._base.absent import absent_class, refuse

__all__ = [
    "ProcessGroup", "get_rank", "get_world_size", "init_process_group", "is_available", "is_backend_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
]  # fmt: skip

_WHY = "there are no process groups yet; programs run in one process, or in processes of torch.multiprocessing"

# For annotations and `isinstance`.
ProcessGroup = absent_class("torch.distributed.ProcessGroup", _WHY)


def is_available() -> bool:
    """Whether process groups are built in: False."""
    return False


def is_initialized() -> bool:
    """Whether there is a process group: False."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether torchrun started this process: False."""
    return False


def is_backend_available(backend: str) -> bool:
    """False, whichever it is."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False


is_gloo_available = is_mpi_available = is_nccl_available


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError."""
    refuse("torch.distributed.init_process_group()", _WHY)


def get_rank(group: Any = None) -> int:
    """Raises ValueError: there is no process group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def get_world_size(group: Any = None) -> int:
    """Raises ValueError: there is no process group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
