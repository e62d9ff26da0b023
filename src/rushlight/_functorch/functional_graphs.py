"""Graphs of aten operators without changes in place: each becomes the operator that gives a new value, which is read
from then on.
"""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, map_arg

__all__ = ["functionalized"]


def functionalized(module: GraphModule) -> list[int]:
    """Rewrite a graph so that nothing is changed in place; new values of placeholders become its first results.

    Gives the numbers of those placeholders.  NotImplementedError for a change of a view, and of a tensor with views.
    """
    graph = module.graph
    now: dict[Any, Any] = {}
    inputs = [n for n in graph.nodes if n.op == "placeholder"]
    bases: dict[Node, Node] = {}
    changed: list[Node] = []
    for node in list(graph.nodes):
        if node.op == "call_function":
            op = node.target
            if getattr(op, "is_view", False) and isinstance(node.args[0], Node):
                bases[node] = bases.get(node.args[0], node.args[0])
        node.args, node.kwargs = (
            map_arg(node.args, lambda n: now.get(n, n)),
            map_arg(node.kwargs, lambda n: now.get(n, n)),
        )
        name = getattr(node.target, "_opname", "")
        if node.op != "call_function":
            continue
        if name == "detach":
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
            continue
        if not name.endswith("_") or name.endswith("__"):
            continue
        target: Any = node.args[0]
        original = next((k for k, v in now.items() if v is target), target)
        if original in bases or any(b is original and v.users for v, b in bases.items() if v is not node):
            raise NotImplementedError(f"aot_function: {node.target} changes memory that views share; make a copy first")
        _replace(node, name)
        now[original] = node
        if original.op == "placeholder" and original not in changed:
            changed.append(original)
    output = graph.output_node()
    if changed:
        output.args = ((*[now[n] for n in changed], *output.args[0]),)
    graph.eliminate_dead_code()
    graph.lint()
    module.recompile()
    return [inputs.index(n) for n in changed]


_OTHERWISE = {"bernoulli_.float": "bernoulli.p", "pow_.Scalar": "pow.Tensor_Scalar"}


def _replace(node: Node, name: str) -> None:
    """Make an operator in place the one that gives a new value; NotImplementedError where there is none."""
    target: Any = node.target
    full = _OTHERWISE.get(f"{name}.{target._overloadname}", f"{name[:-1]}.{target._overloadname}")
    packet, _, overload = full.partition(".")
    found = getattr(getattr(rushlight.ops.aten, packet, None), overload, None)
    if found is None:
        raise NotImplementedError(f"aot_function: {target} has no form that gives a new value")
    node.target = found
