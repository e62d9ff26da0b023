"""`torch.fx.passes.tools_common`: names of what nodes call, sorted graphs, and groups of nodes that pass other values
than tensors.
"""

from __future__ import annotations

import heapq
import operator
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rushlight import Tensor, ops
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, _get_qualified_name
from rushlight.nn.modules.module import Module

__all__ = [
    "CALLABLE_NODE_OPS",
    "FxNetAccFusionsFinder",
    "get_acc_ops_name",
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

NodeList = list[Node]
NodeSet = set[Node]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_acc_ops_name(k: Any) -> str:
    """The name of a class or function with its module; functions of a module `acc_ops` go by that short name."""
    if isinstance(k, str):
        return k
    module = k.__module__ or ""
    module = "acc_ops" if "acc_ops" in module else module.replace("torch._ops", "torch.ops")
    return f"{module}.{k.__name__}"


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """The class of the module that a node calls, the full name of its function, or the name of its method.

    AssertionError for nodes that call nothing.

    >>> import rushlight as torch
    >>> net = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.ReLU()))
    >>> get_node_target(dict(net.named_modules()), list(net.graph.nodes)[1]).endswith("nn.modules.activation.ReLU")
    True
    """
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(f"Expect op types of {', '.join(sorted(CALLABLE_NODE_OPS))}, but found {node.op}")
    target: Any = node.target
    if node.op == "call_method":
        return target
    if node.op == "call_function":
        return get_acc_ops_name(target) if "acc_ops" in (target.__module__ or "") else _get_qualified_name(target)
    called = submodules[target]
    return get_acc_ops_name(getattr(called, "_base_class_origin", type(called)))


def is_node_output_tensor(node: Node) -> bool:
    """Whether a node gives a tensor, as `ShapeProp` noted in `node.meta["type"]`."""
    kind = node.meta.get("type")
    return kind is not None and issubclass(kind, Tensor)


# ***** sorted graphs *****


def _sorted_nodes(nodes: Iterable[Node], ready: Any, push: Callable[[Any, Node], None], pop: Any) -> list[Node]:
    """Kahn's algorithm: `ready` holds the nodes whose inputs are all there."""
    nodes = list(nodes)
    waiting = dict.fromkeys(nodes, 0)
    for node in nodes:
        for user in node.users:
            if user in waiting:
                waiting[user] += 1
    for node in nodes:
        if not waiting[node]:
            push(ready, node)
    done: list[Node] = []
    while ready:
        node = pop(ready)
        done.append(node)
        for user in node.users:
            if user in waiting:
                waiting[user] -= 1
                if not waiting[user]:
                    push(ready, user)
    return done


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """Nodes of a graph after their inputs, otherwise in the order given; fewer than given where they form a circle."""
    nodes = list(nodes)
    place = {node: index for index, node in enumerate(nodes)}
    return _sorted_nodes(
        nodes, [], lambda ready, node: heapq.heappush(ready, (place[node], node)), lambda ready: heapq.heappop(ready)[1]
    )


def _rebuild(gm: GraphModule, order: list[Node]) -> GraphModule:
    graph = Graph()
    copied: dict[Node, Node] = {}
    for node in order:
        copied[node] = graph.node_copy(node, copied.__getitem__)
    graph._codegen = gm.graph._codegen
    gm.graph = graph
    return gm


def _cycle(gm: GraphModule, order: list[Node]) -> str:
    return f"Input graph has cycles, unable to add {[node for node in gm.graph.nodes if node not in set(order)]}"


def _size_arithmetic() -> list[Any]:
    """Functions that assert something of sizes: they go before operators whose sizes depend on data."""
    aten: Any = ops.aten
    names = "add mul sub floordiv truediv mod le lt ge gt eq ne".split()
    return [getattr(operator, name) for name in names] + [
        aten.sym_constrain_range.default,
        aten.sym_constrain_range_for_size.default,
        aten._assert_async.msg,
        aten.scalar_tensor.default,
        aten._assert_scalar.default,
    ]


def legalize_graph(gm: GraphModule) -> GraphModule:
    """Sort the graph of a module so that each node comes after its inputs, nearest to the inputs first; in place.

    RuntimeError where nodes need one another.
    """
    first = _size_arithmetic()

    def push(ready: deque[Node], node: Node) -> None:
        if node.op == "call_function" and node.all_input_nodes and node.target in first:
            ready.appendleft(node)
        else:
            ready.append(node)

    order = _sorted_nodes(gm.graph.nodes, deque(), push, deque.popleft)
    if len(order) < len(gm.graph.nodes):
        raise RuntimeError(_cycle(gm, order))
    return _rebuild(gm, order)


def validate_partition(partition: list[Node]) -> bool:
    """Whether no path leaves these nodes and comes back to them."""
    inside = set(partition)
    todo = [user for node in inside for user in node.users if user not in inside]
    seen: set[Node] = set()
    while todo:
        node = todo.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            todo += node.users
    return True


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Sort the graph of a module so that each node comes after its inputs, otherwise in its present order; in place.

    AssertionError where nodes need one another.
    """
    order = in_order(gm.graph.nodes)
    if len(order) < len(gm.graph.nodes):
        raise AssertionError(_cycle(gm, order))
    return _rebuild(gm, order)


# ***** values that are no tensors *****


class FxNetAccFusionsFinder:
    """Groups of an accelerator's nodes that pass other values than tensors to one another, and so stay together.

    Called, it gives the group of each such node.  Nodes of a group that contains others than `acc_nodes` are taken out
    of `acc_nodes`.  Tensors are what `ShapeProp` gave a `tensor_meta`.
    """

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module, self.acc_nodes = module, acc_nodes
        self.nodes = list(module.graph.nodes)
        self.node_index = {node: place for place, node in enumerate(self.nodes)}

    def __call__(self) -> dict[Node, NodeSet]:
        found: dict[Node, NodeSet] = {}
        for node in sorted(self.acc_nodes, key=self.node_index.__getitem__):
            if node in found or node not in self.acc_nodes or node.op not in CALLABLE_NODE_OPS or _is_tensor(node):
                continue
            group = self._group(node)
            if group <= self.acc_nodes:
                found.update(dict.fromkeys(group, group))
            else:
                self.acc_nodes -= group
        return found

    def _group(self, start: Node) -> NodeSet:
        """Makers and users of the values, and every node on a path between two nodes of the group."""
        group, new = {start}, [start]
        while new:
            node = new.pop()
            ends = [] if _is_tensor(node) else [user for user in node.users if user.op in CALLABLE_NODE_OPS]
            ends += [each for each in node.all_input_nodes if each.op in CALLABLE_NODE_OPS and not _is_tensor(each)]
            for each in ends:
                if each not in group:
                    group.add(each)
                    new.append(each)
            if not new:
                between = self._between(group) - group
                group |= between
                new += between
        return group

    def _between(self, group: NodeSet) -> NodeSet:
        below, above = _reached(group, lambda n: n.users), _reached(group, lambda n: n.all_input_nodes)
        return {node for node in below & above if node.op in CALLABLE_NODE_OPS}


def _is_tensor(node: Node) -> bool:
    return "tensor_meta" in node.meta


def _reached(start: NodeSet, step: Callable[[Node], Iterable[Node]]) -> NodeSet:
    seen: NodeSet = set()
    todo = list(start)
    while todo:
        for each in step(todo.pop()):
            if each not in seen:
                seen.add(each)
                todo.append(each)
    return seen
