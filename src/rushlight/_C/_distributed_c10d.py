"""The names of `torch.distributed` under the native module that PyTorch keeps them in."""

from __future__ import annotations

from rushlight.distributed.c10d.buckets import GradBucket as GradBucket
from rushlight.distributed.c10d.options import BuiltinCommHookType as BuiltinCommHookType
from rushlight.distributed.c10d.user_groups import DistributedBackendOptions as _DistributedBackendOptions
from rushlight.distributed.c10d.work import work_of_future as _create_work_from_future
from rushlight.distributed.distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    BarrierOptions,
    BroadcastOptions,
    DebugLevel,
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    GatherOptions,
    PrefixStore,
    ProcessGroup,
    ProcessGroupGloo,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    Store,
    Work,
    _resolve_process_group,
    get_debug_level,
    set_debug_level,
    set_debug_level_from_env,
)
from rushlight.distributed.distributed_c10d import FileStore as FileStore
from rushlight.distributed.distributed_c10d import HashStore as HashStore
from rushlight.distributed.distributed_c10d import TCPStore as TCPStore

__all__ = [
    "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "BarrierOptions", "BroadcastOptions", "BuiltinCommHookType",
    "DebugLevel", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore", "GatherOptions", "GradBucket", "HashStore",
    "PrefixStore", "ProcessGroup", "ProcessGroupGloo", "ReduceOp", "ReduceOptions", "ReduceScatterOptions", "ScatterOptions", "Store", "TCPStore", "Work",
    "_DistributedBackendOptions", "_create_work_from_future", "_resolve_process_group", "get_debug_level", "set_debug_level", "set_debug_level_from_env",
]  # fmt: skip
