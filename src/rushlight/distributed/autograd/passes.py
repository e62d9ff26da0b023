"""Backward over several workers.

A pass has two halves. First the workers learn which messages it will reach (`MARK`): each walks its graph from the nodes
it starts at, and asks the workers behind every `RecvRpcBackward` that it meets. Then gradients flow: a node runs when all
gradients that it will get are there, and a `RecvRpcBackward` sends its own on (`GRADIENTS`). So a call whose result the
loss does not depend on is no part of the pass, and nobody waits for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.autograd import edge_of, split_edge
from rushlight._interface.calls import MOST_INTEGERS, BackwardInPieces, Frame, FrameType
from rushlight.distributed.autograd.contexts import CONTEXTS, WORKER_BITS, Context, RecvRpcBackward, SendRpcBackward
from rushlight.distributed.rpc.payload import packed, unpacked
from rushlight.distributed.rpc.running import current_agent
from rushlight.futures import Future

__all__ = ["backward", "mark", "receive"]

_AT_ONCE = MOST_INTEGERS - 16  # messages that one request names


class _Gathering:
    """Futures that a piece of work has started; `then` runs once when all are done, with the first error."""

    def __init__(self, then: Callable[[Exception | None], None]) -> None:
        self._then, self._open, self._lock = then, 1, threading.Lock()
        self._error: Exception | None = None

    def begin(self) -> Callable[[Any, Exception | None], None]:
        """One more piece of work; call what comes back at its end."""
        with self._lock:
            self._open += 1
        return self._ended

    def _ended(self, _: Any, error: Exception | None) -> None:
        with self._lock:
            self._error = self._error or error
            self._open -= 1
            last = self._open == 0
        if last:
            self._then(self._error)

    def close(self, error: Exception | None = None) -> None:
        """Nothing more begins."""
        self._ended(None, error)


class _Pass:
    """One backward pass on this worker."""

    def __init__(self, context: Context, number: int, agent: Any) -> None:
        self.context, self.number, self.agent = context, number, agent
        self.pieces = BackwardInPieces(context.gradients)
        self.lock = threading.Lock()
        self.waiting: deque[tuple[list[Any], Sequence[Tensor | None], bool, _Gathering]] = deque()
        self.busy = False
        self.gathering: _Gathering | None = None
        self.keep = False

    # ***** which messages *****

    def mark(self, nodes: Sequence[Any], gathering: _Gathering) -> None:
        """Count what nodes reach, and let other workers do so for the messages that are found."""
        with self.lock:
            new = self.pieces.extend(nodes)
        by_worker: dict[int, list[int]] = {}
        for node in new:
            if type(node) is RecvRpcBackward:
                if node.context is not self.context:
                    raise RuntimeError(
                        f"backward() in the autograd context {self.context.number} reached a tensor that came in the context {node.context.number}"
                    )
                by_worker.setdefault(node.worker, []).append(node.message)
        for worker, messages in by_worker.items():
            for start in range(0, len(messages), _AT_ONCE):
                integers = (self.context.number, self.number, *messages[start : start + _AT_ONCE])
                self.agent.request(worker, FrameType.MARK, integers, [], gathering.begin())

    # ***** gradients *****

    def feed(self, edges: list[Any], grads: Sequence[Tensor | None], keep: bool, gathering: _Gathering) -> None:
        """Give gradients to nodes and run what is ready: here, or on the thread that is at it already."""
        with self.lock:
            self.waiting.append((edges, grads, keep, gathering))
            if self.busy:
                return
            self.busy = True
        while True:
            with self.lock:
                if not self.waiting:
                    self.busy = False
                    return
                edges, grads, keep, gathering = self.waiting.popleft()
            self._run(edges, grads, keep, gathering)

    def _run(self, edges: list[Any], grads: Sequence[Tensor | None], keep: bool, gathering: _Gathering) -> None:
        running = self.context.running
        outer, running.current = running.current, self
        self.gathering, self.keep = gathering, keep
        error: Exception | None = None
        try:
            self.pieces.feed(edges, grads, keep)
        except Exception as raised:
            error = raised
        finally:
            running.current = outer
        gathering.close(error)

    def send(self, node: RecvRpcBackward, grads: Sequence[Tensor | None]) -> None:
        """Send the gradients of received tensors to where they came from."""
        assert self.gathering is not None
        payload = packed([None if g is None else g.detach() for g in grads], self.agent, node.worker)
        integers = (self.context.number, self.number, node.message, int(self.keep))
        self.agent.request(node.worker, FrameType.GRADIENTS, integers, payload.parts, self.gathering.begin())


def _pass_of(context: Context, number: int, agent: Any) -> _Pass:
    """A pass; earlier ones of the same worker are over."""
    with context.lock:
        found: _Pass | None = context.passes.get(number)
        if found is None:
            for other in [p for p in context.passes if p >> WORKER_BITS == number >> WORKER_BITS]:
                del context.passes[other]
            found = context.passes[number] = _Pass(context, number, agent)
    return found


def _sent(context: Context, message: int) -> SendRpcBackward:
    node = context.sent.get(message)
    if node is None:
        raise RuntimeError(f"the autograd context {context.number} has sent no message {message}")
    return node


def _answering(agent: Any, source: int, number: int) -> _Gathering:
    def answer(error: Exception | None) -> None:
        if error is None:
            agent.callbacks.run(lambda: agent.answer(source, number))
        else:
            agent.callbacks.run(lambda: agent.fail(source, number, error))

    return _Gathering(answer)


def mark(source: int, frame: Frame) -> None:
    """Another worker's pass will reach messages of this one."""
    agent = current_agent()
    context = CONTEXTS.get(frame.integers[0])
    nodes = [_sent(context, message) for message in frame.integers[2:]]
    gathering = _answering(agent, source, frame.number)
    try:
        _pass_of(context, frame.integers[1], agent).mark(nodes, gathering)
    except Exception as error:
        gathering.close(error)
    else:
        gathering.close()


def receive(source: int, frame: Frame) -> None:
    """Gradients of tensors that were sent to another worker have come."""
    agent = current_agent()
    number, pass_number, message, keep = frame.integers
    context = CONTEXTS.get(number)
    node = _sent(context, message)
    grads = unpacked(frame.parts, agent, source)
    if not isinstance(grads, list) or len(grads) != node._n_outputs:
        raise RuntimeError(f"gradients of message {message} do not fit what was sent")
    edges = [(node, k) for k in range(len(grads))]
    _pass_of(context, pass_number, agent).feed(edges, grads, bool(keep), _answering(agent, source, frame.number))


def _awaited(start: Callable[[_Gathering], None]) -> None:
    """Run what starts requests, and wait for all of them; raises the first error."""
    done: Future[None] = Future()
    gathering = _Gathering(lambda error: done.set_result(None) if error is None else done.set_exception(error))
    try:
        start(gathering)
    except BaseException:
        gathering.close()
        raise
    done.wait()


def _checked(roots: Any) -> None:
    if not isinstance(roots, (list, tuple)) or not all(isinstance(root, Tensor) for root in roots):
        raise TypeError(f"backward(): roots must be a list of Tensors, not {roots!r}")
    if not roots:
        raise RuntimeError("No tensors provided for gradient computation.")
    for root in roots:
        if not root.requires_grad:
            raise RuntimeError("requires_grad not set on root")
        if root.numel() != 1:
            raise RuntimeError(f"root does not have exactly one element: its shape is {list(root.shape)}")


def backward(context_id: int, roots: Sequence[Tensor], retain_graph: bool = False) -> None:
    """Back-propagate from scalars through all workers that took part in a context.

    The gradients of leaves are kept in the context, on the worker that has the leaf (`get_gradients`); `.grad` stays as it
    is.  Every node of the graph is known to its worker before gradients flow, so calls on which the roots do not depend
    cost nothing.  RuntimeError for an unknown context, roots that are no scalars, and for what fails on another worker.
    """
    _checked(roots)
    context, agent = CONTEXTS.get(context_id), current_agent()
    run = _pass_of(context, CONTEXTS.number(), agent)
    edges: list[Any] = [edge_of(root) for root in roots]

    def marks(gathering: _Gathering) -> None:
        run.mark([split_edge(edge)[0] for edge in edges], gathering)
        gathering.close()

    with rushlight.no_grad():
        ones = [rushlight.ones_like(root) for root in roots]
        _awaited(marks)
        _awaited(lambda gathering: run.feed(edges, ones, retain_graph, gathering))
    if run.pieces.unfinished:
        raise RuntimeError("backward over several workers ended before all of its nodes had run; please report this")
    context.passes.pop(run.number, None)
    context.gradients.give_back()
