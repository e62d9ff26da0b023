"""`torch.distributed.rpc`: calls of functions in other processes are not there; the names are, so that programs can be
imported.
"""

from __future__ import annotations

from rushlight._interface.base import absent_class, absent_function

__all__ = [
    "BackendType",
    "RRef",
    "TensorPipeRpcBackendOptions",
    "WorkerInfo",
    "get_worker_info",
    "init_rpc",
    "is_available",
    "remote",
    "rpc_async",
    "rpc_sync",
    "shutdown",
]

_WHY = "processes call no functions of one another; collectives of torch.distributed are there"
BackendType, RRef, TensorPipeRpcBackendOptions, WorkerInfo = (
    absent_class(f"torch.distributed.rpc.{name}", _WHY)
    for name in ("BackendType", "RRef", "TensorPipeRpcBackendOptions", "WorkerInfo")
)
get_worker_info, init_rpc, remote, rpc_async, rpc_sync, shutdown = (
    absent_function(f"torch.distributed.rpc.{name}", _WHY)
    for name in ("get_worker_info", "init_rpc", "remote", "rpc_async", "rpc_sync", "shutdown")
)


def is_available() -> bool:
    """Whether remote calls are built in: False."""
    return False
