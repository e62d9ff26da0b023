"""`torch.fx.passes.utils.source_matcher_utils`: the nodes that a module or function of the user became."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rushlight.fx.graph import Graph
from rushlight.fx.node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@dataclass
class SourcePartition:
    """The nodes of one module or call: what goes in, what comes out, and the parameters among them."""

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


def _class_name(source: type) -> str:
    """A class by its full name in PyTorch, as exported programs write it."""
    first, dot, rest = source.__module__.partition(".")
    return f"{'torch' if first == 'rushlight' else first}{dot}{rest}.{source.__qualname__}"


def _of_module(node: Node, wanted: list[Any]) -> tuple[Any, str] | None:
    """The wanted class of module that a call comes from, and the path of the module."""
    stack = node.meta.get("nn_module_stack") if node.op == "call_function" else None
    if not stack:
        return None
    path, kind = list(stack.values())[-1]
    for source in wanted:
        if isinstance(source, type):
            same = issubclass(kind, source) if isinstance(kind, type) else kind == _class_name(source)
        else:
            same = kind == source
        if same:
            return source, path
    return None


def _sources(node: Node, wanted: list[Any]) -> tuple[Any, str] | None:
    """The wanted source of a node, and the name of the call: functions before modules."""
    stack = node.meta.get("source_fn_stack")
    if stack is not None:
        name, source = stack[-1]
        return (source, name) if source in wanted else None
    function = node.meta.get("torch_fn")
    if function is not None:
        word = function[1].split(".")[1]
        if word in wanted:
            return word, function[0]
    return _of_module(node, wanted)


def get_source_partitions(
    graph: Graph, wanted_sources: list[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """The parts of an exported graph that come from these classes of modules, functions, or names of functions.

    `filter_fn`: a part counts where it is true of all of its nodes.

    >>> import rushlight as torch
    >>> program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()), (torch.ones(1, 2),))
    >>> found = get_source_partitions(program.graph, [torch.nn.Linear])
    >>> [part.nodes for part in found[torch.nn.Linear]]
    [[linear]]
    """
    groups: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        found = _sources(node, wanted_sources)
        if found is not None:
            groups.setdefault(found[0], {}).setdefault(found[1], []).append(node)
    return {
        source: [
            _partition(nodes, source) for nodes in parts.values() if filter_fn is None or all(map(filter_fn, nodes))
        ]
        for source, parts in groups.items()
    }


def _outside(nodes: list[Node]) -> Iterator[Node]:
    for node in nodes:
        yield from (arg for arg in node.args if isinstance(arg, Node) and arg not in nodes and arg.op != "get_attr")


def _partition(nodes: list[Node], source: Any) -> SourcePartition:
    params = [node for node in nodes if node.op == "get_attr"]
    results = [node for node in nodes if node.op != "get_attr" and any(user not in nodes for user in node.users)]
    return SourcePartition(nodes, source, list(dict.fromkeys(_outside(nodes))), results, params)


def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether a node of the second part uses one of the first."""
    inside = set(subgraph2.nodes)
    return any(user in inside for node in subgraph1.nodes for user in node.users)
