"""Recurrent layers rewritten for their routine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._graph.core import rebuilt
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node

__all__ = ["spared", "stepwise"]


FEW_ROWS = 2  # too few to pay for packing the weight


def stepwise(node: Node) -> Any:
    """The decomposition for few rows; None where the routine takes the layer."""
    few = node.outputs[0].shape[0] <= FEW_ROWS or not all(numel(v.shape) for v in node.outputs)
    return node.prim.decompose if few else None


def spared(graph: Graph) -> Graph:
    """The graph without results of recurrent layers that only their gradient reads, where it has no gradient."""
    layers = [node for node in graph.nodes if node.prim.name == "recurrence" and node.params["keep"]]
    if not layers:
        return graph
    read = {v for node in graph.nodes for v in node.inputs}.union(graph.outputs)
    bare = {node for node in layers if not any(v in read for v in node.outputs[_results(node) :])}
    if not bare:
        return graph

    def apply(node: Node, inputs: list[Any]) -> Any:
        if node not in bare:
            return node.prim(*inputs, **node.params)
        results = node.prim(*inputs, **{**node.params, "keep": False})
        return (*results, *[None] * (len(node.outputs) - len(results)))

    return rebuilt(graph, apply)


def _results(node: Node) -> int:
    """The number of results that are not for the gradient: outputs and last states."""
    return 3 if node.params["mode"] == "lstm" else 2
