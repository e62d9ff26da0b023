"""The names of `torch.distributed` under the module that PyTorch keeps them in."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from rushlight._distributed.errors import DistBackendError as DistBackendError
from rushlight._distributed.errors import DistError as DistError
from rushlight._distributed.errors import DistNetworkError as DistNetworkError
from rushlight._distributed.errors import DistStoreError as DistStoreError
from rushlight._distributed.stores.file_store import FileStore as FileStore
from rushlight._distributed.stores.hash_store import HashStore as HashStore
from rushlight._distributed.stores.prefix_store import PrefixStore as PrefixStore
from rushlight._distributed.stores.store import Store as Store
from rushlight._distributed.stores.tcp_store import TCPStore as TCPStore
from rushlight._interface.base import trace_marks
from rushlight.distributed.c10d.coalescing import coalescing_manager
from rushlight.distributed.c10d.collectives import (
    all_gather,
    all_gather_coalesced,
    all_gather_into_tensor,
    all_gather_single,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    reduce_scatter_single,
    reduce_scatter_tensor,
    scatter,
)
from rushlight.distributed.c10d.groups import (
    destroy_process_group,
    get_backend,
    get_backend_config,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    init_process_group,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    shrink_group,
    split_group,
)
from rushlight.distributed.c10d.messages import P2POp, batch_isend_irecv, irecv, isend, monitored_barrier, recv, send
from rushlight.distributed.c10d.methods import ProcessGroup, ProcessGroupGloo
from rushlight.distributed.c10d.objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from rushlight.distributed.c10d.observing import record_comm
from rushlight.distributed.c10d.options import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    AllToAllOptions,
    Backend,
    BackendConfig,
    BarrierOptions,
    BroadcastOptions,
    DebugLevel,
    GatherOptions,
    GroupName,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
    default_pg_timeout,
    get_debug_level,
    reduce_op,
    set_debug_level,
    set_debug_level_from_env,
    supports_complex,
)
from rushlight.distributed.c10d.work import Work
from rushlight.distributed.c10d.world import WORLD as _world
from rushlight.distributed.c10d.world import BaseGroup, GroupMember, group
from rushlight.distributed.c10d.world import default_group as _get_default_group

__all__ = [
    "AllToAllOptions", "AllgatherOptions", "AllreduceCoalescedOptions", "AllreduceOptions", "Backend", "BackendConfig", "BarrierOptions",
    "BroadcastOptions", "DebugLevel", "GatherOptions", "GroupMember", "GroupName", "P2POp", "ProcessGroup", "ProcessGroupGloo", "ReduceOp", "ReduceOptions",
    "ReduceScatterOptions", "ScatterOptions", "Store", "Work", "all_gather", "all_gather_coalesced", "all_gather_into_tensor",
    "all_gather_object", "all_gather_single", "all_reduce", "all_reduce_coalesced", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group", "gather", "gather_object",
    "get_backend", "get_backend_config", "get_debug_level", "get_default_backend_for_device", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_pg_count", "get_process_group_ranks", "get_rank", "get_world_size", "group", "init_process_group", "irecv",
    "is_backend_available", "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "is_ucc_available", "is_xccl_available", "isend", "monitored_barrier", "new_group", "new_subgroups", "new_subgroups_by_enumeration",
    "record_comm", "recv", "recv_object_list", "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter",
    "scatter_object_list", "send", "send_object_list", "set_debug_level", "set_debug_level_from_env", "shrink_group", "split_group", "supports_complex",
]  # fmt: skip


_coalescing_manager = coalescing_manager


def _make_nccl_premul_sum(factor: Any) -> ReduceOp:
    """The reduction that multiplies by a number (or a tensor of one element) and sums."""
    return ReduceOp(ReduceOp.PREMUL_SUM, float(factor))


@trace_marks.changes_later_calls
def _set_pg_timeout(timeout: timedelta, group: Any = None) -> None:
    """How long operations of a group that begin from now on may take; without one, of the default group.

    ValueError for a process outside of the group.
    """
    if _rank_not_in_group(group):
        raise ValueError("Invalid process group specified")
    (_get_default_group() if group is None else group).set_timeout(timeout)


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process is outside of a group."""
    return group is GroupMember.NON_GROUP_MEMBER


def _get_pg_default_device(group: Any = None) -> Any:
    """The device of a group's tensors: the CPU."""
    return _get_default_group()._device_types[0] if group is None else group._device_types[0]


def _resolve_process_group(group_name: str) -> BaseGroup:
    """The group of a name; ValueError for none."""
    if group_name not in _world.names:
        raise ValueError(f"Could not resolve the process group registered under the name {group_name}")
    return _world.names[group_name]
