"""Collectives with gradients, and modules on other workers, as `torch.distributed.nn`."""

from __future__ import annotations

from rushlight._interface.base import lazy_files
from rushlight.autograd import Function as Function

__all__ = [
    "Function",
    "ReduceOp",
    "RemoteModule",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "broadcast",
    "functional",
    "gather",
    "group",
    "reduce",
    "reduce_scatter",
    "scatter",
]

_ELSEWHERE = {
    "Function": "",
    "ReduceOp": "functional",
    "RemoteModule": "api.remote_module",
    "group": "functional",
    "functional": "",
}
_FUNCTIONS = dict.fromkeys([name for name in __all__ if name not in _ELSEWHERE], "functional")
__getattr__ = lazy_files(
    __name__, {**_FUNCTIONS, **{name: place for name, place in _ELSEWHERE.items() if place}}, ("api", "functional")
)
