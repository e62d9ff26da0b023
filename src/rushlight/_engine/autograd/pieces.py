"""A backward pass whose roots get their gradients one after the other: other processes send them when they have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush
from typing import Any

from rushlight._engine.autograd.engine import Task, loop, run_node
from rushlight._engine.autograd.hooks import after_node, before_node
from rushlight._engine.autograd.node import AccumulateGrad, split_edge
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, alias

__all__ = ["BackwardInPieces", "Gradients"]


class Gradients:
    """Gradients of leaves, kept beside their `.grad`."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Tensor, Tensor, AccumulateGrad]] = {}

    def node_of(self, leaf: Tensor) -> AccumulateGrad:
        """What adds to the gradient of a leaf: the accumulation of another leaf over the same memory."""
        found = self._places.get(id(leaf))
        if found is None:
            place = alias(leaf)
            place._rg = True
            found = self._places[id(leaf)] = (leaf, place, AccumulateGrad(place))
        return found[2]

    def by_leaf(self) -> dict[Tensor, Tensor]:
        """Leaf -> gradient."""
        return {leaf: place.grad for leaf, place, _ in self._places.values() if place.grad is not None}


class BackwardInPieces:
    """Nodes are counted from all roots first (`extend`); then each root gets its gradients (`feed`), and what is ready
    runs.  Gradients of leaves go to `gradients`.
    """

    def __init__(self, gradients: Gradients) -> None:
        self.task = Task(False, False)
        self.task.run = self._run
        self.gradients = gradients
        self._seen: set[Any] = set()

    def extend(self, roots: Iterable[Any]) -> list[Any]:
        """Count what these nodes reach; the nodes that were not reached before."""
        dependencies = self.task.dependencies
        stack = [node for node in dict.fromkeys(roots) if node not in self._seen]
        self._seen.update(stack)
        new = list(stack)
        while stack:
            for edge in stack.pop()._edges:
                if edge is None:
                    continue
                after = edge[0] if type(edge) is tuple else edge
                dependencies[after] = dependencies.get(after, 0) + 1
                if after not in self._seen:
                    self._seen.add(after)
                    new.append(after)
                    stack.append(after)
        return new

    def feed(self, edges: Sequence[Any], grads: Sequence[Tensor | None], keep: bool) -> None:
        """Give gradients to roots, and run what is ready."""
        task = self.task
        heap: list[Any] = []
        task.keep = keep
        ready = set()
        for edge, grad in zip(edges, grads, strict=True):
            node = split_edge(edge)[0]
            if grad is not None:
                task.add(edge, grad)
            if node not in ready and not task.dependencies.get(node):
                ready.add(node)
                heappush(heap, (-node._seq, id(node), node))
        state = STATE
        before, outer, hooks = state.word, state.task, state.saved_hooks
        state.saved_hooks = list(hooks)
        state.word, state.task = before & ~GRAD, task
        try:
            loop(task, heap)
            for callback in task.after:
                callback()
            task.after.clear()
        finally:
            state.word, state.task, state.saved_hooks = before, outer, hooks

    @property
    def unfinished(self) -> int:
        """How many nodes have gradients and have not run."""
        return len(self.task.buffers)

    def _run(self, node: Any, grads: list[Any]) -> Any:
        if type(node) is not AccumulateGrad:
            return run_node(node, grads)
        extra, variable = node._extra, node.variable
        if extra is not None and extra.pre_hooks is not None:
            grads[:] = before_node(extra.pre_hooks, grads)
        if extra is not None and extra.post_hooks is not None:
            after_node(node, extra.post_hooks, (), tuple(grads))
        if variable is not None and grads[0] is not None:
            self.gradients.node_of(variable).apply(grads)
        return ()
