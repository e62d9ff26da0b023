"""`torch.fx.passes.utils.fuser_utils`: nodes of a graph replaced by the call of a module that holds them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.fx.passes.tools_common import in_order, stable_topological_sort, validate_partition
from rushlight.fx.passes.utils.subgraphs import lift_subgraph_as_module
from rushlight.fx.proxy import Proxy

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "topo_sort",
    "validate_partition",
]


def topo_sort(nodes: list[Node]) -> list[Node]:
    """The nodes after their inputs among them, otherwise in the order given; AssertionError for a circle."""
    order = in_order(nodes)
    if len(order) != len(nodes):
        raise AssertionError("topological sorted nodes doesn't have same length as input nodes")
    return order


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: list[Node],
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A module of class `module_name` with copies of `nodes`, which are in order; the nodes of `gm` that it takes, and
    those whose values it gives.

    `partition_lookup_table` is a dict of the nodes, if there is one.  With `always_return_tuple` one value comes as a
    tuple too.  AssertionError for nodes of another module, and where a path leaves the nodes and comes back.
    """
    for node in nodes:
        if node.graph.owning_module is not gm:
            raise AssertionError(f"{node} doesn't belong to passed in graph module {gm._get_name()}")
        if node._erased:
            raise AssertionError(f"{node} has been removed from owning graph")
    if not validate_partition(nodes):
        raise AssertionError("Invalid partition, found dependency cycles")
    inside = dict.fromkeys(nodes) if partition_lookup_table is None else partition_lookup_table
    graph = Graph()
    inputs: dict[Node, Node] = {}
    copied: dict[Node, Node] = {}

    def argument(node: Node) -> Node:
        if node in inside:
            return copied[node]
        if node not in inputs:
            inputs[node] = graph.placeholder(node.name, type_expr=node.type)
            inputs[node].meta = copy.copy(node.meta)
        return inputs[node]

    for node in nodes:
        copied[node] = graph.node_copy(node, argument)
    given = tuple(node for node in nodes if any(user not in inside for user in node.users))
    results = tuple(copied[node] for node in given)
    graph.output(results if always_return_tuple or len(results) != 1 else results[0])
    graph.lint()
    fused, _ = lift_subgraph_as_module(gm, graph, class_name=module_name)
    return fused, tuple(inputs), given


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: Sequence[Node],
    orig_outputs: Sequence[Node],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Call `sub_gm` in `gm` after `insertion_point`, or after the last of `orig_outputs`, and use its results instead
    of these.  Its name is that of its class.
    """
    if insertion_point is None:
        insertion_point = next((node for node in reversed(gm.graph.nodes) if node in orig_outputs), None)
        if insertion_point is None:
            raise AssertionError(
                "Cannot determine insertion point: no insertion_point provided and orig_outputs is empty. Pass the "
                "last partition node as insertion_point."
            )
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    with gm.graph.inserting_after(insertion_point):
        call = gm.graph.call_module(name, tuple(orig_inputs))
    if not orig_outputs:
        return gm
    results: Any = sub_gm.graph.output_node().args[0]
    items: Any = Proxy(call)
    with gm.graph.inserting_before(call.next):
        if len(orig_outputs) == 1 and not isinstance(results, tuple):
            orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
            return gm
        for place, node in enumerate(orig_outputs):
            node.replace_all_uses_with(items[place].node, propagate_meta=True)
    call.meta["val"] = tuple(node.meta.get("val") for node in orig_outputs)
    return gm


def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Erase nodes, the last one first."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


def fuse_by_partitions(
    gm: GraphModule, partitions: list[dict[Node, int | None]], prefix: str = "fused_", always_return_tuple: bool = False
) -> GraphModule:
    """Replace the nodes of each partition by the call of a module `fused_0`, `fused_1`, ...; in place."""
    for number, partition in enumerate(partitions):
        nodes = topo_sort(list(partition))
        fused, taken, given = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{number}", partition, always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, fused, taken, given, nodes[-1])
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
