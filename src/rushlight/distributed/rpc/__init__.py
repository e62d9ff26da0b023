"""`torch.distributed.rpc`: functions that run on other workers, and references to values there.

>>> import rushlight as torch
>>> from rushlight.distributed import rpc
>>> options = rpc.TensorPipeRpcBackendOptions(init_method="tcp://localhost:0")
>>> rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
>>> rpc.get_worker_info()
WorkerInfo(id=0, name=alone)
>>> rpc.rpc_sync("alone", torch.add, args=(torch.ones(2), 3))
tensor([4., 4.])
>>> rpc.remote("alone", sorted, args=("cab",)).to_here()
['a', 'b', 'c']
>>> rpc.shutdown()
"""

from __future__ import annotations

from rushlight._interface.base import lazy_files

__all__ = [
    "AllGatherStates", "BackendType", "RRef", "TensorPipeRpcBackendOptions", "WorkerInfo", "functions", "get_rpc_timeout", "get_worker_info",
    "init_rpc", "is_available", "method_factory", "new_method", "remote", "rpc_async", "rpc_sync", "shutdown",
]  # fmt: skip

_PRIVATE = (
    "_all_gather", "_barrier", "_get_current_rpc_agent", "_is_current_rpc_agent_set", "_set_rpc_timeout", "_wait_all_workers",
)  # fmt: skip
__getattr__ = lazy_files(
    __name__,
    {
        **dict.fromkeys([*(name for name in __all__ if name not in ("functions", "is_available")), *_PRIVATE], "api"),
        "BackendType": "options",
        "RRef": "rref",
        "PyRRef": "rref",
        "TensorPipeRpcBackendOptions": "options",
        "RpcBackendOptions": "options",
        "WorkerInfo": "members",
    },
    ("api", "constants", "functions", "options"),
)


def is_available() -> bool:
    """Whether remote calls are built in: True."""
    return True
