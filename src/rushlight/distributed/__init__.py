"""`torch.distributed` of a build without it: `is_available()` is False, there is no process group, and making one
raises NotImplementedError.

>>> import rushlight as torch
>>> torch.distributed.is_available(), torch.distributed.is_initialized()
(False, False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from rushlight._distributed.errors import DistBackendError as DistBackendError
from rushlight._distributed.errors import DistError as DistError
from rushlight._distributed.errors import DistNetworkError as DistNetworkError
from rushlight._distributed.errors import DistStoreError as DistStoreError
from rushlight._distributed.errors import QueueEmptyError as QueueEmptyError
from rushlight._distributed.stores.file_store import FileStore as FileStore
from rushlight._distributed.stores.hash_store import HashStore as HashStore
from rushlight._distributed.stores.prefix_store import PrefixStore as PrefixStore
from rushlight._distributed.stores.store import Store as Store
from rushlight._distributed.stores.tcp_store import TCPStore as TCPStore
from rushlight._interface.base import absent_class, lazy_files, refuse

__all__ = [
    "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore", "HashStore", "PrefixStore", "ProcessGroup", "QueueEmptyError", "ReduceOp", "Store", "TCPStore", "get_rank", "get_world_size", "init_process_group", "is_available", "is_backend_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
]  # fmt: skip

_WHY = "there are no process groups yet; programs run in one process, or in processes of torch.multiprocessing"

# What processes do together.
_COLLECTIVES = (
    "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single", "barrier", "broadcast",
    "broadcast_object_list", "destroy_process_group", "gather", "gather_object", "get_backend", "get_global_rank", "get_process_group_ranks", "irecv",
    "isend", "monitored_barrier", "new_group", "recv", "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
)  # fmt: skip

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


class ReduceOp:
    """How values of several processes become one: names for arguments."""

    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = range(9)


def _needs_group(name: str) -> Callable[..., NoReturn]:
    def collective(*args: Any, **kwargs: Any) -> NoReturn:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")

    collective.__name__ = collective.__qualname__ = name
    collective.__doc__ = "Raises ValueError: there is no process group."
    return collective


for _name in _COLLECTIVES:
    globals()[_name] = _needs_group(_name)
del _name


__getattr__ = lazy_files(
    __name__, {}, ("_composable", "_tensor", "device_mesh", "fsdp", "nn", "optim", "rpc", "tensor")
)


def init_process_group(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError."""
    refuse("torch.distributed.init_process_group()", _WHY)


def get_rank(group: Any = None) -> int:
    """Raises ValueError: there is no process group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


def get_world_size(group: Any = None) -> int:
    """Raises ValueError: there is no process group."""
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
