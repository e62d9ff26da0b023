"""Checking a graph: order, uniqueness, and every spec again.

>>> from rushlight._graph.core import trace
>>> from rushlight._graph.verifier import verify
>>> from rushlight._types.dtype import FLOAT32
>>> verify(trace(lambda x: x + 1.0, [((3,), FLOAT32)]))
"""

from __future__ import annotations

from rushlight._graph.core import Graph, Node, Value
from rushlight._graph.printer import describe, line, name_values
from rushlight._prims.record import PRIMITIVES

__all__ = ["GraphError", "verify"]

AROUND = 4  # lines shown before and after a fault


class GraphError(AssertionError):
    """A graph breaks a rule; the text shows where."""


def verify(graph: Graph) -> None:
    """GraphError unless every value is made once and before it is read, and every node has the results its spec promises."""
    known: set[Value] = set()
    for i, value in enumerate(graph.inputs):
        if value in known:
            raise GraphError(f"input {i} is there twice\n{_excerpt(graph, None)}")
        if value.node is not None:
            raise GraphError(f"input {i} is made by prim.{value.node.prim.name}\n{_excerpt(graph, None)}")
        known.add(value)
    for node in graph.nodes:
        fault = _check_node(node, known)
        if fault:
            raise GraphError(f"prim.{node.prim.name}: {fault}\n{_excerpt(graph, node)}")
        known.update(node.outputs)
    for j, value in enumerate(graph.outputs):
        if value not in known:
            raise GraphError(f"output {j} ({describe(value)}) is not made in this graph\n{_excerpt(graph, None)}")


def _check_node(node: Node, known: set[Value]) -> str:
    """What is wrong with a node, or ""."""
    if PRIMITIVES.get(node.prim.name) is not node.prim:
        return "is not in the table of primitives"
    for i, value in enumerate(node.inputs):
        if value not in known:
            return f"operand {i} ({describe(value)}) is read before it is made"
    try:
        found = node.prim.spec(*node.inputs, **node.params)
    except Exception as error:  # whatever a spec raises is the fault we report
        return f"its spec refuses the operands: {error}"
    promised = found if node.prim.multiple else [found]
    if len(promised) != len(node.outputs):
        return f"has {len(node.outputs)} results, its spec says {len(promised)}"
    for i, (value, (shape, dtype)) in enumerate(zip(node.outputs, promised, strict=True)):
        if value in known:
            return f"result {i} is made twice"
        if value.node is not node or value.index != i:
            return f"result {i} does not know that this node made it"
        if value.shape != tuple(shape) or value.dtype is not dtype:
            return f"result {i} is {describe(value)}, its spec says {dtype.name}{list(shape)}"
    return ""


def _excerpt(graph: Graph, fault: Node | None) -> str:
    """The lines around the fault, which is marked."""
    names = name_values(graph)
    lines = [f"inputs: {', '.join(f'{names[v]}: {describe(v)}' for v in graph.inputs)}"]
    at = next((i for i, node in enumerate(graph.nodes) if node is fault), len(graph.nodes))
    first, last = max(0, at - AROUND), min(len(graph.nodes), at + AROUND + 1)
    lines += ["   ..."] * (first > 0)
    for node in graph.nodes[first:last]:
        lines.append(("-> " if node is fault else "   ") + line(node, names))
    lines += ["   ..."] * (last < len(graph.nodes))
    lines.append(f"outputs: {', '.join(names.get(v, '?') for v in graph.outputs)}")
    return "\n".join(lines)
