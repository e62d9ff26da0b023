"""Calls of functions and methods replaced by their graphs."""

from __future__ import annotations

from rushlight.jit.ir.copying import copy_node
from rushlight.jit.ir.graph import Block, Graph, Node, Value

__all__ = ["inline_calls", "inline_graph"]


def inline_graph(graph: Graph, callee: Graph, inputs: list[Value], before: Node) -> list[Value]:
    """Copy the nodes of `callee` in front of a node; the values of its results."""
    values: dict[Value, Value] = dict(zip(callee.block.inputs, inputs, strict=True))
    for node in callee.block.nodes:
        copy_node(node, graph, values).insert_before(before)
    return [values.get(v, v) for v in callee.block.outputs]


def inline_calls(graph: Graph) -> Graph:
    """Inline every call; the graph is changed and given back."""
    _inline(graph, graph.block, 0)
    return graph


def _callee(node: Node) -> Graph | None:
    if node.kind_ == "prim::CallFunction":
        function = node.inputs[0].node
        found = function.attributes.get("value") if function is not None else None
        return getattr(found, "inlinable_graph", None)
    if node.kind_ == "prim::CallMethod":
        kind = node.inputs[0].type
        find = getattr(kind, "find_method", None)
        method = find(node.attributes["name"]) if find is not None else None
        return getattr(method, "inlinable_graph", None)
    return None


def _inline(graph: Graph, block: Block, depth: int) -> None:
    for node in list(block.nodes):
        for inner in node.blocks:
            _inline(graph, inner, depth)
        callee = _callee(node)
        if callee is None:
            continue
        if depth > 200:
            raise RuntimeError("function calls are nested too deeply to be inlined")
        callee = callee.copy()
        _inline(callee, callee.block, depth + 1)
        function = node.inputs[0] if node.kind_ == "prim::CallFunction" else None
        inputs = node.inputs[1:] if function is not None else list(node.inputs)
        for old, new in zip(node.outputs, inline_graph(graph, callee, inputs, node), strict=True):
            name = old.name
            old.replace_all(new)
            if name and new.node is not None and new.graph is graph:
                graph.forget(old)
                new.set_name(name)
        node.destroy()
        if function is not None and not function.uses and function.node is not None:
            function.node.destroy()
