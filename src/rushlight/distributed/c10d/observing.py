"""Collectives and messages as observers see them: profiles, counters of collectives."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rushlight import Tensor
from rushlight._interface.dispatch import observed_call
from rushlight._interface.distributed import STATE, Operation

__all__ = ["functional", "record_comm", "told"]

# PyTorch's names of the operators under the functions.
_NAMES = {
    "all_reduce": "allreduce_", "all_reduce_coalesced": "allreduce_coalesced_", "broadcast": "broadcast_", "reduce": "reduce_",
    "all_gather": "allgather_", "all_gather_coalesced": "allgather_coalesced_", "all_gather_into_tensor": "_allgather_base_", "gather": "gather_",
    "scatter": "scatter_", "reduce_scatter": "reduce_scatter_", "reduce_scatter_tensor": "_reduce_scatter_base_", "all_to_all": "alltoall_",
    "all_to_all_single": "alltoall_base_", "recv": "recv_",
}  # fmt: skip


_LOCAL = threading.local()


@contextmanager
def record_comm(name: str) -> Iterator[None]:
    """Collectives inside have this name in profiles, in place of `gloo:all_reduce`.

    Example: `with dist.record_comm("layer1: all_gather"): dist.all_gather_into_tensor(whole, part)`
    """
    before = getattr(_LOCAL, "name", None)
    _LOCAL.name = name
    try:
        yield
    finally:
        _LOCAL.name = before


def told(operation: Operation, tensors: Sequence[Tensor], run: Callable[[], Any]) -> Any:
    """`run()`, of which the observers of this thread are told as PyTorch's `c10d::` operator."""
    operation.label = getattr(_LOCAL, "name", None)
    name = operation.name.partition("(")[0]
    name = "recv_any_source_" if operation.name == "recv(from any)" else _NAMES.get(name, name)
    return observed_call(
        "collective", f"c10d::{name}", run, (), lambda: [("tensors", x) for x in tensors], operation
    )  # fmt: skip


def functional(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: observers are told of calls as the functional collective `_c10d_functional::<name>`; of what it calls
    itself only those who look inside.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not STATE.observers:
                return function(*args, **kwargs)
            tensors = [x for x in args if isinstance(x, Tensor)]
            return observed_call(
                "collective",
                f"_c10d_functional::{name}",
                lambda: function(*args, **kwargs),
                (),
                lambda: [("input", x) for x in tensors],
            )

        return run

    return decorate
