"""`torch._functorch.partitioners`: a joint graph of forward and backward as two graphs, and which values are kept
between them.
"""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Sequence
from typing import Any

from rushlight import SymFloat, SymInt, Tensor
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node

__all__ = ["default_partition", "draw_graph", "min_cut_rematerialization_partition"]

# Operators that are cheap to compute again.
_CHEAP = frozenset(
    "add sub mul div neg abs exp log sqrt rsqrt sin cos tan tanh sigmoid relu gelu silu pow reciprocal maximum minimum where clamp clamp_min clamp_max eq ne lt"
    " le gt ge logical_and logical_or logical_not bitwise_not erf expm1 log1p square rsub expand view t transpose permute unsqueeze squeeze select slice"
    " _to_copy clone scalar_tensor full zeros ones zeros_like ones_like full_like getitem masked_fill alias detach addcmul addcdiv lerp hardtanh leaky_relu".split()
)


_UNKNOWN_SIZE = 4096  # what a size counts for that only elements tell
_EFFECTS = frozenset(("copy_", "_assert_scalar", "_assert_async"))


def _opname(node: Node) -> str:
    return "getitem" if node.target is operator.getitem else str(getattr(node.target, "_opname", ""))


def _parts(joint: GraphModule, forward_outputs: int) -> tuple[list[Node], list[Node], list[Any], list[Any]]:
    """(primals, tangents, results of the forward, gradients) of a joint graph."""
    inputs = [n for n in joint.graph.nodes if n.op == "placeholder"]
    tangents = [n for n in inputs if "tangents" in str(n.target)]
    primals = [n for n in inputs if "tangents" not in str(n.target)]
    output = next(n for n in joint.graph.nodes if n.op == "output")
    flat = list(output.args[0])
    return primals, tangents, flat[:forward_outputs], flat[forward_outputs:]


def _effects(joint: GraphModule, backward: bool) -> list[Node]:
    """Nodes that write into tensors from outside or check something, in the backward or before it."""
    return [n for n in joint.graph.nodes if _opname(n) in _EFFECTS and ("is_backward" in n.meta) is backward]


def is_number(node: Any) -> bool:
    """Whether a node gives a symbolic number: a size, or what is computed of some."""
    return isinstance(node, Node) and isinstance(node.meta.get("val"), (SymInt, SymFloat))


def _after_tangents(joint: GraphModule, tangents: Sequence[Node]) -> set[Node]:
    """Nodes that depend on a gradient, or write in the backward."""
    found = {*tangents, *_effects(joint, True)}
    for node in joint.graph.nodes:
        if node.op != "output" and any(n in found for n in node.all_input_nodes):
            found.add(node)
    return found


def _extract(
    joint: GraphModule, inputs: Sequence[Node], outputs: Sequence[Any], effects: Sequence[Node], name: str
) -> GraphModule:
    """The graph from some nodes to others, and to those that write: what lies between is copied."""
    graph, known = Graph(), {}
    for node in inputs:
        known[node] = graph.placeholder(node.name)
        known[node].meta = dict(node.meta)
    needed: set[Node] = set()
    stack = [*effects, *[o for o in outputs if isinstance(o, Node)]]
    while stack:
        node = stack.pop()
        if node in needed or node in known:
            continue
        if node.op == "placeholder":
            raise RuntimeError(f"Node {node} was invalid, but is output")
        needed.add(node)
        stack += node.all_input_nodes
    for node in joint.graph.nodes:
        if node in needed:
            known[node] = graph.node_copy(node, lambda n: known[n])
    graph.output(tuple(known[o] if isinstance(o, Node) else o for o in outputs))
    graph.lint()
    made = GraphModule(joint, graph, class_name=name)
    return made


def _split(joint: GraphModule, saved: Sequence[Node], forward_outputs: int) -> tuple[GraphModule, GraphModule]:
    primals, tangents, results, gradients = _parts(joint, forward_outputs)
    numbers = [node for node in saved if is_number(node)]
    kept = [node for node in saved if not is_number(node)]
    forward = _extract(joint, primals, [*results, *kept, *numbers], _effects(joint, False), "GraphModule")
    backward = _extract(joint, [*numbers, *kept, *tangents], gradients, _effects(joint, True), "GraphModule")
    return forward, backward


def default_partition(
    joint_module: GraphModule, _joint_inputs: Any, *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:
    """(forward, backward): all that the forward computes is computed there, and what the backward reads of it is kept.

    The forward returns its results and then what is kept, symbolic sizes last; the backward takes those sizes, what else
    is kept, and the gradients of the results.
    """
    _, tangents, _, gradients = _parts(joint_module, num_fwd_outputs)
    late = _after_tangents(joint_module, tangents)
    ahead: set[Node] = set()
    marked = any("is_backward" in n.meta for n in joint_module.graph.nodes)
    for node in joint_module.graph.nodes:
        if "is_backward" in node.meta if marked else node in late and node not in tangents:
            break
        ahead.add(node)
    saved: list[Node] = []
    seen: set[Node] = set()
    stack = [*_effects(joint_module, True), *[g for g in gradients if isinstance(g, Node)]]
    while stack:
        node = stack.pop()
        if node in seen or node in tangents:
            continue
        seen.add(node)
        early = node in ahead or node.op == "placeholder" or is_number(node)
        if node not in late and early and node.op != "get_attr":
            saved.append(node)
        else:
            stack += node.all_input_nodes
    order = {n: i for i, n in enumerate(joint_module.graph.nodes)}
    return _split(joint_module, _with_tensors(sorted(saved, key=order.__getitem__)), num_fwd_outputs)


def _with_tensors(saved: list[Node]) -> list[Node]:
    """Kept values are tensors: of an operator with several results the results that are read."""
    found: list[Node] = []
    for node in saved:
        if isinstance(node.meta.get("val"), (tuple, list)):
            found += [u for u in node.users if u.target is operator.getitem]
        else:
            found.append(node)
    return list(dict.fromkeys(found))


def _weight(node: Node) -> float:
    """Bytes that keeping a value costs; what is given or must be made anyway costs half."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return 8.0 if is_number(node) else math.inf
    elements = math.prod([n if type(n) is int else _UNKNOWN_SIZE for n in value.shape])
    return float(elements * value.element_size()) * (1.0 if node.op == "placeholder" else 2.0)


def min_cut_rematerialization_partition(
    joint_module: GraphModule, _joint_inputs: Any, compiler: str = "inductor", *, num_fwd_outputs: int, **options: Any
) -> tuple[GraphModule, GraphModule]:
    """(forward, backward) such that the fewest bytes are kept: cheap operators are computed again in the backward.

    What is kept is a minimal cut between the primals and what depends on a gradient.
    """
    _, tangents, _, gradients = _parts(joint_module, num_fwd_outputs)
    late = _after_tangents(joint_module, tangents)
    nodes = [n for n in joint_module.graph.nodes if n not in late and n.op in ("placeholder", "call_function")]
    wanted = {n for g in late for n in g.all_input_nodes if n not in late} | {
        g for g in gradients if isinstance(g, Node) and g not in late
    }
    capacity: dict[Any, dict[Any, float]] = {}

    def edge(a: Any, b: Any, bytes_: float) -> None:
        capacity.setdefault(a, {})[b] = capacity.get(a, {}).get(b, 0.0) + bytes_
        capacity.setdefault(b, {}).setdefault(a, 0.0)

    for node in nodes:
        edge((node, 0), (node, 1), _weight(node))
        if node.op == "placeholder" or _opname(node) not in _CHEAP:
            edge("source", (node, 0), math.inf)
        for user in node.users:
            if user not in late and user.op == "call_function":
                edge((node, 1), (user, 0), math.inf)
        if node in wanted:
            edge((node, 1), "sink", math.inf)
    if "source" not in capacity or "sink" not in capacity:
        return default_partition(joint_module, _joint_inputs, num_fwd_outputs=num_fwd_outputs)
    reached = _cut(capacity)
    saved = [n for n in nodes if (n, 0) in reached and (n, 1) not in reached]
    return _split(joint_module, _with_tensors(saved), num_fwd_outputs)


def _cut(capacity: dict[Any, dict[Any, float]]) -> set[Any]:
    """The source's side of a minimal cut."""
    while True:
        before: dict[Any, Any] = {"source": None}
        queue = deque(["source"])
        while queue and "sink" not in before:
            at: Any = queue.popleft()
            for to, left in capacity[at].items():
                if left > 0 and to not in before:
                    before[to] = at
                    queue.append(to)
        if "sink" not in before:
            return set(before)
        path, to = [], "sink"
        while before[to] is not None:
            path.append((before[to], to))
            to = before[to]
        flow = min(capacity[a][b] for a, b in path)
        if math.isinf(flow):
            raise RuntimeError(
                "no set of values can be kept: an operator's result that is no tensor is read by the backward"
            )
        for a, b in path:
            capacity[a][b] -= flow
            capacity[b][a] += flow


def draw_graph(traced: Any, fname: str, **options: Any) -> None:
    """NotImplementedError: graphs are not drawn; `print(traced.graph)` shows them."""
    raise NotImplementedError("draw_graph: print(traced.graph) shows a graph")
