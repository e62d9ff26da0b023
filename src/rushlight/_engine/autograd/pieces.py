"""A backward pass whose roots get their gradients one after the other: other processes send them when they have them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappush
from typing import Any

from rushlight._engine.autograd.engine import Task, loop, run_node
from rushlight._engine.autograd.hooks import after_node, before_node
from rushlight._engine.autograd.node import AccumulateGrad, split_edge
from rushlight._engine.core.state import GRAD, STATE
from rushlight._engine.core.tensor import Tensor, alias, meta_of

__all__ = ["BackwardInPieces", "Gradients"]


class Gradients:
    """Gradients of leaves, kept beside their `.grad`.

    A leaf whose hooks want its `.grad` (of `register_post_accumulate_grad_hook`; `DistributedDataParallel` has some) gets
    it for a while: until `give_back`.
    """

    def __init__(self) -> None:
        self._places: dict[int, tuple[Tensor, Tensor, AccumulateGrad]] = {}
        self._lent: dict[int, tuple[Tensor, Tensor | None]] = {}  # leaf, and the gradient that it had

    def _place(self, leaf: Tensor) -> tuple[Tensor, Tensor, AccumulateGrad]:
        """A leaf, another one over the same memory, and what adds to the gradient of that."""
        found = self._places.get(id(leaf))
        if found is None:
            place = alias(leaf)
            place._rg = True
            found = self._places[id(leaf)] = (leaf, place, AccumulateGrad(place))
        return found

    def add(self, leaf: Tensor, node: AccumulateGrad, grads: list[Any]) -> None:
        """Add what came for a leaf; its node is taken where the leaf has hooks."""
        _, place, apart = self._place(leaf)
        if not meta_of(leaf).post_hooks:
            if grads[0] is not None:
                apart.apply(grads)
            return
        if id(leaf) not in self._lent:
            self._lent[id(leaf)] = (leaf, leaf.grad)
            leaf.grad = place.grad
        node.apply(grads)

    def give_back(self) -> None:
        """Let leaves have their own `.grad` again."""
        for leaf, own in self._lent.values():
            self._place(leaf)[1].grad = leaf.grad
            leaf.grad = own
        self._lent.clear()

    def by_leaf(self) -> dict[Tensor, Tensor]:
        """Leaf -> gradient."""
        found = {leaf: leaf.grad if id(leaf) in self._lent else place.grad for leaf, place, _ in self._places.values()}
        return {leaf: grad for leaf, grad in found.items() if grad is not None}


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
        if variable is not None:
            self.gradients.add(variable, node, grads)
        return ()
