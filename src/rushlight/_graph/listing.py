"""A graph as a plain listing, one node a line, for logs and reports; `printer` writes source that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rushlight._graph.core import Graph

__all__ = ["graph_lines"]


def graph_lines(graph: Graph) -> list[str]:
    """A graph as text, one node a line."""
    names: dict[int, str] = {id(v): f"a{k}" for k, v in enumerate(graph.inputs)}
    lines = [f"{names[id(v)]}: {v.dtype.name}{list(v.shape)}{' number' if v.weak else ''}" for v in graph.inputs]
    for node in graph.nodes:
        made = []
        for v in node.outputs:
            names[id(v)] = f"v{len(names) - len(graph.inputs)}"
            made.append(f"{names[id(v)]}: {v.dtype.name}{list(v.shape)}")
        args = [names[id(x)] for x in node.inputs] + [f"{k}={v!r}" for k, v in node.params.items()]
        lines.append(f"{', '.join(made)} = {node.prim.name}({', '.join(args)})")
    lines.append(f"return {', '.join(names[id(v)] for v in graph.outputs)}")
    return lines
