"""Backward in two halves: gradients of some inputs at once, those of all other leaves later.

A pipeline's rank sends the first on, and computes the second where it would wait (Qi et al., 2023).  Nodes that lead to
one of the inputs run in the first half, and there compute what goes on towards the inputs alone.  Where such a node has
an edge to other leaves, its gradients are kept; the second half computes what it left out, and walks on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush
from typing import Any

from rushlight._engine.autograd.engine import Task, capture, execute, loop, root_edge, run_backward, run_node
from rushlight._engine.autograd.node import GradientEdge, OpNode, split_edge
from rushlight._engine.core.tensor import Tensor

__all__ = ["run_in_halves"]


class _Halves:
    """State that the first half of a backward call leaves to the second."""

    def __init__(self, task: Task) -> None:
        needed = task.needed or set()
        self.path = {node for node in needed if node not in task.captures}
        # For each node on the path with other edges too: the numbers of the edges on the path, and of the others.
        self.edges: dict[Any, tuple[list[int], list[int]]] = {}
        for node in self.path:
            inner: list[int] = []
            outer: list[int] = []
            for k, edge in enumerate(node._edges):
                if edge is not None:
                    after = split_edge(edge)[0]
                    (inner if after in needed or after in task.captures else outer).append(k)
            if outer:
                self.edges[node] = inner, outer
        self.left: list[tuple[Any, list[Tensor | None]]] = []  # nodes that have edges to do, and their gradients
        self.roots: list[tuple[Any, Tensor]] = []  # edges, and gradients that go there

    def run(self, node: Any, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Run a node in the first half."""
        parts = self.edges.get(node)
        if parts is None:
            return run_node(node, grads)
        extra = node._extra
        hooked = extra is not None and (extra.pre_hooks is not None or extra.post_hooks is not None)
        if isinstance(node, OpNode) and not hooked and any(g is not None for g in grads):
            found = node.apply_for(grads, parts[0])
            if found is not None:
                self.left.append((node, grads))
                return found
        found = run_node(node, grads)
        if found:
            self._add(node, found)
        return found

    def _add(self, node: Any, found: Sequence[Tensor | None]) -> None:
        for k in self.edges[node][1]:
            grad = found[k]
            if grad is not None:
                self.roots.append((node._edges[k], grad))

    def second(self) -> None:
        """Compute what was left out, and add to `.grad` of leaves."""
        if self.left:
            # One call for all, so that hooks of saved tensors that compute a part anew do it once.
            execute(Task(False, False), [], self._finish)
        roots = [GradientEdge(*split_edge(edge)) for edge, _ in self.roots]
        if roots:
            run_backward(roots, [grad for _, grad in self.roots], False, False)
        self.left, self.roots = [], []

    def _finish(self) -> None:
        for node, grads in self.left:
            found = node.apply_for(grads, self.edges[node][1])
            if found is None:  # a hook has unpacked a saved tensor in another layout than before
                found = node.apply(list(grads))
            self._add(node, found)
            node._release()


def run_in_halves(
    outputs: Sequence[Tensor], grads: Sequence[Tensor], inputs: Sequence[Tensor]
) -> tuple[list[Tensor | None], Callable[[], None]]:
    """The gradients of `inputs`, and a function that adds those of all other leaves to `.grad`.

    Both halves together free the graph.
    """
    edges = [root_edge(t) for t in outputs]
    nodes = [split_edge(edge)[0] for edge in edges]
    if not inputs:
        return [], lambda: _rest(outputs, grads)
    task = Task(True, False)
    task.count(nodes)
    capture(task, nodes, inputs, False)
    halves = _Halves(task)
    task.run = halves.run
    heap: list[Any] = []
    ready = set()
    for edge, grad in zip(edges, grads, strict=True):
        if not task.runs(split_edge(edge)[0]):
            halves.roots.append((edge, grad))
            continue
        node = task.add(edge, grad)
        if node not in ready and not task.dependencies.get(node):
            ready.add(node)
            heappush(heap, (-node._seq, id(node), node))
    if heap:
        execute(task, [], lambda: loop(task, heap))
    for node in halves.path:
        if node not in halves.edges:
            node._release()
    left = {id(node) for node, _ in halves.left}
    for node in halves.edges:
        if id(node) not in left:
            node._release()
    return task.results, halves.second


def _rest(outputs: Sequence[Tensor], grads: Sequence[Tensor]) -> None:
    run_backward(outputs, grads, False, False)
