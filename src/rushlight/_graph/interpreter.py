"""Readings of a graph by `core.evaluate`: expansion and counts.

`expand` copies a graph and replaces the primitives that a backend does not claim by their decompositions.

    >>> from rushlight._graph.core import trace
    >>> from rushlight._graph.interpreter import count, expand
    >>> from rushlight._prims import prim
    >>> from rushlight._types.dtype import FLOAT32
    >>> p = dict(stride=(1,), padding=(0,), dilation=(1,), groups=1)
    >>> graph = trace(lambda x, w: prim.conv(x, w, **p), [((1, 1, 5), FLOAT32), ((1, 1, 3), FLOAT32)])
    >>> sorted(count(expand(graph, lambda node: node.prim.name != "conv")))
    ['dot', 'reshape', 'transpose', 'window']
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._graph.core import Graph, Node, rebuilt

__all__ = ["count", "expand"]


def expand(graph: Graph, claims: Callable[[Node], bool]) -> Graph:
    """The graph with every node that is not claimed and has a decomposition replaced by it, down to what is claimed."""

    def apply(node: Node, inputs: list[Any]) -> Any:
        return (rules.get(node) or node.prim)(*inputs, **node.params)

    while rules := {
        node: rule for node in graph.nodes if (rule := node.prim.decompose) is not None and not claims(node)
    }:
        graph = rebuilt(graph, apply)
    return graph


def count(graph: Graph) -> dict[str, int]:
    """How often each primitive occurs."""
    counts: dict[str, int] = {}
    for node in graph.nodes:
        counts[node.prim.name] = counts.get(node.prim.name, 0) + 1
    return counts
