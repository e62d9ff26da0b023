"""`torch.distributed`: processes that work together.

`init_process_group` makes a process one of a job; collectives then move tensors between its processes. Between CPUs they
run on MPI, which `pip install 'rushlight[mpi]'` brings; a job of one process needs nothing.

>>> import rushlight as torch
>>> import rushlight.distributed as dist
>>> dist.is_available(), dist.is_initialized()
(True, False)
>>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
>>> x = torch.tensor([1.0, 2.0])
>>> dist.all_reduce(x)
>>> x, dist.get_rank(), dist.get_backend()
(tensor([1., 2.]), 0, 'gloo')
>>> dist.destroy_process_group()
"""

from __future__ import annotations

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
from rushlight._interface.base import lazy_files
from rushlight.distributed.rendezvous import register_rendezvous_handler as register_rendezvous_handler
from rushlight.distributed.rendezvous import rendezvous as rendezvous

# Private names that programs use.
_PRIVATE = (
    "_coalescing_manager", "_get_default_group", "_make_nccl_premul_sum", "_rank_not_in_group", "_resolve_process_group",
)  # fmt: skip

__all__ = [
    "register_rendezvous_handler", "rendezvous",
    "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore", "HashStore", "PrefixStore", "QueueEmptyError", "DeviceMesh", "init_device_mesh",
    "Store", "TCPStore", "is_available",
    "BuiltinCommHookType", "GradBucket", "ProcessGroupGloo",
    "AllToAllOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "Backend", "BackendConfig", "BarrierOptions", "BroadcastOptions",
    "DebugLevel", "GatherOptions", "GroupMember", "GroupName", "P2POp", "ProcessGroup", "ReduceOp", "ReduceOptions",
    "ReduceScatterOptions", "ScatterOptions", "Work", "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_object",
    "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier", "batch_isend_irecv",
    "breakpoint", "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group", "gather", "gather_object", "get_backend",
    "get_backend_config", "get_debug_level", "get_default_backend_for_device", "get_global_rank", "get_group_rank", "get_node_local_rank",
    "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "is_ucc_available", "is_xccl_available", "isend", "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
    "record_comm", "recv", "recv_object_list", "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
    "scatter_object_list", "send", "send_object_list", "set_debug_level", "set_debug_level_from_env", "shrink_group", "split_group", "supports_complex",
]  # fmt: skip

__getattr__ = lazy_files(
    __name__,
    {
        **dict.fromkeys((*__all__, *_PRIVATE), "distributed_c10d"),  # but for those that are here
        "DeviceMesh": "device_mesh",
        "breakpoint": "c10d.debugging",
        "ProcessGroupGloo": "distributed_c10d",
        "BuiltinCommHookType": "c10d.options",
        "GradBucket": "c10d.buckets",
        "init_device_mesh": "device_mesh",
    },
    (
        "_composable",
        "_shard",
        "_tensor",
        "algorithms",
        "argparse_util",
        "autograd",
        "c10d",
        "c10d_logger",
        "collective_utils",
        "constants",
        "checkpoint",
        "device_mesh",
        "distributed_c10d",
        "elastic",
        "launch",
        "launcher",
        "remote_device",
        "run",
        "estimate",
        "flight_recorder",
        "fsdp",
        "nn",
        "optim",
        "rpc",
        "tensor",
        "watching",
    ),
)


def __dir__() -> list[str]:
    """The names, also those that are not loaded yet."""
    return sorted({*globals(), *__all__})


def is_available() -> bool:
    """Whether process groups are built in: True.  Jobs of several processes need the extra `rushlight[mpi]` too."""
    return True
