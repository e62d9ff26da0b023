"""Autograd contexts: what one training iteration recorded on this worker, and the gradients of its leaves.

A tensor that requires a gradient and goes to another worker is recorded twice: a `SendRpcBackward` here, whose edges are
those of the tensors sent, and a `RecvRpcBackward` there, whose outputs are the tensors that came.  Both carry the number
of the message, by which backward finds the one from the other.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from rushlight import Tensor, is_grad_enabled
from rushlight._interface.autograd import Node, edge_of, meta_of
from rushlight._interface.calls import Frame, FrameType, Gradients
from rushlight.distributed.rpc.running import AGENT, CONTEXT

__all__ = [
    "CONTEXTS",
    "WORKER_BITS",
    "Context",
    "RecvRpcBackward",
    "SendRpcBackward",
    "arrived",
    "clean_up",
    "receiver",
    "record_sent",
]

WORKER_BITS = 48  # numbers of contexts and messages: the worker that made them, and a count
_MOST_RELEASED = 4096  # contexts that are over, and whose late messages are recognised


class SendRpcBackward(Node):
    """Where gradients come in that another worker sends: they go on to the tensors that were sent to it."""

    __slots__ = ("_n",)

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._start([edge_of(t) for t in tensors])
        self._n = len(tensors)

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return self._n

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return grads


class RecvRpcBackward(Node):
    """Where gradients of received tensors leave for the worker that sent them."""

    __slots__ = ("_n", "context", "message", "worker")
    _wants_none = True  # the other worker counts on an answer

    def __init__(self, context: Context, message: int, worker: int, n: int) -> None:
        self._start([])
        self.context, self.message, self.worker, self._n = context, message, worker, n

    @property
    def _n_outputs(self) -> int:  # type: ignore[override]
        return self._n

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        run = self.context.running.current
        if run is None:
            raise RuntimeError(
                "a tensor came from another worker: its gradients go there by torch.distributed.autograd.backward(context_id, roots), not by backward()"
            )
        run.send(self, grads)
        return ()


class _Running(threading.local):
    """The pass that runs on this thread."""

    current: Any = None


class Context:
    """The records of one context on this worker."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: dict[int, SendRpcBackward] = {}  # message -> node
        self.workers: set[int] = set()  # those that know the context from here, and from which it is known
        self.gradients = Gradients()
        self.passes: dict[int, Any] = {}
        self.running = _Running()
        self.lock = threading.RLock()

    def _context_id(self) -> int:
        return self.number

    def _known_worker_ids(self) -> set[int]:
        return set(self.workers)

    def _send_functions(self) -> dict[int, SendRpcBackward]:
        return dict(self.sent)


class _Contexts:
    """The contexts of this worker."""

    def __init__(self) -> None:
        self.by_number: dict[int, Context] = {}
        self.released: OrderedDict[int, None] = OrderedDict()
        self.lock = threading.Lock()
        self.worker: int | None = None
        self._numbers = count(1)

    def start(self, worker: int) -> None:
        """RPC has begun: numbers of this worker carry its own."""
        self.worker, self._numbers = worker, count(1)

    def number(self) -> int:
        """A number that no other worker gives."""
        if self.worker is None:
            raise RuntimeError("Need to initialize distributed autograd using torch.distributed.autograd._init()")
        return (self.worker << WORKER_BITS) | next(self._numbers)

    def get(self, number: int) -> Context:
        """A context; RuntimeError where there is none (any more)."""
        found = self.by_number.get(number)
        if found is None:
            raise RuntimeError(f"Could not find autograd context with id: {number}")
        return found

    def new(self) -> Context:
        """A context that begins here."""
        made = Context(self.number())
        self.by_number[made.number] = made
        return made

    def arrived(self, number: int) -> Context:
        """The context that a message names; one of its own for a message that is later than its context."""
        with self.lock:
            if number in self.released:
                return Context(number)
            return self.by_number.setdefault(number, Context(number))

    def release(self, number: int) -> Context | None:
        """Forget a context."""
        with self.lock:
            self.released[number] = None
            while len(self.released) > _MOST_RELEASED:
                self.released.popitem(last=False)
            known = self.by_number.pop(number, None)
        if known is not None:
            known.gradients.give_back()
        return known

    def clear(self) -> None:
        """RPC has ended."""
        self.by_number.clear()
        self.released.clear()
        self.worker = None


CONTEXTS = _Contexts()


def record_sent(context: Context | None, tensors: Sequence[Tensor], to: int) -> int:
    """Record tensors that go to a worker; the number of the message, 0 where nothing is recorded."""
    if context is None:
        return 0
    if to != CONTEXTS.worker:
        context.workers.add(to)
    if not tensors or not is_grad_enabled():
        return 0
    message = CONTEXTS.number()
    context.sent[message] = SendRpcBackward(tensors)
    return message


def arrived(number: int, source: int) -> Context | None:
    """The context of a request; None for a request outside of any."""
    if not number:
        return None
    context = CONTEXTS.arrived(number)
    if source != CONTEXTS.worker:
        context.workers.add(source)
    return context


def receiver(context: Context | None, message: int, source: int) -> Callable[[list[Tensor]], None] | None:
    """The node that links tensors that came in a message; None where it was not recorded."""
    if context is None or not message:
        return None

    def link(tensors: list[Tensor]) -> None:
        if source != CONTEXTS.worker:
            context.workers.add(source)
        node = RecvRpcBackward(context, message, source, len(tensors))
        for number, tensor in enumerate(tensors):
            tensor._node, tensor._rg = node, True
            if number:
                meta_of(tensor).output_nr = number

    return link


def release_everywhere(context: Context) -> None:
    """Forget a context, here and on the workers that know it from here."""
    CONTEXTS.release(context.number)
    if AGENT.current is not None:
        for worker in sorted(context.workers):
            AGENT.current.tell(worker, FrameType.CLEANUP, context.number)


def clean_up(source: int, frame: Frame) -> None:
    """Another worker has forgotten a context."""
    known = CONTEXTS.release(frame.integers[0])
    if known is not None:
        known.workers.discard(source)
        release_everywhere(known)


def current() -> Context | None:
    """The context of this thread."""
    found: Context | None = CONTEXT.current
    return found
