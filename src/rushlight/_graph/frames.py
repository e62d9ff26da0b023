"""Graphs with symbolic sizes, made again for other sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph, Node, Reference, Value
from rushlight._types.symbols import filled, framed

__all__ = ["graph_frame", "graph_from"]


def graph_frame(graph: Graph, numbers: list[Any]) -> Any:
    """A graph with its sizes taken out: their formulas are appended to `numbers`."""
    places = {v: k for k, v in enumerate(graph.inputs)}
    inputs = [(framed(v.shape, numbers), v.dtype, v.kind if type(v) is Reference else v.weak) for v in graph.inputs]
    nodes = []
    for node in graph.nodes:
        made = [(framed(v.shape, numbers), v.dtype) for v in node.outputs]
        nodes.append((node.prim, [places[v] for v in node.inputs], framed(node.params, numbers), made))
        for v in node.outputs:
            places[v] = len(places)
    return inputs, nodes, [places[v] for v in graph.outputs]


def graph_from(frame: Any, values: Sequence[Any]) -> Graph:
    """The graph whose numbers are these; they may be symbolic again."""
    inputs, nodes, outputs = frame
    held: list[Value] = [
        Reference(kind, filled(shape, values), dtype)
        if isinstance(kind, str)
        else Value(filled(shape, values), dtype, weak=kind)
        for shape, dtype, kind in inputs
    ]
    n, made = len(held), []
    for prim, operands, params, results in nodes:
        node = Node(
            prim,
            tuple([held[k] for k in operands]),
            filled(params, values),
            [(filled(s, values), d) for s, d in results],
        )
        made.append(node)
        held += node.outputs
    return Graph(held[:n], made, [held[k] for k in outputs])
