"""`torch.fx.passes.graph_manipulation`: other targets for nodes, and how many bytes nodes hold."""

from __future__ import annotations

from typing import Any, NamedTuple

from rushlight import Tensor, empty
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, map_arg
from rushlight.fx.passes.shape_prop import ShapeProp, TensorMetadata

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Any, new_op: str, new_target: Any
) -> None:
    """Make nodes with one operation and target have another; in place."""
    graph = Graph()
    copied: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if (node.op, node.target) == (old_op, old_target):
            args: Any = map_arg(node.args, copied.__getitem__)
            kwargs: Any = map_arg(node.kwargs, copied.__getitem__)
            copied[node] = graph.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            copied[node] = graph.node_copy(node, copied.__getitem__)
    fx_module.graph = graph


class size_bytes(NamedTuple):
    """Bytes of a node's result, and of the result with the parameters of the module that it calls."""

    output_size: int
    total_size: int


def get_size_of_all_nodes(fx_module: GraphModule, args: list[Tensor] | None = None) -> None:
    """Note `node.size_bytes` on every node but the output; with `args` shapes are found first, by running the module."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    node: Any
    for node in fx_module.graph.nodes:
        if node.op != "output":
            node.size_bytes = get_size_of_node(fx_module, node)


def get_tensor_meta(node: Node) -> TensorMetadata:
    """The metadata that `ShapeProp` noted of a node's tensor; RuntimeError where it has not run."""
    noted = node.meta.get("tensor_meta")
    if not noted:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run."
        )
    return noted


def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The bytes of one node; parameters count as elements of the result's dtype."""
    noted = get_tensor_meta(node)
    given = held = noted.shape.numel()
    if node.op == "call_module":
        called = dict(fx_module.named_modules())[str(node.target)]
        held += sum(each.numel() for each in called.parameters())
    width = 1 if noted.is_quantized else empty((), dtype=noted.dtype, device="meta").element_size()
    return size_bytes(width * given, width * held)
