"""Backward on the streams of the forward: a node runs on the streams that were current where it was made.

Where a gradient goes from a node to one of other streams, an event orders the two, and the memory is not used again
before the second has passed.  Leaves accumulate on the caller's streams.  In the end these wait for all others, so that
work after a backward call sees its results, as after any other call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._backends.registry import backend_of
from rushlight._engine.autograd.node import AccumulateGrad
from rushlight._engine.core.memory import root_of
from rushlight._engine.core.tensor import Tensor

__all__ = ["TaskStreams", "streams_of"]

Streams = tuple[Any, ...]  # those that are not default ones, as in `CURRENT_STREAMS.side`


def streams_of(task: Any) -> TaskStreams | None:
    """The streams of a backward call; None where all its nodes and its caller have the default ones."""
    if CURRENT_STREAMS.side or any(
        n._extra is not None and n._extra.streams for n in (*task.roots, *task.dependencies)
    ):
        return TaskStreams(task)
    return None


class TaskStreams:
    """The streams of one backward call: which are current, and where the gradients that wait in buffers were made."""

    def __init__(self, task: Any) -> None:
        self.task = task
        self.caller: Streams = CURRENT_STREAMS.side
        self.now = self.caller
        self.used: set[Streams] = set()
        # For the node of a buffer: the streams of what is in it, and events behind it by device, where some are needed.
        self.made: dict[Any, tuple[Streams, dict[Any, Any]]] = {node: (self.caller, {}) for node in task.roots}

    def enter(self, node: Any, grads: Sequence[Any]) -> None:
        """Let the streams of a node be the current ones, and wait there for its gradients."""
        self._choose(self._of(node))
        made = self.made.pop(node, None)
        if made is not None:
            self._follow(made, grads)

    def hand(self, node: Any) -> None:
        """Before a gradient goes to the buffer of a node, made by the current streams: what is there is added to it."""
        made, events = self.made.get(node), {}
        if made is not None:  # the sum comes after this call, so its event is recorded when it is needed
            held = self.task.buffers.get(node, ())
            self._follow(made, ())
            self._use(held)
        else:
            for mine, theirs in _pairs(self.now, self._of(node)):
                if mine != theirs:
                    events[mine.device] = _event(mine)
        self.made[node] = self.now, events

    def finish(self) -> None:
        """Let the caller's streams be the current ones again, and wait for all others."""
        self._choose(self.caller)
        for streams in self.used:
            self._follow((streams, {}), self.task.results)

    def _of(self, node: Any) -> Streams:
        if isinstance(node, AccumulateGrad):
            return self.caller
        return () if node._extra is None else node._extra.streams

    def _choose(self, streams: Streams) -> None:
        if streams == self.now:
            return
        self.used.add(self.now)
        for _, theirs in _pairs(self.now, streams):
            backend_of(theirs.device).set_stream(theirs)
        self.now = streams

    def _follow(self, made: tuple[Streams, dict[Any, Any]], grads: Sequence[Any]) -> None:
        """Let the current streams wait for those that made some gradients, of which they are users from now on."""
        streams, events = made
        if streams == self.now:
            return
        for theirs, mine in _pairs(streams, self.now):
            if mine != theirs:
                mine.wait(events.get(theirs.device) or _event(theirs))
        self._use(grads)

    def _use(self, grads: Sequence[Any]) -> None:
        for tensor in _strided(grads):
            stream = CURRENT_STREAMS.by_device.get(tensor._spec.device)
            backend = backend_of(tensor._spec.device)
            if backend.asynchronous:
                device = tensor._spec.device
                backend.record_stream(root_of(tensor._storage).ptr, device, stream or backend.default_stream(device))


def _pairs(first: Streams, second: Streams) -> Iterator[tuple[Any, Any]]:
    """The streams of both for each device that has others than default ones in either."""
    held, other = {s.device: s for s in first}, {s.device: s for s in second}
    for device in held | other:
        yield (
            held.get(device) or backend_of(device).default_stream(device),
            other.get(device) or backend_of(device).default_stream(device),
        )


def _event(stream: Any) -> Any:
    """An event that marks this moment of a stream."""
    made = backend_of(stream.device).event(stream.device)
    made.record(stream)
    return made


def _strided(values: Sequence[Any]) -> Iterator[Tensor]:
    """The tensors with memory among some values, and those that tensors of other kinds are made of."""
    for value in values:
        if isinstance(value, tuple):
            yield from _strided(value)
        elif isinstance(value, Tensor):
            if value._storage is not None and value._storage.nbytes:
                yield value
            elif value._storage is None:
                yield from _strided([v for v in getattr(value, "__dict__", {}).values() if isinstance(v, Tensor)])
