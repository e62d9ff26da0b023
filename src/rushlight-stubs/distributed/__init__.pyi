"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool
from datetime import timedelta as _timedelta
from rushlight.distributed.c10d.collectives import all_gather_into_tensor as _all_gather_into_tensor, reduce_scatter_tensor as _reduce_scatter_tensor
from rushlight.distributed.c10d.groups import is_nccl_available as _is_nccl_available
from rushlight.distributed.c10d.options import _ReduceOpNames as _ReduceOpNames

from rushlight.distributed.c10d.options import AllToAllOptions as AllToAllOptions
from rushlight.distributed.c10d.options import AllreduceCoalescedOptions as AllreduceCoalescedOptions
from rushlight.distributed.c10d.options import AllreduceOptions as AllreduceOptions
from rushlight.distributed.c10d.options import Backend as Backend
from rushlight.distributed.c10d.options import BackendConfig as BackendConfig
from rushlight.distributed.c10d.options import BarrierOptions as BarrierOptions
from rushlight.distributed.c10d.options import BroadcastOptions as BroadcastOptions
from rushlight.distributed.c10d.options import BuiltinCommHookType as BuiltinCommHookType
from rushlight.distributed.c10d.options import DebugLevel as DebugLevel
from rushlight.distributed.device_mesh import DeviceMesh as DeviceMesh
from rushlight._distributed.errors import DistBackendError as DistBackendError
from rushlight._distributed.errors import DistError as DistError
from rushlight._distributed.errors import DistNetworkError as DistNetworkError
from rushlight._distributed.errors import DistStoreError as DistStoreError
from rushlight._distributed.stores.file_store import FileStore as FileStore
from rushlight.distributed.c10d.options import GatherOptions as GatherOptions
from rushlight.nn.parallel.buckets import GradBucket as GradBucket
from rushlight.distributed.c10d.world import GroupMember as GroupMember
class GroupName: ...
from rushlight._distributed.stores.hash_store import HashStore as HashStore
from rushlight.distributed.c10d.messages import P2POp as P2POp
from rushlight._distributed.stores.prefix_store import PrefixStore as PrefixStore
from rushlight.distributed.c10d.methods import ProcessGroup as ProcessGroup
from rushlight.distributed.c10d.methods import ProcessGroupGloo as ProcessGroupGloo
from rushlight._distributed.errors import QueueEmptyError as QueueEmptyError
from rushlight.distributed.c10d.options import ReduceOp as ReduceOp
from rushlight.distributed.c10d.options import ReduceOptions as ReduceOptions
from rushlight.distributed.c10d.options import ReduceScatterOptions as ReduceScatterOptions
from rushlight.distributed.c10d.options import ScatterOptions as ScatterOptions
from rushlight._distributed.stores.store import Store as Store
from rushlight._distributed.stores.tcp_store import TCPStore as TCPStore
from rushlight.distributed.c10d.work import Work as Work
from rushlight.distributed import algorithms as algorithms
from rushlight.distributed.c10d.collectives import all_gather as all_gather
from rushlight.distributed.c10d.collectives import all_gather_coalesced as all_gather_coalesced
from rushlight.distributed.c10d.collectives import all_gather_into_tensor as all_gather_into_tensor
from rushlight.distributed.c10d.objects import all_gather_object as all_gather_object
all_gather_single = _all_gather_into_tensor
from rushlight.distributed.c10d.collectives import all_reduce as all_reduce
from rushlight.distributed.c10d.collectives import all_reduce_coalesced as all_reduce_coalesced
from rushlight.distributed.c10d.collectives import all_to_all as all_to_all
from rushlight.distributed.c10d.collectives import all_to_all_single as all_to_all_single
from rushlight.distributed import autograd as autograd
from rushlight.distributed.c10d.collectives import barrier as barrier
from rushlight.distributed.c10d.messages import batch_isend_irecv as batch_isend_irecv
from rushlight.distributed.c10d.debugging import breakpoint as breakpoint
from rushlight.distributed.c10d.collectives import broadcast as broadcast
from rushlight.distributed.c10d.objects import broadcast_object_list as broadcast_object_list
from rushlight.distributed import c10d as c10d
from rushlight.distributed import checkpoint as checkpoint
from rushlight.distributed import constants as constants
default_pg_timeout: _timedelta
from rushlight.distributed.c10d.groups import destroy_process_group as destroy_process_group
from rushlight.distributed import device_mesh as device_mesh
from rushlight.distributed import distributed_c10d as distributed_c10d
from rushlight.distributed import elastic as elastic
from rushlight.distributed import estimate as estimate
from rushlight.distributed import flight_recorder as flight_recorder
from rushlight.distributed import fsdp as fsdp
from rushlight.distributed.c10d.collectives import gather as gather
from rushlight.distributed.c10d.objects import gather_object as gather_object
from rushlight.distributed.c10d.groups import get_backend as get_backend
from rushlight.distributed.c10d.groups import get_backend_config as get_backend_config
from rushlight.distributed.c10d.options import get_debug_level as get_debug_level
from rushlight.distributed.c10d.groups import get_default_backend_for_device as get_default_backend_for_device
from rushlight.distributed.c10d.groups import get_global_rank as get_global_rank
from rushlight.distributed.c10d.groups import get_group_rank as get_group_rank
from rushlight.distributed.c10d.groups import get_node_local_rank as get_node_local_rank
from rushlight.distributed.c10d.groups import get_pg_count as get_pg_count
from rushlight.distributed.c10d.groups import get_process_group_ranks as get_process_group_ranks
from rushlight.distributed.c10d.groups import get_rank as get_rank
from rushlight.distributed.c10d.groups import get_world_size as get_world_size
from rushlight.distributed.c10d.world import group as group
from rushlight.distributed.device_mesh import init_device_mesh as init_device_mesh
from rushlight.distributed.c10d.groups import init_process_group as init_process_group
from rushlight.distributed.c10d.messages import irecv as irecv
def is_available() -> _bool: ...
from rushlight.distributed.c10d.groups import is_backend_available as is_backend_available
from rushlight.distributed.c10d.groups import is_gloo_available as is_gloo_available
from rushlight.distributed.c10d.groups import is_initialized as is_initialized
from rushlight.distributed.c10d.groups import is_mpi_available as is_mpi_available
from rushlight.distributed.c10d.groups import is_nccl_available as is_nccl_available
from rushlight.distributed.c10d.groups import is_torchelastic_launched as is_torchelastic_launched
is_ucc_available = _is_nccl_available
is_xccl_available = _is_nccl_available
from rushlight.distributed.c10d.messages import isend as isend
from rushlight.distributed import launch as launch
from rushlight.distributed import launcher as launcher
from rushlight.distributed.c10d.messages import monitored_barrier as monitored_barrier
from rushlight.distributed.c10d.groups import new_group as new_group
from rushlight.distributed.c10d.groups import new_subgroups as new_subgroups
from rushlight.distributed.c10d.groups import new_subgroups_by_enumeration as new_subgroups_by_enumeration
from rushlight.distributed import nn as nn
from rushlight.distributed import optim as optim
from rushlight.distributed import pipelining as pipelining
from rushlight.distributed.c10d.observing import record_comm as record_comm
from rushlight.distributed.c10d.messages import recv as recv
from rushlight.distributed.c10d.objects import recv_object_list as recv_object_list
from rushlight.distributed.c10d.collectives import reduce as reduce
reduce_op = _ReduceOpNames
from rushlight.distributed.c10d.collectives import reduce_scatter as reduce_scatter
reduce_scatter_single = _reduce_scatter_tensor
from rushlight.distributed.c10d.collectives import reduce_scatter_tensor as reduce_scatter_tensor
from rushlight._distributed.launch.rendezvous import register_rendezvous_handler as register_rendezvous_handler
from rushlight._distributed.launch.rendezvous import rendezvous as rendezvous
from rushlight.distributed import rpc as rpc
from rushlight.distributed import run as run
from rushlight.distributed.c10d.collectives import scatter as scatter
from rushlight.distributed.c10d.objects import scatter_object_list as scatter_object_list
from rushlight.distributed.c10d.messages import send as send
from rushlight.distributed.c10d.objects import send_object_list as send_object_list
from rushlight.distributed.c10d.options import set_debug_level as set_debug_level
from rushlight.distributed.c10d.options import set_debug_level_from_env as set_debug_level_from_env
from rushlight.distributed.c10d.groups import shrink_group as shrink_group
from rushlight.distributed.c10d.groups import split_group as split_group
from rushlight.distributed.c10d.options import supports_complex as supports_complex
from rushlight.distributed import tensor as tensor
from rushlight.distributed import watching as watching
