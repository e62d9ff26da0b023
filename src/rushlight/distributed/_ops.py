"""`torch.ops.c10d`, `torch.ops.c10d_functional`, `torch.ops._c10d_functional`: collectives by PyTorch's operator names.

The functional ones can be called; those of `c10d` name what counters of collectives count.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from rushlight.library.operators import OpOverloadPacket, namespace

__all__ = ["C10D", "FUNCTIONAL", "SPACES"]

SPACES = ("c10d", "c10d_functional", "_c10d_functional", "_c10d_functional_autograd")

C10D = (
    "_allgather_base_", "_reduce_scatter_base_", "allgather_", "allgather_coalesced_", "allgather_into_tensor_coalesced_", "allreduce_",
    "allreduce_coalesced_", "alltoall_", "alltoall_base_", "barrier", "broadcast_", "gather_", "recv_", "recv_any_source_", "reduce_",
    "reduce_scatter_", "reduce_scatter_tensor_coalesced_", "scatter_", "send",
)  # fmt: skip


def _functions() -> Any:
    return import_module("rushlight.distributed._functional_collectives")


# Name -> the call in `_functional_collectives`.
FUNCTIONAL: dict[str, Callable[..., Any]] = {
    "all_reduce": lambda x, op, group: _functions().all_reduce(x, op, group),
    "all_reduce_coalesced": lambda x, op, group: _functions().all_reduce_coalesced(x, op, group),
    "all_gather_into_tensor": lambda x, size, group: _functions().all_gather_tensor(x, 0, group),
    "all_gather_into_tensor_coalesced": lambda x, size, group: _functions().all_gather_into_tensor_coalesced(x, group),
    "reduce_scatter_tensor": lambda x, op, size, group: _functions().reduce_scatter_tensor(x, op, 0, group),
    "reduce_scatter_tensor_coalesced": lambda x, op, size, group: _functions().reduce_scatter_tensor_coalesced(
        x, op, [0] * len(x), group
    ),
    "all_to_all_single": lambda x, out, given, group: _functions().all_to_all_single(x, out, given, group),
    "broadcast": lambda x, src, group: _functions().broadcast(x, src, group),
    "wait_tensor": lambda x: _functions().wait_tensor(x),
    "_wrap_tensor_autograd": lambda x: _functions().wait_tensor(x),
}


class _Collective(OpOverloadPacket):
    """A packet without overloads, whose `default` is itself: calls go to the function."""

    @property
    def default(self) -> Any:
        """The operator."""
        return self

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        call = FUNCTIONAL.get(self.__name__) if self._space != "c10d" else None
        if call is None:
            raise NotImplementedError(
                f"torch.ops.{self} is a name for counters of collectives here: call the function of torch.distributed"
            )
        return call(*args, **kwargs)


def _define() -> None:
    for space in SPACES:
        packets = namespace(space).packets
        for name in C10D if space == "c10d" else FUNCTIONAL:
            packets.setdefault(name, _Collective(space, name))


_define()
