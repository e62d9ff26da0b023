"""Graphs with symbolic sizes, instantiated for other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph, Node, Reference, Value
from rushlight._types.symbols import filled, framed

__all__ = ["graph_frame", "graph_from"]


def graph_frame(graph: Graph, numbers: list[Any]) -> Any:
    """A graph without its sizes, whose formulas are appended to `numbers`."""
    indices = {v: k for k, v in enumerate(graph.inputs)}
    inputs = [(framed(v.shape, numbers), v.dtype, v.kind if type(v) is Reference else v.weak) for v in graph.inputs]
    nodes = []
    for node in graph.nodes:
        avals = [(framed(v.shape, numbers), v.dtype) for v in node.outputs]
        nodes.append((node.prim, [indices[v] for v in node.inputs], framed(node.params, numbers), avals))
        for v in node.outputs:
            indices[v] = len(indices)
    return inputs, nodes, [indices[v] for v in graph.outputs]


def graph_from(frame: Any, values: Sequence[Any]) -> Graph:
    """The graph of a frame with these numbers, which may be symbolic."""
    inputs, nodes, outputs = frame
    known: list[Value] = [
        Reference(kind, filled(shape, values), dtype)
        if isinstance(kind, str)
        else Value(filled(shape, values), dtype, weak=kind)
        for shape, dtype, kind in inputs
    ]
    n, nodes_of_graph = len(known), list[Node]()
    for prim, operands, params, results in nodes:
        node = Node(
            prim,
            tuple([known[k] for k in operands]),
            filled(params, values),
            [(filled(s, values), d) for s, d in results],
        )
        nodes_of_graph.append(node)
        known += node.outputs
    return Graph(known[:n], nodes_of_graph, [known[k] for k in outputs])
