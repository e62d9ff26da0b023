"""The backward loop: one pass over a priority queue of nodes, latest first.

The order is PyTorch's: nodes with higher sequence numbers (made later) first, gradient accumulation as soon as it is ready.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from threading import RLock
from typing import Any

from rushlight._base.forking import free_after_fork
from rushlight._engine.autograd.node import ACCUMULATE, AccumulateGrad, GradientEdge, split_edge
from rushlight._engine.kinds import Kind
from rushlight._engine.native_plans import ready
from rushlight._engine.state import ANOMALY, GRAD, OBSERVED, STATE, TRANSFORMS
from rushlight._engine.tensor import Tensor, alias, asking_classes, edge_of, meta_of, plain_classes
from rushlight._engine.watch import observed_node
from rushlight._types.device import CPU
from rushlight._types.dtype import FLOAT32

__all__ = ["accumulate_into", "queue_callback", "run_backward", "task_number"]



class _Operators(dict[str, Any]):
    """Functions by name; those in `makers` are made when they are first asked for."""

    def __init__(self) -> None:
        self.makers: dict[str, Callable[[], Any]] = {}

    def __missing__(self, name: str) -> Any:
        found = self[name] = self.makers[name]()
        return found


# Operators that the loop itself needs; `_surface` sets them once the table is complete.
OPS = _Operators()
_ACCUMULATING = RLock()
free_after_fork(_ACCUMULATING)


def accumulate_into(variable: Tensor, grad: Tensor) -> None:
    """`variable.grad += grad`, where the first gradient is taken over if nobody else holds it."""
    meta = meta_of(variable)
    _ACCUMULATING.acquire()  # threads may share a leaf
    try:
        held = meta.grad
        if STATE.word & GRAD:  # create_graph
            meta.grad = grad if held is None else _joined(held, grad)
        elif held is None:
            meta.grad = _own(variable, grad)
        elif isinstance(held, Kind) and not isinstance(grad, Kind):  # a sparse gradient becomes a strided one
            meta.grad = OPS["add"](grad, held)
        else:
            OPS["add_"](held, grad)
    finally:
        _ACCUMULATING.release()
    if meta.post_hooks:
        for hook in list(meta.post_hooks.values()):
            made = hook(variable)
            if made is not None and not isinstance(made, Tensor):
                raise TypeError(f"expected Variable, but hook returned '{type(made).__name__}'")
            if made is not None and made is not variable:  # `lambda p: p.add_(...)` gives p itself
                raise RuntimeError("Tensor post accumulate grad hooks should return None.")


ACCUMULATE.append(accumulate_into)


def _joined(held: Tensor, grad: Tensor) -> Tensor:
    """The sum of two gradients; a kind comes second, since a sparse tensor cannot take a strided one in."""
    return OPS["add"](grad, held) if isinstance(held, Kind) else OPS["add"](held, grad)


# References to a gradient that nobody else holds, and to its storage, as `_own` sees them: measured, since interpreters differ.
_LIMITS: list[int] = []


def _measure() -> None:
    _LIMITS[:] = -1, -1
    leaf = OPS["zeros"]((1,), dtype=FLOAT32, device=CPU)
    AccumulateGrad(leaf).apply([OPS["zeros"]((1,), dtype=FLOAT32, device=CPU)])


def _own(variable: Tensor, grad: Tensor) -> Tensor:
    """The gradient as a tensor of its own, laid out like the variable."""
    spec = variable._spec
    if not _LIMITS:
        _measure()
    # More references than a fresh gradient has mean that the user, another edge or a view can see this memory, and that adding to `.grad`
    # later would show there.
    if (
        sys.getrefcount(grad) <= _LIMITS[0]
        and sys.getrefcount(grad._storage) <= _LIMITS[1]
        and (grad._spec is spec or not STATE.grads_like_leaves)
        and grad._node is None
    ):
        return grad
    if _LIMITS[0] < 0:
        _LIMITS[:] = sys.getrefcount(grad), sys.getrefcount(grad._storage)
        return grad
    if isinstance(grad, Kind):
        return grad.clone()
    if grad._spec.shape != spec.shape:
        grad = OPS["expand"](grad, spec.shape)
    if not STATE.grads_like_leaves:
        return OPS["clone"](grad)
    return OPS["clone_like"](grad, spec) if spec.numel else OPS["clone_like"](alias(grad), spec)


class _Task:
    """What one backward call knows."""

    __slots__ = (
        "__weakref__", "after", "buffers", "captures", "create_graph", "dependencies", "keep", "needed", "notes", "results", "roots", "run",
    )  # fmt: skip

    def __init__(self, keep: bool, create_graph: bool) -> None:
        self.keep, self.create_graph = keep, create_graph
        self.dependencies: dict[Any, int] = {}
        self.buffers: dict[Any, list[Tensor | None]] = {}
        self.needed: set[Any] | None = None
        self.captures: dict[Any, list[tuple[int, int]]] = {}
        self.results: list[Tensor | None] = []
        self.roots: set[Any] = set()
        self.run: Any = _run
        self.notes: dict[Any, Any] = {}  # what hooks over several gradients remember during this call
        self.after: list[Any] = []  # what hooks want to be called at the end

    def runs(self, node: Any) -> bool:
        """Whether this call reaches a node."""
        return node in self.needed if self.needed is not None else node in self.dependencies or node in self.roots

    def count(self, roots: Sequence[Any]) -> None:
        """How many edges lead to each node that the roots reach."""
        dependencies = self.dependencies
        stack = list(set(roots))
        self.roots = roots = set(stack)
        while stack:
            for edge in stack.pop()._edges:
                if edge is None:
                    continue
                after = edge[0] if type(edge) is tuple else edge
                held = dependencies.get(after)
                if held is not None:
                    dependencies[after] = held + 1
                else:
                    dependencies[after] = 1
                    if after not in roots:
                        stack.append(after)

    def restrict(self, roots: Sequence[Any], targets: set[Any]) -> None:
        """Mark the nodes from which one of `targets` can be reached: only those must run."""
        needed: dict[Any, bool] = {}
        stack = [(node, False) for node in roots]
        while stack:
            node, done = stack.pop()
            if done:
                needed[node] = node in targets or any(
                    needed.get(edge[0] if type(edge) is tuple else edge, False)
                    for edge in node._edges
                    if edge is not None
                )
            elif node not in needed:
                needed[node] = False
                stack.append((node, True))
                for edge in node._edges:
                    if edge is not None:
                        after = edge[0] if type(edge) is tuple else edge
                        if after not in needed:
                            stack.append((after, False))
        self.needed = {node for node, wanted in needed.items() if wanted}

    def add(self, edge: Any, grad: Tensor) -> Any:
        """Add a gradient to the buffer of the edge's node; returns the node."""
        node, number = edge if type(edge) is tuple else (edge, 0)
        buffer = self.buffers.get(node)
        if buffer is None:
            buffer = self.buffers[node] = [None] * max(node._n_outputs, number + 1)
        elif number >= len(buffer):
            buffer.extend([None] * (number + 1 - len(buffer)))
        held = buffer[number]
        buffer[number] = grad if held is None else _joined(held, grad)
        return node


def queue_callback(callback: Any) -> None:
    """Call `callback()` when the backward call that is running has ended; RuntimeError where none runs."""
    if STATE.task is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    STATE.task.after.append(callback)


_NUMBERS = count()


def task_number() -> int:
    """The number of the backward call that is running, which no other one has; -1 where none runs."""
    task = STATE.task
    if task is None:
        return -1
    if "number" not in task.notes:
        task.notes["number"] = next(_NUMBERS)
    return int(task.notes["number"])


def root_edge(root: Any) -> Any:
    """Where backward starts for a tensor or a `GradientEdge`."""
    return (root[0], root[1]) if isinstance(root, GradientEdge) else edge_of(root)


def run_backward(
    tensors: Sequence[Any],
    grads: Sequence[Tensor],
    keep_graph: bool,
    create_graph: bool,
    inputs: Sequence[Tensor] | None = None,
    accumulate: bool = True,
) -> list[Tensor | None]:
    """Back-propagate `grads` from `tensors`.  With `inputs`, only what leads to them runs; unless `accumulate`, their gradients are returned."""
    task = _Task(keep_graph, create_graph)
    if asking_classes and "run" in TRANSFORMS and any(type(g) not in plain_classes for g in grads):
        task.run = TRANSFORMS["run"]
    if STATE.word & OBSERVED:
        task.run = observed_node(task.run)
    roots = [root_edge(t) for t in tensors]
    nodes = [e[0] if type(e) is tuple else e for e in roots]
    task.count(nodes)
    if inputs is not None:
        _capture(task, nodes, inputs, accumulate)
    heap: list[Any] = []
    ready = set()
    grad = None
    for edge, grad in zip(roots, grads, strict=True):
        node = task.add(edge, grad)
        if node not in ready and not task.dependencies.get(node):
            ready.add(node)
            heappush(heap, (-node._seq, id(node), node))
    del grads, grad  # `.grad` may take the first gradient over: hold no reference to it here
    state = STATE
    before = state.word
    state.word = before | GRAD if create_graph else before & ~GRAD
    outer, state.task = state.task, task
    try:
        _loop(task, heap)
    finally:
        state.word, state.task = before, outer
    for callback in task.after:
        callback()
    return task.results


def _capture(task: _Task, nodes: list[Any], inputs: Sequence[Tensor], accumulate: bool) -> None:
    targets = set()
    task.results = [None] * len(inputs)
    for i, tensor in enumerate(inputs):
        edge = tensor if isinstance(tensor, GradientEdge) else edge_of(tensor)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        node, number = split_edge(edge)
        targets.add(node)
        if not accumulate:
            task.captures.setdefault(node, []).append((number, i))
        elif not isinstance(node, AccumulateGrad):
            task.captures.setdefault(node, []).append((number, ~i))
            task.results[i] = tensor
    task.restrict(nodes, targets)


def _loop(task: _Task, heap: list[Any]) -> None:
    dependencies, buffers, needed, captures = task.dependencies, task.buffers, task.needed, task.captures
    release, run = not task.keep, task.run
    quick = ready().quick_backward if run is _run and not STATE.word & (ANOMALY | GRAD) else None
    leaves: list[Any] = []  # those that are ready: they go first, and need no order
    while heap or leaves:
        node = leaves.pop() if leaves else heappop(heap)[2]
        grads: list[Any] | None = buffers.pop(node, None)
        if grads is None:
            grads = [None] * node._n_outputs
        extra = node._extra
        if extra is not None and (extra.tensor_hooks is not None or extra.retain is not None):
            _run_tensor_hooks(extra, grads)
        elif type(node) is AccumulateGrad:
            _run_leaf_hooks(node, grads)
        if captures and node in captures:
            _store(task, captures[node], grads)
        if needed is not None and (node not in needed or (node in captures and type(node) is AccumulateGrad)):
            found: Sequence[Tensor | None] = ()
        elif quick is not None and extra is None and node._quick and len(grads) == 1 and grads[0] is not None:
            found = quick(node, grads[0])
            if found is NotImplemented:
                found = run(node, grads)
        else:
            found = run(node, grads)
        del grads
        edges = node._edges
        for i, edge in enumerate(edges):
            if edge is None:
                continue
            after, number = edge if type(edge) is tuple else (edge, 0)
            if found:
                grad = found[i]
                if grad is not None and (needed is None or after in needed):
                    buffer = buffers.get(after)
                    if buffer is None and number == 0 and after._n_outputs == 1:
                        buffers[after] = [grad]
                    else:
                        task.add(edge, grad)
                del grad  # `.grad` may take the tensor over: hold no reference to it here
            left = dependencies[after] - 1
            dependencies[after] = left
            if left == 0:
                if type(after) is AccumulateGrad:
                    leaves.append(after)
                else:
                    heappush(heap, (-after._seq, id(after), after))
        found = ()
        if release and edges:
            node._release()


def _run(node: Any, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
    if grads[0] is None and all(g is None for g in grads) and not getattr(node, "_wants_none", False):
        return ()
    extra = node._extra
    if extra is None and not STATE.word & ANOMALY:
        return node.apply(grads)
    if extra is not None and extra.pre_hooks is not None:
        for hook in list(extra.pre_hooks.values()):
            replaced = hook(tuple(grads))
            if replaced is not None:
                if not isinstance(replaced, tuple):
                    raise TypeError(f"expected tuple, but hook returned '{type(replaced).__name__}'")
                grads = list(replaced)
    from rushlight._engine.autograd.anomaly import run_watched

    return run_watched(node, grads)


def _hooked(hooks: Any, grad: Tensor) -> Tensor:
    """The gradient after all hooks of one tensor."""
    for hook in list(hooks.values()):
        replaced = hook(grad)
        if replaced is None:
            continue
        if not isinstance(replaced, Tensor):
            raise TypeError(f"expected Variable, but hook returned '{type(replaced).__name__}'")
        if replaced._spec.shape != grad._spec.shape:
            raise RuntimeError(f"hook '{getattr(hook, '__name__', hook)}' has changed the size of value")
        if replaced._spec.dtype is not grad._spec.dtype:
            raise RuntimeError(
                f"hook '{getattr(hook, '__name__', hook)}' has changed the type of value (was {grad.dtype} got {replaced.dtype})"
            )
        grad = replaced
    return grad


def _run_leaf_hooks(node: AccumulateGrad, grads: list[Tensor | None]) -> None:
    variable = node._variable()
    hooks = variable._autograd_meta.hooks if variable is not None and variable._autograd_meta is not None else None
    if hooks:
        grad = grads.pop()
        grads.append(None if grad is None else _hooked(hooks, grad))


def _run_tensor_hooks(extra: Any, grads: list[Tensor | None]) -> None:
    for number, hooks in sorted((extra.tensor_hooks or {}).items()):
        held = grads[number] if number < len(grads) else None
        if held is not None:
            grads[number] = _hooked(hooks, held)
    for number, retained in (extra.retain or {}).items():
        tensor = retained()
        grad = grads[number] if number < len(grads) else None
        if tensor is not None and grad is not None:
            meta = meta_of(tensor)
            meta.grad = (grad.clone() if isinstance(grad, Kind) else OPS["clone"](grad)) if meta.grad is None else _joined(meta.grad, grad)


def _store(task: _Task, wanted: list[tuple[int, int]], grads: list[Tensor | None]) -> None:
    for number, place in wanted:
        grad = grads[number] if number < len(grads) else None
        if place >= 0:
            if grad is not None and type(grads) is list:
                task.results[place] = grad
        elif grad is not None:  # backward(inputs=[non-leaf]) adds to its .grad
            tensor: Any = task.results[~place]
            meta = meta_of(tensor)
            meta.grad = grad if meta.grad is None else _joined(meta.grad, grad)
