"""Written by `python -m rushlight stubs` from the operator table and the live package: change those, not this file."""

from builtins import bool as _bool
from rushlight._engine.core.tensor import Tensor as _Tensor
from rushlight.cuda.device import device_of_object as _device_of_object

from rushlight.cuda.storages import BFloat16Storage as BFloat16Storage
class BFloat16Tensor(_Tensor): ...
from rushlight.cuda.storages import BoolStorage as BoolStorage
class BoolTensor(_Tensor): ...
from rushlight.cuda.storages import ByteStorage as ByteStorage
class ByteTensor(_Tensor): ...
from rushlight.cuda.graphs import CUDAGraph as CUDAGraph
from rushlight.cuda.memory import CUDAPluggableAllocator as CUDAPluggableAllocator
from rushlight.cuda.storages import CharStorage as CharStorage
class CharTensor(_Tensor): ...
from rushlight.cuda.storages import ComplexDoubleStorage as ComplexDoubleStorage
from rushlight.cuda.storages import ComplexFloatStorage as ComplexFloatStorage
from rushlight.cuda.runtime import CudaError as CudaError
from rushlight.cuda.runtime import DeferredCudaCallError as DeferredCudaCallError
from rushlight.cuda.storages import DoubleStorage as DoubleStorage
class DoubleTensor(_Tensor): ...
from rushlight.cuda.streams import Event as Event
from rushlight.cuda.streams import ExternalStream as ExternalStream
from rushlight.cuda.storages import FloatStorage as FloatStorage
class FloatTensor(_Tensor): ...
from rushlight.cuda.runtime import GreenContext as GreenContext
from rushlight.cuda.storages import HalfStorage as HalfStorage
class HalfTensor(_Tensor): ...
from rushlight.cuda.storages import IntStorage as IntStorage
class IntTensor(_Tensor): ...
from rushlight.cuda.storages import LongStorage as LongStorage
class LongTensor(_Tensor): ...
from rushlight.cuda.memory import MemPool as MemPool
from rushlight.cuda.storages import ShortStorage as ShortStorage
class ShortTensor(_Tensor): ...
from rushlight.cuda.streams import Stream as Stream
from rushlight.cuda.streams import StreamContext as StreamContext
from rushlight.cuda import access as access
from rushlight.cuda import amp as amp
from rushlight.cuda.memory import caching_allocator_alloc as caching_allocator_alloc
from rushlight.cuda.memory import caching_allocator_delete as caching_allocator_delete
from rushlight.cuda.memory import caching_allocator_disabled as caching_allocator_disabled
from rushlight.cuda.memory import caching_allocator_enable as caching_allocator_enable
from rushlight.cuda.device import can_device_access_peer as can_device_access_peer
from rushlight.cuda.memory import change_current_allocator as change_current_allocator
from rushlight.cuda.runtime import check_error as check_error
from rushlight.cuda.runtime import clock_rate as clock_rate
from rushlight.cuda import comm as comm
from rushlight.cuda.runtime import cudaStatus as cudaStatus
from rushlight.cuda.runtime import cudart as cudart
from rushlight.cuda.device import current_blas_handle as current_blas_handle
from rushlight.cuda.device import current_device as current_device
from rushlight.cuda.device import current_solver_handle as current_solver_handle
from rushlight.cuda.streams import current_stream as current_stream
from rushlight.cuda.streams import default_stream as default_stream
from rushlight.cuda.device import device as device
from rushlight.cuda.device import device_count as device_count
from rushlight.cuda.runtime import device_memory_used as device_memory_used
device_of = _device_of_object
from rushlight.cuda.memory import empty_cache as empty_cache
from rushlight.cuda import gds as gds
from rushlight.cuda.memory import get_allocator_backend as get_allocator_backend
from rushlight.cuda.device import get_arch_list as get_arch_list
from rushlight.cuda.device import get_device_capability as get_device_capability
from rushlight.cuda.device import get_device_name as get_device_name
from rushlight.cuda.device import get_device_properties as get_device_properties
from rushlight.cuda.device import get_gencode_flags as get_gencode_flags
from rushlight.cuda.memory import get_per_process_memory_fraction as get_per_process_memory_fraction
from rushlight.cuda.random import get_rng_state as get_rng_state
from rushlight.cuda.random import get_rng_state_all as get_rng_state_all
from rushlight.cuda.streams import get_stream_from_external as get_stream_from_external
from rushlight.cuda.device import get_sync_debug_mode as get_sync_debug_mode
from rushlight.cuda.graphs import graph as graph
from rushlight.cuda.graphs import graph_pool_handle as graph_pool_handle
from rushlight.cuda import graphed as graphed
from rushlight.cuda import graphs as graphs
from rushlight.cuda import green_contexts as green_contexts
has_half: _bool
has_magma: _bool
from rushlight.cuda.memory import host_memory_stats as host_memory_stats
from rushlight.cuda.memory import host_memory_stats_as_nested_dict as host_memory_stats_as_nested_dict
from rushlight.cuda.device import init as init
from rushlight.cuda.random import initial_seed as initial_seed
from rushlight.cuda.device import ipc_collect as ipc_collect
from rushlight.cuda.device import is_available as is_available
from rushlight.cuda.device import is_bf16_supported as is_bf16_supported
from rushlight.cuda.graphs import is_current_stream_capturing as is_current_stream_capturing
from rushlight.cuda.device import is_initialized as is_initialized
from rushlight.cuda.device import is_tf32_supported as is_tf32_supported
from rushlight.cuda import jiterator as jiterator
from rushlight.cuda.memory import list_gpu_processes as list_gpu_processes
from rushlight.cuda.graphed import make_graphed_callables as make_graphed_callables
from rushlight.cuda.random import manual_seed as manual_seed
from rushlight.cuda.random import manual_seed_all as manual_seed_all
from rushlight.cuda.memory import max_memory_allocated as max_memory_allocated
from rushlight.cuda.memory import max_memory_cached as max_memory_cached
from rushlight.cuda.memory import max_memory_reserved as max_memory_reserved
from rushlight.cuda.memory import mem_get_info as mem_get_info
from rushlight.cuda import memory as memory
from rushlight.cuda.memory import memory_allocated as memory_allocated
from rushlight.cuda.memory import memory_cached as memory_cached
from rushlight.cuda.memory import memory_reserved as memory_reserved
from rushlight.cuda.memory import memory_snapshot as memory_snapshot
from rushlight.cuda.memory import memory_stats as memory_stats
from rushlight.cuda.memory import memory_stats_as_nested_dict as memory_stats_as_nested_dict
from rushlight.cuda.memory import memory_summary as memory_summary
from rushlight.cuda.runtime import memory_usage as memory_usage
from rushlight.cuda import nccl as nccl
from rushlight.cuda import nvtx as nvtx
from rushlight.cuda.access import on_gpus as on_gpus
from rushlight.cuda.runtime import power_draw as power_draw
from rushlight.cuda import profiler as profiler
from rushlight.cuda import random as random
from rushlight.cuda.memory import reset_accumulated_host_memory_stats as reset_accumulated_host_memory_stats
from rushlight.cuda.memory import reset_accumulated_memory_stats as reset_accumulated_memory_stats
from rushlight.cuda.memory import reset_max_memory_allocated as reset_max_memory_allocated
from rushlight.cuda.memory import reset_max_memory_cached as reset_max_memory_cached
from rushlight.cuda.memory import reset_peak_host_memory_stats as reset_peak_host_memory_stats
from rushlight.cuda.memory import reset_peak_memory_stats as reset_peak_memory_stats
from rushlight.cuda import runtime as runtime
from rushlight.cuda.random import seed as seed
from rushlight.cuda.random import seed_all as seed_all
from rushlight.cuda.device import set_device as set_device
from rushlight.cuda.memory import set_per_process_memory_fraction as set_per_process_memory_fraction
from rushlight.cuda.random import set_rng_state as set_rng_state
from rushlight.cuda.random import set_rng_state_all as set_rng_state_all
from rushlight.cuda.streams import set_stream as set_stream
from rushlight.cuda.device import set_sync_debug_mode as set_sync_debug_mode
from rushlight.cuda import sparse as sparse
from rushlight.cuda import storages as storages
from rushlight.cuda.streams import stream as stream
from rushlight.cuda import streams as streams
from rushlight.cuda import summary as summary
from rushlight.cuda.device import synchronize as synchronize
from rushlight.cuda.runtime import temperature as temperature
from rushlight.cuda import tunable as tunable
from rushlight.cuda.device import unavailable_reason as unavailable_reason
from rushlight.cuda.memory import use_mem_pool as use_mem_pool
from rushlight.cuda.runtime import utilization as utilization
