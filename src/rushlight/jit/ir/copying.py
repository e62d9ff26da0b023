"""Copies of graphs, of blocks and of nodes."""

from __future__ import annotations

from rushlight.jit.frontend.inference import type_of
from rushlight.jit.ir.graph import Block, Graph, Node, Value

__all__ = ["copy_block", "copy_graph", "copy_node", "type_of"]


def copy_node(node: Node, graph: Graph, values: dict[Value, Value]) -> Node:
    """A copy whose inputs are looked up in `values`, to which its outputs are added; it stands nowhere yet."""
    made = Node(graph, node.kind_, [values.get(v, v) for v in node.inputs], [v.type for v in node.outputs])
    made.attributes = dict(node.attributes)
    made.location, made.schema, made.scope = node.location, node.schema, node.scope
    for old, new in zip(node.outputs, made.outputs, strict=True):
        values[old] = new
        if old.name:
            new.set_name(old.name)
    for block in node.blocks:
        copy_block(block, made.add_block(), values)
    return made


def copy_block(block: Block, into: Block, values: dict[Value, Value]) -> None:
    """Copy parameters, nodes and results."""
    for old in block.inputs:
        values[old] = into.add_input(old.type, old.name)
    for node in block.nodes:
        into.append(copy_node(node, into.graph, values))
    into.set_results([values.get(v, v) for v in block.outputs])


def copy_graph(graph: Graph) -> Graph:
    """A graph of new nodes with the same meaning."""
    made = Graph()
    copy_block(graph.block, made.block, {})
    return made
