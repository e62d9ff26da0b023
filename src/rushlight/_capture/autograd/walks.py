"""From a backward call to a function in Python that does what the engine does, node by node; it is compiled like a
user's, and kept for histories of the same structure.

Nodes of operators become calls of their backward, hooks of tensors calls of the hooks.  Nodes with hooks of their own,
those of a `Function` and those with packed tensors run as the engine runs them, between two segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from threading import Lock
from typing import Any

from rushlight._capture.autograd import steps
from rushlight._capture.trace.events import COUNTERS
from rushlight._capture.trace.generated import functions
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.autograd.node import AccumulateGrad, OpNode, Packed
from rushlight._engine.core.hooks import HOOKS as ENGINE_HOOKS
from rushlight._engine.core.state import ANOMALY, FUNCTION_MODE, OBSERVED, RECORDING, STATE
from rushlight._engine.core.tensor import dispatch_classes, plain_classes
from rushlight._engine.functorch.transformed import LEVELS

__all__ = ["Walks"]

MOST_KEPT = 256
_ELSEWHERE = ANOMALY | FUNCTION_MODE | OBSERVED | RECORDING

HOOKS.breaks[id(steps.run_as_it_is)] = (
    steps.run_as_it_is,
    "a backward node with hooks, packed tensors or code of a user runs as it is",
)


class Walks:
    """Walks by structure; `compile(function)` makes a compiled function of one."""

    def __init__(self, compile: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.compile, self._lock = compile, Lock()
        self._known: dict[Any, tuple[Callable[..., Any], Any]] = {}

    @staticmethod
    def switch(walks: Walks | None) -> None:
        """Let the engine ask these whether a backward call is theirs, or nobody."""
        ENGINE_HOOKS.walk = walks

    def __call__(self, task: Any, heap: Sequence[Any]) -> bool:
        """Whether a backward call was made by a compiled function; the engine makes the others."""
        if task.create_graph or task.apart is not None or STATE.word & _ELSEWHERE or LEVELS.stack:
            return False
        walk = _Walk(task, heap)
        if not walk.gather():
            return False
        key = tuple(walk.key)
        with self._lock:
            known = self._known.get(key)
            if known is None:
                COUNTERS["compiled_autograd"]["captures"] += 1
                if len(self._known) >= MOST_KEPT:
                    self._known.clear()
                known = self._known[key] = self.compile(walk.function()), walk.kept
        task.results[:] = known[0](walk.values, walk.hooks, walk.nodes)
        if not task.keep:
            for node in walk.order:
                if node._edges:
                    node._release()
        return True


class _Walk:
    """One backward call: its nodes in the engine's order, the values that it starts from, and its structure (`key`)."""

    def __init__(self, task: Any, heap: Sequence[Any]) -> None:
        self.task, self.heap = task, list(heap)
        self.order: list[Any] = []
        self.values: list[Any] = []
        self.hooks: list[Any] = []
        self.nodes: list[Any] = []
        self.kept: list[Any] = []
        self.key: list[Any] = []
        self.lines: list[str] = []
        self.space: dict[str, Any] = {
            "__name__": steps.__name__, "joined": steps.joined, "checked": steps.checked, "accumulated": steps.accumulated,
            "run_as_it_is": steps.run_as_it_is,
        }  # fmt: skip
        self._numbers: dict[Any, int] = {}
        self._filled: set[tuple[int, int]] = set()  # (node, output): where something may have arrived

    # ***** order *****

    def _sorted(self) -> None:
        """The nodes in the order in which the engine would run them."""
        task, heap, left = self.task, self.heap, dict(self.task.dependencies)
        leaves: list[Any] = []
        while heap or leaves:
            node = leaves.pop() if leaves else heappop(heap)[2]
            self._numbers[node] = len(self.order)
            self.order.append(node)
            if task.needed is not None and node not in task.needed:
                continue
            for edge in node._edges:
                after = None if edge is None else edge[0] if type(edge) is tuple else edge
                if after is None or not task.runs(after):
                    continue
                left[after] -= 1
                if not left[after]:
                    if type(after) is AccumulateGrad:
                        leaves.append(after)
                    else:
                        heappush(heap, (-after._seq, id(after), after))

    # ***** what each node does *****

    def gather(self) -> bool:
        """Collect values and write the function's lines; False where the engine has to make the call."""
        task = self.task
        self._sorted()
        for node, buffer in task.buffers.items():
            if node not in self._numbers:
                continue
            for number, grad in enumerate(buffer):
                if grad is not None:
                    if type(grad) not in plain_classes:
                        return False
                    self._line(f"{self._buffer(node, number)} = {self._value(grad)}")
                    self._filled.add((self._numbers[node], number))
        self.key.append((tuple(self._filled), len(task.results)))
        results = ["None"] * len(task.results)
        for node in self.order:
            if not self._node(node, results):
                return False
        self._line(f"return [{', '.join(results)}]")
        return True

    def _node(self, node: Any, results: list[str]) -> bool:
        task, number = self.task, self._numbers[node]
        runs = task.needed is None or node in task.needed
        captured = task.captures.get(node, ()) if task.needed is not None else ()
        count = max([node._n_outputs, *[k + 1 for n, k in self._filled if n == number]])
        grads = [f"b{number}_{k}" if (number, k) in self._filled else "None" for k in range(count)]
        self.key.append((type(node), runs, tuple(captured), count))
        extra = node._extra
        hooks = self._hooks_of(node)
        if not runs:
            if hooks is None:
                return False
            self._hooked(hooks, grads)
        for k, place in captured:
            results[place] = grads[k] if k < count else "None"
        if not runs:
            return True
        if type(node) is AccumulateGrad:
            return self._leaf(node, grads, hooks)
        plain = extra is None or (hooks is not None and extra.pre_hooks is None and extra.post_hooks is None)
        if plain and isinstance(node, OpNode) and type(node).apply is OpNode.apply:
            if node.saved is None:
                return False
            if not any(type(item) is Packed for item in node.saved):
                return self._operator(node, grads, hooks or {})
        self.key.append("as it is")
        self.nodes.append(node)
        self._line(f"r = run_as_it_is(n[{len(self.nodes) - 1}], [{', '.join(grads)}])")
        self._pass_on(node)
        return True

    def _hooks_of(self, node: Any) -> dict[int, Any] | None:
        """Hooks of the tensors behind a node's results, by their number; None where gradients are retained too."""
        if type(node) is AccumulateGrad:
            variable = node._variable()
            meta = None if variable is None else variable._autograd_meta
            return {0: meta.hooks} if meta is not None and meta.hooks else {}
        extra = node._extra
        if extra is None:
            return {}
        return None if extra.retain is not None else dict(extra.tensor_hooks or {})

    def _hooked(self, hooks: dict[int, Any], grads: list[str]) -> None:
        """Send gradients through hooks."""
        for k, held in sorted(hooks.items()):
            for hook in list(held.values()) if k < len(grads) else ():
                self.hooks.append(hook)
                name = f"h[{len(self.hooks) - 1}]"
                made = f"a{len(self.hooks)}"
                self._line(f"{made} = checked({name}, {grads[k]}, {name}({grads[k]}))")
                grads[k] = made
            self.key.append((k, len(held)))

    def _leaf(self, node: AccumulateGrad, grads: list[str], hooks: dict[int, Any] | None) -> bool:
        variable = node._variable()
        if variable is None:
            self.key.append("gone")
            return True
        if node.level is not None or type(variable) in dispatch_classes:
            return False
        self._hooked(hooks or {}, grads)
        self._line(f"accumulated({self._value(variable)}, {grads[0]})")
        return True

    def _operator(self, node: Any, grads: list[str], hooks: dict[int, Any]) -> bool:
        try:
            saved = node.unpacked() if node.saved else []
        except RuntimeError:  # one was changed: the engine raises it when its turn has come
            return False
        if type(saved) is not list:
            return False
        self._hooked(hooks, grads)
        name = f"s{id(node.info)}"
        if name not in self.space:
            self.space[name] = steps.node_step(node.info)
            self.kept.append(node.info)
        self.key.append((id(node.info), len(saved)))
        self._line(f"r = {name}([{', '.join(self._value(x) for x in saved)}], [{', '.join(grads)}])")
        self._pass_on(node)
        return True

    def _pass_on(self, node: Any) -> None:
        """Give the gradients in `r` to the nodes behind."""
        targets = []
        for k, edge in enumerate(node._edges):
            after, number = (None, 0) if edge is None else edge if type(edge) is tuple else (edge, 0)
            if after is None or not self.task.runs(after):
                continue
            place = self._numbers[after], number
            targets.append((k, *place))
            buffer = self._buffer(after, number)
            self._line(f"{buffer} = joined({buffer}, r[{k}])" if place in self._filled else f"{buffer} = r[{k}]")
            self._filled.add(place)
        self.key.append(tuple(targets))

    # ***** text *****

    def _line(self, text: str) -> None:
        self.lines.append(f"    {text}")

    def _buffer(self, node: Any, number: int) -> str:
        return f"b{self._numbers[node]}_{number}"

    def _value(self, value: Any) -> str:
        self.values.append(value)
        return f"v[{len(self.values) - 1}]"

    def function(self) -> Callable[..., Any]:
        """The function of the walk: it takes values, hooks and nodes, and gives the gradients that were asked for."""
        text = "\n".join(["def backward(v, h, n):", *self.lines])
        made: Callable[..., Any] = functions(text, self.space, "compiled backward")["backward"]
        return made
