"""The backward of a compiled program, as the nodes of its calls share it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any

from rushlight._engine.autograd.node import OpNode, node_class, split_edge
from rushlight._engine.core.state import STATE
from rushlight._engine.core.tensor import Tensor
from rushlight._engine.dispatch.backward_spec import BackwardSpec
from rushlight._engine.dispatch.graph_calls import GRAPH_CALLS
from rushlight._engine.dispatch.lower import Backward
from rushlight._graph.core import Graph
from rushlight._types.device import CPU

__all__ = ["NAME", "ProgramBackwardSpec", "Variant"]

NAME = "CompiledFunctionBackward"
# The backward graph, the sources of its saved values, and the numbers of its results for each input: more than one where
# they are not added up.
Variant = tuple[Graph, list[tuple[str, int]], list[tuple[int, ...]]]


class ProgramBackwardSpec(BackwardSpec):
    """Where some outputs have no gradient, the engine's backward from the others is recorded too: zeros in their place
    would cost time, and bits.

    `variant(mask, apart)` records it.  `several` are the edges to which an eager program gives more than one gradient
    (see `ProgramNode`).
    """

    __slots__ = ("_lock", "_variant", "_variants", "several")

    def __init__(
        self,
        backward: Backward,
        wrt: Sequence[int],
        mask: Sequence[bool],
        variant: Callable[[tuple[bool, ...], bool], Variant],
        several: Sequence[int] = (),
    ) -> None:
        super().__init__(NAME, backward, wrt, mask, CPU, GRAPH_CALLS)
        self._variant, self._lock, self.several = variant, Lock(), tuple(several)
        self._variants: dict[tuple[tuple[bool, ...], bool], tuple[Any, list[int], list[tuple[int, ...]]]] = {}
        if several:
            self.cls = _node_of_several()

    def run_once(self) -> None:
        """Let nodes run but once where the graph is not retained, also if they save nothing."""
        if not self.sources and not self.several:
            self.cls = _node_that_ends()

    def _from_results(
        self, saved: Sequence[Any], grads: Sequence[Tensor | None], run: Callable[..., Any]
    ) -> list[Tensor | None]:
        if all(g is not None or not flag for g, flag in zip(grads, self.mask, strict=True)):
            return super()._from_results(saved, grads, run)
        return [None if g is None else g[0] for g in self._from_variant(saved, grads, False)]

    def apart(self, saved: Sequence[Any], grads: Sequence[Tensor | None]) -> list[tuple[Tensor, ...] | None]:
        """The gradients for each edge, in the order in which an eager program adds them up."""
        return self._from_variant(saved, grads, True)

    def _from_variant(
        self, saved: Sequence[Any], grads: Sequence[Tensor | None], apart: bool
    ) -> list[tuple[Tensor, ...] | None]:
        mask = tuple([g is not None and flag for g, flag in zip(grads, self.mask, strict=True)])
        with self._lock:  # a recording is continued by one thread at a time
            found = self._variants.get((mask, apart))
            if found is None:
                graph, sources, outputs = self._variant(mask, apart)
                places = {source: k for k, source in enumerate(self.sources)}
                found = GRAPH_CALLS.caller(graph, NAME), [places[s] for s in sources], outputs
                self._variants[mask, apart] = found
        call, picks, outputs = found
        results = call(*[saved[k] for k in picks], *[g for g, flag in zip(grads, mask, strict=True) if flag])
        return [tuple([results[o] for o in each]) or None for each in outputs]


class ProgramNode(OpNode):
    """The backward of a program that uses an input several times.

    Eager nodes add each gradient to what has arrived for the input, one after another.  Where something has arrived
    from outside of the program, the program's own sum must not be made first: it would have other bits.
    """

    __slots__ = ()
    _quick = False

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """The gradients of the edges; of several for an edge all but the last are added to its buffer."""
        task, edges = STATE.task, self._edges
        if task is None or self.saved is None or not any(_arrived(task, edges[k]) for k in self.info.several):
            return super().apply(grads)
        found: list[Tensor | None] = []
        for edge, each in zip(edges, self.info.apart(self.unpacked(), grads), strict=True):
            for grad in each[:-1] if each is not None else ():
                task.add(edge, grad)
            found.append(None if each is None else each[-1])
        return found


def _arrived(task: Any, edge: Any) -> bool:
    """Whether a running backward call has a gradient for an edge."""
    if edge is None:
        return False
    node, number = split_edge(edge)
    buffer = task.buffers.get(node)
    return buffer is not None and number < len(buffer) and buffer[number] is not None


@cache
def _node_of_several() -> type[OpNode]:
    """The class of these nodes, with the name that other programs' nodes have."""
    return type(NAME, (ProgramNode,), {"__slots__": (), "_namespace": node_class(NAME)._namespace})


class EndingNode(OpNode):
    """The backward of a program that saves nothing, in the place of nodes that save a number."""

    __slots__ = ()
    _quick = False

    def _release(self) -> None:
        self.saved = None


@cache
def _node_that_ends() -> type[OpNode]:
    """The class of these nodes, with the name that other programs' nodes have."""
    return type(NAME, (EndingNode,), {"__slots__": (), "_namespace": node_class(NAME)._namespace})
