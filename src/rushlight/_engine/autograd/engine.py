"""The backward loop: one pass over a priority queue of nodes, latest first.

The order is PyTorch's: nodes with higher sequence numbers (made later) first, gradient accumulation as soon as it is
ready.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from heapq import heappop, heappush
from itertools import count
from threading import RLock
from typing import Any

from rushlight._backends.current_streams import CURRENT_STREAMS
from rushlight._base.forking import free_after_fork
from rushlight._base.lazy import LazyModule
from rushlight._engine.autograd.hooks import after_node, before_node, retain, run_leaf_hooks, run_tensor_hooks
from rushlight._engine.autograd.node import AccumulateGrad, GradientEdge, Node, split_edge
from rushlight._engine.core.hooks import HOOKS, OPS
from rushlight._engine.core.state import ANOMALY, FUNCTION_MODE, GRAD, OBSERVED, STATE, TRANSFORMS, in_thread
from rushlight._engine.core.tensor import Tensor, alias, dispatch_classes, edge_of, meta_of, plain_classes
from rushlight._engine.dispatch.plans.native_plans import ready
from rushlight._engine.dispatch.watch import observed_node
from rushlight._engine.dispatch_types.base import DispatchType
from rushlight._types.device import CPU
from rushlight._types.dtype import FLOAT32

anomaly: Any = LazyModule("rushlight._engine.autograd.anomaly")
of_forward: Any = LazyModule("rushlight._engine.autograd.streams")

__all__ = [
    "Task", "accumulate_into", "capture", "execute", "filled", "joined_gradients", "loop", "queue_callback", "root_edge", "run_backward", "run_leaves",
    "run_node", "task_number", "will_run",
]  # fmt: skip


_ACCUMULATING = free_after_fork(RLock())
_WATCHED = GRAD | FUNCTION_MODE


def accumulate_into(variable: Tensor, grad: Tensor | None) -> None:
    """`variable.grad += grad`, then the leaf's hooks.  The first gradient is used as it is if nothing else refers to
    it.
    """
    meta = meta_of(variable)
    if grad is not None and variable._rg:  # a leaf that has left the graph meanwhile gets nothing
        if meta.grad_dtype is not ... and meta.grad_dtype is not None and grad._spec.dtype is not meta.grad_dtype:
            grad = grad.to(meta.grad_dtype)
        _ACCUMULATING.acquire()  # threads may share a leaf
        try:
            held = meta.grad
            if held is None and not STATE.word & _WATCHED and (not dispatch_classes or type(grad) is Tensor):
                meta.grad = _own(variable, grad)
            elif STATE.word & GRAD:  # create_graph
                meta.grad = grad if held is None else joined_gradients(held, grad)
            elif held is None:
                own = HOOKS.own_below if STATE.word & FUNCTION_MODE or type(grad) in dispatch_classes else _own
                meta.grad = own(variable, grad)
            elif isinstance(held, DispatchType) and not isinstance(grad, DispatchType):
                # A sparse gradient becomes a strided one
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


HOOKS.accumulate = accumulate_into


def joined_gradients(held: Tensor, grad: Tensor) -> Tensor:
    """The sum of two gradients; one of a special kind comes second, because a sparse tensor cannot add a strided one in
    place.
    """
    return OPS["add"](grad, held) if isinstance(held, DispatchType) else OPS["add"](held, grad)


# Reference counts of an unshared gradient and its storage, as `_own` sees them; measured, since interpreters differ.
_LIMITS: list[int] = []


def _measure() -> None:
    _LIMITS[:] = -1, -1
    leaf = OPS["zeros"]((1,), dtype=FLOAT32, device=CPU)
    leaf._rg = True
    AccumulateGrad(leaf).apply([OPS["zeros"]((1,), dtype=FLOAT32, device=CPU)])


def _own(variable: Tensor, grad: Tensor) -> Tensor:
    """The gradient as an unshared tensor with the layout of the variable."""
    spec = variable._spec
    if not _LIMITS:
        _measure()
    # More references than a fresh gradient has: the user, another edge or a view can see this memory, and adding to
    # `.grad` later would show there.
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
    if isinstance(grad, DispatchType):
        return grad.clone()
    if grad._spec.shape != spec.shape:
        grad = OPS["expand"](grad, spec.shape)
    if not STATE.grads_like_leaves:
        return OPS["clone"](grad)
    return OPS["clone_like"](grad, spec) if spec.numel else OPS["clone_like"](alias(grad), spec)


class Task:
    """The state of one backward call."""

    __slots__ = (
        "__weakref__", "after", "apart", "buffers", "captures", "create_graph", "dependencies", "depth", "ends", "keep", "needed", "notes", "results", "roots",
        "run",
    )  # fmt: skip

    def __init__(self, keep: bool, create_graph: bool) -> None:
        self.keep, self.create_graph = keep, create_graph
        self.dependencies: dict[Any, int] = {}
        self.buffers: dict[Any, list[Tensor | None]] = {}
        # Where inputs are given: the nodes that run, and for others (or these) which gradients are results: (output
        # number, place).
        self.needed: set[Any] | None = None
        self.captures: dict[Any, list[tuple[int, int]]] = {}
        self.results: list[Any] = []
        # Gradients after the first one for what `captures` names, where they are not to be added up.
        self.apart: dict[tuple[Any, int], list[Tensor]] | None = None
        self.ends: frozenset[Any] = frozenset()  # nodes behind which nothing runs
        self.depth = 0  # how many backward calls it runs inside of
        self.roots: set[Any] = set()
        self.run: Any = run_node
        self.notes: dict[Any, Any] = {}  # state of hooks over several gradients during this call
        self.after: list[Any] = []  # callbacks that hooks queued for the end

    def runs(self, node: Any) -> bool:
        """Whether this call reaches a node."""
        if self.needed is not None:
            return node in self.needed or node in self.captures
        return node in self.dependencies or node in self.roots

    def count(self, roots: Sequence[Any]) -> None:
        """How many edges lead to each node that the roots reach."""
        dependencies = self.dependencies
        stack = list(set(roots))
        self.roots = roots = set(stack)
        ends = self.ends
        while stack:
            node = stack.pop()
            if ends and node in ends:
                continue
            for edge in node._edges:
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
        """Find the nodes that must run: `targets`, and those from which one of them or a capture can be reached."""
        needed, captures = targets, self.captures
        visited: set[Any] = set()
        stack: list[tuple[Any, list[Any] | None]] = [(node, None) for node in roots]
        while stack:
            node, following = stack.pop()
            if following is not None:  # all nodes that follow were visited
                for after in following:
                    if after in needed or after in captures:
                        needed.add(node)
                        break
            elif node not in visited:
                visited.add(node)
                if node in self.ends:
                    continue
                following = [edge[0] if type(edge) is tuple else edge for edge in node._edges if edge is not None]
                stack.append((node, following))
                for after in following:
                    if after not in visited:
                        stack.append((after, None))
        self.needed = needed

    def add(self, edge: Any, grad: Tensor) -> Any:
        """Add a gradient to the buffer of the edge's node; returns the node."""
        node, number = edge if type(edge) is tuple else (edge, 0)
        buffer = self.buffers.get(node)
        if buffer is None:
            buffer = self.buffers[node] = [None] * max(node._n_outputs, number + 1)
        elif number >= len(buffer):
            buffer.extend([None] * (number + 1 - len(buffer)))
        held = buffer[number]
        if held is not None and self.apart is not None and node in self.captures:
            self.apart.setdefault((node, number), []).append(grad)
        else:
            buffer[number] = grad if held is None else joined_gradients(held, grad)
        return node


# A backward call nested this deep runs in a new thread, because the stack of a thread is limited.
DEEPEST = 20


def queue_callback(callback: Any) -> None:
    """Call `callback()` at the end of the running backward call; RuntimeError if none is running."""
    if STATE.task is None:
        raise RuntimeError("Final callbacks can only be installed during backward pass.")
    STATE.task.after.append(callback)


def will_run(node: Any) -> bool:
    """Whether the backward call that is running reaches a node; RuntimeError where none runs, or for a leaf that `grad`
    asks for.
    """
    if not isinstance(node, Node):
        raise RuntimeError(f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}")
    task = STATE.task
    if task is None:
        raise RuntimeError("_get_should_execute_nodes should only be called during the backward pass")
    if node in task.captures and isinstance(node, AccumulateGrad):
        raise RuntimeError(
            "A leaf node was passed to _will_engine_execute_node but we are currently running autograd.grad(). This is currently not supported."
        )
    return bool(task.runs(node))


_NUMBERS = count()


def task_number() -> int:
    """The unique number of the running backward call; -1 if none is running."""
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
    inputs: Sequence[Tensor | GradientEdge] | None = None,
    accumulate: bool = True,
    apart: bool = False,
    ends: Collection[Any] = (),
    idle: set[Any] | None = None,
) -> list[Any]:
    """Back-propagate `grads` from `tensors`.  With `inputs` only nodes on a path to them run; without `accumulate`
    their gradients are returned: with `apart` as a tuple of what would be added up, where that is more than one.
    Nothing behind the nodes `ends` runs.  `idle` gets the nodes that only None reaches, which compute nothing.
    """
    task = Task(keep_graph, create_graph)
    task.apart, task.ends = {} if apart else None, frozenset(ends)
    if HOOKS.asks and "run" in TRANSFORMS and any(type(g) not in plain_classes for g in grads):
        task.run = TRANSFORMS["run"]
    if STATE.word & OBSERVED:
        task.run = observed_node(task.run)
    if idle is not None:
        task.run = _noting_idle(task.run, idle)
    roots = [root_edge(t) for t in tensors]
    nodes = [e[0] if type(e) is tuple else e for e in roots]
    if HOOKS.walk is not None and inputs is None and len(roots) == 1 and not task.ends and STATE.task is None:
        known = HOOKS.walk.recognised(task, roots[0], grads[0])
        if known is not None:
            execute(task, [], known)
            return task.results
    task.count(nodes)
    if inputs is not None:
        capture(task, nodes, inputs, accumulate)
    heap: list[Any] = []
    ready = set()
    grad = None
    for edge, grad in zip(roots, grads, strict=True):
        node = task.add(edge, grad)
        if len(roots) > 1 and not task.runs(node):
            continue
        if node not in ready and not task.dependencies.get(node):
            ready.add(node)
            heappush(heap, (-node._seq, id(node), node))
    del grads, grad  # `.grad` may take the first gradient over: hold no reference to it here
    outer = STATE.task
    if outer is not None:
        task.depth = outer.depth + 1
        if not task.depth % DEEPEST:
            in_thread(execute, task, heap)
            return task.results
    execute(task, heap)
    return task.results


def _noting_idle(run: Any, idle: set[Any]) -> Any:
    """How nodes run, with those that compute nothing added to `idle`."""

    def noted(node: Any, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if not node._wants_none and all(g is None for g in grads):
            idle.add(node)
        found: Sequence[Tensor | None] = run(node, grads)
        return found

    return noted


def execute(task: Task, heap: list[Any], known: Callable[[], None] | None = None) -> None:
    """Run ready nodes until none is left, or what does all that they do (`known`), then the callbacks that hooks queued,
    and those that callbacks queue.
    """
    state = STATE
    before, outer, hooks = state.word, state.task, state.saved_hooks
    state.saved_hooks = list(hooks)  # contexts entered by hooks do not leak out
    state.word, state.task = before | GRAD if task.create_graph else before & ~GRAD, task
    try:
        if known is not None:
            known()
        elif CURRENT_STREAMS.ever and (streams := of_forward.streams_of(task)) is not None:
            try:
                loop(task, heap, streams)
            finally:
                streams.finish()
        elif HOOKS.walk is None or not HOOKS.walk(task, heap):
            loop(task, heap)
        for callback in task.after:  # grows while callbacks ask for more
            callback()
    finally:
        state.word, state.task, state.saved_hooks = before, outer, hooks


def capture(task: Task, nodes: list[Any], inputs: Sequence[Tensor | GradientEdge], accumulate: bool) -> None:
    """Mark what leads to `inputs`.  With `accumulate` their nodes run (those of non-leaves retain the gradient), else
    their gradients are results.
    """
    targets: set[Any] = set()
    task.results = [None] * len(inputs)
    for i, tensor in enumerate(inputs):
        edge = tensor if isinstance(tensor, GradientEdge) else edge_of(tensor)
        if edge is None:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        node, number = split_edge(edge)
        if not accumulate:
            task.captures.setdefault(node, []).append((number, i))
            continue
        targets.add(node)
        if isinstance(tensor, Tensor) and tensor._node is not None and not meta_of(tensor).retains:
            retain(tensor)
    task.restrict(nodes, targets)


def loop(task: Task, heap: list[Any], streams: Any = None) -> None:
    dependencies, buffers, needed, captures = task.dependencies, task.buffers, task.needed, task.captures
    release, run = not task.keep, task.run
    quick = ready().quick_backward if run is run_node and not STATE.word & (ANOMALY | GRAD) else None
    leaves: list[Any] = []  # ready accumulations: they go first, in any order
    first = 0 if STATE.word & FUNCTION_MODE else -1  # a mode sees them in PyTorch's order
    while heap or leaves:
        node = leaves.pop(first) if leaves else heappop(heap)[2]
        grads: list[Any] | None = buffers.pop(node, None)
        if grads is None:
            grads = [None] * node._n_outputs
        if streams is not None:
            streams.enter(node, grads)
        if needed is not None and (node not in needed or node in captures) and not _captured(task, needed, node, grads):
            continue
        extra = node._extra
        if extra is not None and (extra.tensor_hooks is not None or extra.retain is not None):
            if not node._staged or not node.in_stages(task, grads):
                run_tensor_hooks(extra, grads)
        elif type(node) is AccumulateGrad:
            run_leaf_hooks(node, grads)
        if quick is not None and extra is None and node._quick and len(grads) == 1 and grads[0] is not None:
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
            if needed is not None and after not in needed and after not in captures:
                continue
            if found:
                grad = found[i]
                if grad is not None:
                    if streams is not None:
                        streams.hand(after)
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


def run_leaves(task: Task, edges: Sequence[Any]) -> None:
    """Run the accumulations that wait for nothing but these edges of a node that fails, through which nothing comes."""
    for edge in edges:
        node = None if edge is None else split_edge(edge)[0]
        if type(node) is not AccumulateGrad or node not in task.buffers or node not in task.dependencies:
            continue
        task.dependencies[node] -= 1
        if task.dependencies[node] or (task.needed is not None and (node not in task.needed or node in task.captures)):
            continue
        grads = task.buffers.pop(node)
        run_leaf_hooks(node, grads)
        task.run(node, grads)


def _captured(task: Task, needed: set[Any], node: Any, grads: list[Any]) -> bool:
    """Store the gradients that are results.  Returns whether the node runs too; then the hooks of its tensors run
    later, as in PyTorch.
    """
    runs = node in needed
    if node._staged and node.in_stages(task, grads):
        return runs
    if not runs:
        if type(node) is AccumulateGrad:
            run_leaf_hooks(node, grads)
        elif node._extra is not None:
            run_tensor_hooks(node._extra, grads)
    for number, place in task.captures.get(node, ()):
        if number < len(grads):
            more = task.apart.get((node, number)) if task.apart else None
            task.results[place] = grads[number] if more is None else (grads[number], *more)
    return runs


def run_node(node: Any, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
    extra = node._extra
    if extra is None:
        if grads[0] is None and all(g is None for g in grads) and not node._wants_none:
            return ()
        if not STATE.word & ANOMALY:
            found = node.apply(grads)
            # Of hooks that hooks for saved tensors have put there
            hooks = None if node._extra is None else node._extra.post_hooks
            return found if hooks is None else after_node(node, hooks, found, tuple(grads))
    elif extra.pre_hooks is not None:
        grads = before_node(extra.pre_hooks, grads)
    return anomaly.run_watched(node, grads)


def filled(
    found: Sequence[Any],
    wanted: Sequence[Any],
    allow_unused: bool | None,
    materialize: bool,
    create_graph: bool = False,
) -> tuple[Any, ...]:
    """The gradients, with zeros (that require a gradient with `create_graph`) or None for inputs that were not reached,
    or RuntimeError.
    """
    result: list[Any] = []
    for k, (tensor, gradient) in enumerate(zip(wanted, found, strict=True)):
        if gradient is None and materialize:
            if isinstance(tensor, GradientEdge):
                raise RuntimeError("materialize_grads cannot be used when the given input is a GradientEdge")
            gradient = OPS["zeros_like"](tensor, requires_grad=create_graph)
        elif gradient is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {k} appears to not have been used in the graph. Set allow_unused=True if this is the desired "
                "behavior."
            )
        result.append(gradient)
    return tuple(result)
