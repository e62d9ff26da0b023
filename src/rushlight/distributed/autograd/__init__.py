"""`torch.distributed.autograd`: backward through calls of functions on other workers.

Within a `context`, calls of `torch.distributed.rpc` record which tensors went where.  `backward` then runs on all workers
that took part, and each keeps the gradients of its leaves in the context.

>>> import rushlight as torch
>>> import rushlight.distributed as dist
>>> import rushlight.distributed.autograd as dist_autograd
>>> from rushlight.distributed import rpc
>>> dist.autograd.is_available()
True
>>> options = rpc.TensorPipeRpcBackendOptions(init_method="tcp://localhost:0")
>>> rpc.init_rpc("alone", rank=0, world_size=1, rpc_backend_options=options)
>>> x = torch.tensor([1.0, 2.0], requires_grad=True)
>>> with dist_autograd.context() as context_id:
...     y = rpc.rpc_sync("alone", torch.mul, args=(x, x))
...     dist_autograd.backward(context_id, [y.sum()])
...     dist_autograd.get_gradients(context_id)[x]
tensor([2., 4.])
>>> rpc.shutdown()
"""

from __future__ import annotations

from rushlight import Tensor
from rushlight.distributed.autograd.contexts import CONTEXTS, release_everywhere
from rushlight.distributed.autograd.contexts import Context as DistAutogradContext
from rushlight.distributed.autograd.passes import backward as backward
from rushlight.distributed.rpc.running import CONTEXT

__all__ = ["DistAutogradContext", "backward", "context", "get_gradients", "is_available"]


def is_available() -> bool:
    """Whether backward can go through other workers: True."""
    return True


def get_gradients(context_id: int) -> dict[Tensor, Tensor]:
    """Leaf -> gradient, of the leaves of this worker; RuntimeError for an unknown context."""
    return CONTEXTS.get(context_id).gradients.by_leaf()


class context:
    """A context manager whose value is the number of a new autograd context.

    At its end the context is forgotten, on this worker and on all that took part. RuntimeError within another context,
    and before `init_rpc`.
    """

    def __enter__(self) -> int:
        if CONTEXT.current is not None:
            raise RuntimeError("Already have an autograd context id for this thread.")
        self._context = CONTEXT.current = CONTEXTS.new()
        return self._context.number

    def __exit__(self, exc_type: object, exc_value: object, traceback: object) -> None:
        CONTEXT.current = None
        release_everywhere(self._context)


def _current_context() -> DistAutogradContext:
    if CONTEXT.current is None:
        raise RuntimeError(
            "Current thread doesn't have a valid autograd context. Please wrap your code with torch.distributed.autograd.context()."
        )
    found: DistAutogradContext = CONTEXT.current
    return found


def _retrieve_context(context_id: int) -> DistAutogradContext:
    return CONTEXTS.get(context_id)


def _is_valid_context(context_id: int) -> bool:
    return context_id in CONTEXTS.by_number


def _new_context() -> DistAutogradContext:
    return CONTEXTS.new()


def _release_context(context_id: int) -> None:
    release_everywhere(CONTEXTS.get(context_id))
