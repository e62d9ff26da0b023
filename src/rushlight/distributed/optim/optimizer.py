"""`DistributedOptimizer`: an optimizer on each worker that has parameters, stepped from one."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import rushlight.distributed.autograd as dist_autograd
from rushlight import Tensor, no_grad
from rushlight.distributed import rpc
from rushlight.distributed.optim.functional import functional, functional_optim_map
from rushlight.optim import Optimizer

__all__ = ["DistributedOptimizer"]

_ONE_AT_A_TIME = threading.Lock()  # parameters may be shared by optimizers


class _LocalOptimizer:
    """The part of one worker."""

    def __init__(self, optimizer_class: type[Optimizer], references: Sequence[Any], args: Any, kwargs: Any) -> None:
        self.params: list[Tensor] = [reference.local_value() for reference in references]
        made = functional_optim_map.get(optimizer_class) or functional(optimizer_class)
        self.optimizer = made(self.params, *args, **kwargs)

    def step(self, context_id: int) -> None:
        """One step with the gradients of a context."""
        grads = dist_autograd.get_gradients(context_id)
        with _ONE_AT_A_TIME, no_grad():
            self.optimizer.step([grads.get(param) for param in self.params])


class DistributedOptimizer:
    """An optimizer of `optimizer_class` over parameters of several workers, given as `RRef`s.

    On each worker that owns some of them an optimizer is made with `args` and `kwargs`; `step` runs all of them at once,
    with the gradients of a context of `torch.distributed.autograd`.  Steps of different callers on one worker run one
    after the other.  Any optimizer that needs no closure will do.

    >>> import rushlight as torch
    >>> from rushlight.distributed import rpc
    >>> import rushlight.distributed.autograd as dist_autograd
    >>> from rushlight.distributed.optim import DistributedOptimizer
    >>> options = rpc.TensorPipeRpcBackendOptions(init_method="tcp://localhost:0")
    >>> rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
    >>> weight = torch.ones(2, requires_grad=True)
    >>> optimizer = DistributedOptimizer(torch.optim.SGD, [rpc.RRef(weight)], lr=0.5)
    >>> with dist_autograd.context() as context_id:
    ...     dist_autograd.backward(context_id, [weight.sum()])
    ...     optimizer.step(context_id)
    >>> weight
    tensor([0.5000, 0.5000], requires_grad=True)
    >>> rpc.shutdown()
    """

    def __init__(self, optimizer_class: type[Optimizer], params_rref: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        by_owner: dict[Any, list[Any]] = defaultdict(list)
        for reference in params_rref:
            by_owner[reference.owner()].append(reference)
        futures = [
            rpc.rpc_async(owner, _local_optimizer, args=(optimizer_class, references, args, kwargs))
            for owner, references in by_owner.items()
        ]
        self.remote_optimizers = _wait_all(futures)

    def step(self, context_id: int) -> None:
        """One step on all workers; RuntimeError outside of the context, and what an optimizer raises."""
        dist_autograd._is_valid_context(context_id) or dist_autograd.get_gradients(context_id)
        _wait_all([optimizer.rpc_async().step(context_id) for optimizer in self.remote_optimizers])


def _local_optimizer(optimizer_class: type[Optimizer], references: Sequence[Any], args: Any, kwargs: Any) -> Any:
    return rpc.RRef(_LocalOptimizer(optimizer_class, references, args, kwargs))


def _wait_all(futures: Sequence[Any]) -> list[Any]:
    """The results of all; the first error after all are done."""
    found, first = [], None
    for future in futures:
        try:
            found.append(future.wait())
        except Exception as error:
            first = first or error
    if first is not None:
        raise first
    return found
