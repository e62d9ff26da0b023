"""From a backward call to a function in Python that does what the engine does, node by node; it is compiled like a
user's, and kept for histories of the same structure.

Nodes of operators become calls of their backward, hooks of tensors calls of the hooks.  Nodes with hooks of their own,
those of a `Function` and those with packed tensors run as the engine runs them, between two segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from threading import Lock
from typing import Any

from rushlight._capture.autograd import steps
from rushlight._capture.autograd.matching import Found, matcher
from rushlight._capture.trace.reports.events import COUNTERS
from rushlight._capture.trace.segments.generated import functions
from rushlight._capture.trace.settings import HOOKS
from rushlight._engine.autograd.node import AccumulateGrad, OpNode, Packed
from rushlight._engine.core.hooks import HOOKS as ENGINE_HOOKS
from rushlight._engine.core.state import ANOMALY, FUNCTION_MODE, OBSERVED, RECORDING, STATE, STREAMED
from rushlight._engine.core.tensor import dispatch_classes, plain_classes
from rushlight._engine.functorch.transformed import LEVELS

__all__ = ["Walks"]

MOST_KEPT = 256
MOST_PLAIN = 8  # structures that begin with one sort of node
_ELSEWHERE = ANOMALY | FUNCTION_MODE | OBSERVED | RECORDING | STREAMED

HOOKS.breaks[id(steps.run_as_it_is)] = (
    steps.run_as_it_is,
    "a backward node with hooks, packed tensors or code of a user runs as it is",
)


class Walks:
    """Walks by structure; `compile(function)` makes a compiled function of one."""

    def __init__(self, compile: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.compile, self._lock = compile, Lock()
        self._known: dict[Any, tuple[Callable[..., Any], Any]] = {}
        # By what their first node is: functions that recognise a structure, and the function of the walk.
        self._plain: dict[Any, list[tuple[Callable[[Any, Any], Found | None], Callable[..., Any]]]] = {}

    @staticmethod
    def switch(walks: Walks | None) -> None:
        """Let the engine ask these whether a backward call is theirs, or nobody."""
        ENGINE_HOOKS.walk = walks

    def __call__(self, task: Any, heap: Sequence[Any]) -> bool:
        """Whether a backward call was made by a compiled function; the engine makes the others."""
        if task.create_graph or task.apart is not None or STATE.word & _ELSEWHERE or LEVELS.stack:
            return False
        walk = _Walk(task, heap, False)
        if not walk.gather():
            return False
        key = tuple(walk.key)
        with self._lock:
            known = self._known.get(key)
            if known is None:
                COUNTERS["compiled_autograd"]["captures"] += 1
                if len(self._known) >= MOST_KEPT:
                    self._known.clear()
                    self._plain.clear()
                walk = _Walk(task, heap, True)
                walk.gather()
                known = self._known[key] = self.compile(walk.function()), walk.kept
                self._recognise(walk, known[0])
        task.results[:] = known[0](walk.values, walk.hooks, walk.nodes)
        if not task.keep:
            for node in walk.order:
                if node._edges:
                    node._release()
        return True

    def _recognise(self, walk: _Walk, compiled: Callable[..., Any]) -> None:
        """Let later calls of a plain structure be recognised (see `matching`)."""
        if walk.task.needed is not None or walk.hooks or walk.nodes or len(walk.task.buffers) != 1:
            return
        root = walk.order[0]
        buffer = walk.task.buffers.get(root)
        if buffer is None or sum(grad is not None for grad in buffer) != 1:
            return
        number = next(k for k, grad in enumerate(buffer) if grad is not None)
        match = matcher(walk.order, number)
        if match is not None:
            held = self._plain.setdefault((type(root), number), [])
            held.insert(0, (match, compiled))
            del held[MOST_PLAIN:]

    def recognised(self, task: Any, edge: Any, grad: Any) -> Callable[[], None] | None:
        """The backward call from one edge, where its structure is known and plain; None for other calls."""
        root, number = edge if type(edge) is tuple else (edge, 0)
        held = self._plain.get((type(root), number))
        if held is None or task.create_graph or task.apart is not None or STATE.word & _ELSEWHERE or LEVELS.stack:
            return None
        if type(grad) not in plain_classes:
            return None
        for match, compiled in held:
            found = match(root, grad)
            if found is not None:
                return partial(_run_plain, compiled, found, task.keep)
        return None


def _run_plain(compiled: Callable[..., Any], found: Found, keep: bool) -> None:
    values, nodes = found
    compiled(values, [], [])
    if not keep:
        for node in nodes:
            node._release()


class _Walk:
    """One backward call: its nodes in the engine's order, the values that it starts from, and its structure (`key`);
    while `writing` also the text of its function.
    """

    def __init__(self, task: Any, heap: Sequence[Any], writing: bool) -> None:
        self.task, self.heap, self.writing = task, list(heap), writing
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
        self._filled: dict[int, set[int]] = {}  # of each node: the results for which something may have arrived

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
        """Collect values and structure; False where the engine has to make the call."""
        task = self.task
        self._sorted()
        for node, buffer in task.buffers.items():
            number = self._numbers.get(node)
            if number is None:
                continue
            for k, grad in enumerate(buffer):
                if grad is not None:
                    if type(grad) not in plain_classes:
                        return False
                    self.values.append(grad)
                    self._write("b{}_{} = v[{}]", number, k, len(self.values) - 1)
                    self._filled.setdefault(number, set()).add(k)
                    self.key.append((number, k))
        results = ["None"] * len(task.results)
        for number, node in enumerate(self.order):
            if not self._node(number, node, results):
                return False
        self._write("return [{}]", ", ".join(results))
        return True

    def _node(self, number: int, node: Any, results: list[str]) -> bool:
        task, filled = self.task, self._filled.get(number, ())
        runs = task.needed is None or node in task.needed
        captured = task.captures.get(node, ()) if task.needed is not None else ()
        count = max(node._n_outputs, max(filled) + 1 if filled else 0)
        grads = [f"b{number}_{k}" if k in filled else "None" for k in range(count)] if self.writing else [""] * count
        self.key.append((type(node), runs, tuple(captured), count))
        extra = node._extra
        if node._staged and (captured or extra is not None):
            return False
        hooks = self._hooks_of(node) if extra is not None or type(node) is AccumulateGrad else _NONE
        if not runs:
            if hooks is None:
                return False
            self._hooked(hooks, grads)
        for k, place in captured:
            results[place] = grads[k] if k < count else "None"
        if not runs:
            return True
        if type(node) is AccumulateGrad:
            return self._leaf(node, grads, hooks or _NONE)
        plain = extra is None or (hooks is not None and extra.pre_hooks is None and extra.post_hooks is None)
        if plain and isinstance(node, OpNode) and type(node).apply is OpNode.apply:
            if node.saved is None:
                return False
            if not any(type(item) is Packed for item in node.saved):
                return self._operator(node, grads, hooks or _NONE)
        self.key.append("as it is")
        self.nodes.append(node)
        self._write("r = run_as_it_is(n[{}], [{}])", len(self.nodes) - 1, ", ".join(grads))
        self._pass_on(node)
        return True

    def _hooks_of(self, node: Any) -> dict[int, Any] | None:
        """Hooks of the tensors behind a node's results, by their number; None where gradients are retained too."""
        if type(node) is AccumulateGrad:
            variable = node._variable()
            meta = None if variable is None else variable._autograd_meta
            return {0: meta.hooks} if meta is not None and meta.hooks else _NONE
        extra = node._extra
        return None if extra.retain is not None else dict(extra.tensor_hooks or {})

    def _hooked(self, hooks: dict[int, Any], grads: list[str]) -> None:
        """Send gradients through hooks."""
        for k, held in sorted(hooks.items()):
            for hook in list(held.values()) if k < len(grads) else ():
                self.hooks.append(hook)
                name = f"h[{len(self.hooks) - 1}]"
                self._write("a{0} = checked({1}, {2}, {1}({2}))", len(self.hooks), name, grads[k])
                grads[k] = f"a{len(self.hooks)}"
            self.key.append((k, len(held)))

    def _leaf(self, node: AccumulateGrad, grads: list[str], hooks: dict[int, Any]) -> bool:
        variable = node._variable()
        if variable is None:
            self.key.append("gone")
            return True
        if node.level is not None or type(variable) in dispatch_classes:
            return False
        self._hooked(hooks, grads)
        self.values.append(variable)
        self._write("accumulated(v[{}], {})", len(self.values) - 1, grads[0])
        return True

    def _operator(self, node: Any, grads: list[str], hooks: dict[int, Any]) -> bool:
        try:
            saved = node.unpacked() if node.saved else []
        except RuntimeError:  # one was changed: the engine raises it when its turn has come
            return False
        if type(saved) is not list:
            return False
        self._hooked(hooks, grads)
        info, first = node.info, len(self.values)
        self.values += saved
        self.key.append((id(info), len(saved)))
        if self.writing:
            name = f"s{id(info)}"
            if name not in self.space:
                self.space[name] = steps.node_step(info)
                self.kept.append(info)
            given = ", ".join(f"v[{k}]" for k in range(first, len(self.values)))
            self._write("r = {}([{}], [{}])", name, given, ", ".join(grads))
        self._pass_on(node)
        return True

    def _pass_on(self, node: Any) -> None:
        """Give the gradients in `r` to the nodes behind."""
        targets = []
        for k, edge in enumerate(node._edges):
            if edge is None:
                continue
            after, number = edge if type(edge) is tuple else (edge, 0)
            if not self.task.runs(after):
                continue
            place = self._numbers[after]
            targets.append((k, place, number))
            filled = self._filled.setdefault(place, set())
            self._write(
                "b{0}_{1} = joined(b{0}_{1}, r[{2}])" if number in filled else "b{0}_{1} = r[{2}]", place, number, k
            )
            filled.add(number)
        self.key.append(tuple(targets))

    # ***** text *****

    def _write(self, text: str, *words: Any) -> None:
        if self.writing:
            self.lines.append(f"    {text.format(*words)}")

    def function(self) -> Callable[..., Any]:
        """The function of the walk: it takes values, hooks and nodes, and gives the gradients that were asked for."""
        text = "\n".join(["def backward(v, h, n):", *self.lines])
        made: Callable[..., Any] = functions(text, self.space, "compiled backward")["backward"]
        return made


_NONE: dict[int, Any] = {}
