"""`torch.ao.quantization.fx.utils`: nodes and modules of graphs that are quantized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, map_arg

__all__ = [
    "assert_and_get_unique_device", "collect_producer_nodes", "get_new_attr_name_with_prefix", "graph_module_from_producer_nodes",
    "node_arg_is_bias", "node_arg_is_weight",
]  # fmt: skip


def _is_argument(node: Node, arg: Any, word: str) -> bool:
    """Whether `arg` is the argument of this meaning: by the place that the preparation noted, or by name."""
    place = node.meta.get("target_dtype_info", {}).get(f"{word}_index")
    if place is not None and place < len(node.args) and node.args[place] is arg:
        return True
    return node.kwargs.get(word) is arg


def node_arg_is_weight(node: Node, arg: Any) -> bool:
    """Whether an argument of a node is its weight."""
    return _is_argument(node, arg, "weight")


def node_arg_is_bias(node: Node, arg: Any) -> bool:
    """Whether an argument of a node is its bias."""
    return _is_argument(node, arg, "bias")


def get_new_attr_name_with_prefix(prefix: str) -> Callable[[Any], str]:
    """A function that gives, for a module, the first name `prefix0`, `prefix1`... which it does not have."""
    stem = prefix.replace(".", "_")

    def free_name(module: Any) -> str:
        number = 0
        while hasattr(module, f"{stem}{number}"):
            number += 1
        return f"{stem}{number}"

    return free_name


def collect_producer_nodes(node: Node) -> list[Node] | None:
    """The nodes that a value is computed from, itself first; None where an input of the graph is among them."""
    found, waiting = [node], [node]
    while waiting:
        for arg in waiting.pop().all_input_nodes:
            if arg.op == "placeholder":
                return None
            found.append(arg)
            if not (arg.op == "call_function" and arg.target is getattr):
                waiting.append(arg)
    return found


def graph_module_from_producer_nodes(root: GraphModule, producer_nodes: list[Node]) -> GraphModule:
    """A module that computes the first of `collect_producer_nodes` from the root's attributes; the list is reversed."""
    if not producer_nodes:
        raise AssertionError("list of producer nodes can not be empty")
    producer_nodes.reverse()
    graph, made = Graph(), dict[Node, Node]()
    for node in producer_nodes:
        made[node] = graph.node_copy(node, lambda n: made[n])
    graph.output(map_arg(producer_nodes[-1], lambda n: made[n]))
    return GraphModule(root, graph)


def assert_and_get_unique_device(module: Any) -> Any:
    """The device of all parameters and buffers of a module; None without any, AssertionError where they are on several."""
    devices = {p.device for p in module.parameters()} | {b.device for b in module.buffers()}
    if len(devices) > 1:
        raise AssertionError(f"prepare only works with cpu or single-device CUDA modules, but got devices {devices}")
    return next(iter(devices), None)


def _get_module(node: Node, named_modules: dict[str, Any]) -> Any:
    """The module that a node calls; None where it calls none."""
    return named_modules.get(str(node.target)) if node.op == "call_module" else None
