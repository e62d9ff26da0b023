"""`torch.fx.passes.split_module`: a traced module cut into modules that call one another.

>>> import rushlight as torch
>>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
>>> traced = torch.fx.symbolic_trace(net)
>>> halves = split_module(traced, net, lambda node: 0 if node.target in ("0", "1") else 1)
>>> print(halves.code.strip())
def forward(self, input):
    input_1 = input
    submod_0 = self.submod_0(input_1);  input_1 = None
    submod_1 = self.submod_1(submod_0);  submod_0 = None
    return submod_1
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, map_arg
from rushlight.nn.modules.module import Module

__all__ = ["Partition", "split_module"]

# Nodes that belong to the module around the parts.
_OUTER = frozenset(("placeholder", "get_attr", "output"))


class Partition:
    """One part: its nodes, what it takes and gives (names of nodes, in the order of their first use), which parts it
    needs and feeds.
    """

    def __init__(self, name: str) -> None:
        self.name, self.submod_name = name, f"submod_{name}"
        self.nodes: list[Node] = []
        self.inputs: dict[str, Node] = {}
        self.outputs: dict[str, Node] = {}
        self.needs: dict[str, None] = {}
        self.feeds: dict[str, None] = {}
        self.graph, self.values, self.targets = Graph(), {}, {}  # type: ignore[var-annotated]

    def __repr__(self) -> str:
        taken, given = ", ".join(self.inputs), ", ".join(self.outputs)
        return f"name: {self.name}, nodes: {[node.name for node in self.nodes]}, inputs: [{taken}], outputs: [{given}]"


def split_module(
    m: GraphModule,
    root_m: Module | None,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module that calls `submod_0`, `submod_1`, ... one after another: `split_callback(node)` says which part a node
    of `m` belongs to.

    Parameters and modules are those of `root_m`, under the same names; attributes of `root_m` itself are read outside
    of the parts and given to them.  `qualname_map` is filled with path in the result -> path in `m`.  Parts run in an
    order in which each has what it needs, with `keep_original_order` in that of their first nodes.  With `tuple_return`
    a part gives a tuple also where it gives one value or none.  RuntimeError where parts need one another.
    """
    parts, part_of = _assigned(m.graph, split_callback, partition_affix)
    for node in m.graph.nodes:
        _record_uses(node, parts, part_of)
    order = list(parts) if keep_original_order else _sorted(parts)
    for name in order:
        _build(parts[name], m, keep_original_node_name, keep_original_input_name, qualname_map)

    graph = Graph(tracer_cls=m.graph._tracer_cls)
    values: dict[str, Node] = {}
    around: dict[str, Any] = {}
    for node in m.graph.nodes:
        if node.op == "placeholder":
            default = node.args[0] if node.args else ...
            values[node.name] = graph.placeholder(str(node.target), node.type, default)
        elif node.op == "get_attr":
            values[node.name] = graph.get_attr(str(node.target), node.type)
            around[str(node.target)] = _found(m, str(node.target))
        if node.op in ("placeholder", "get_attr"):
            values[node.name].meta = node.meta.copy()
    for name in order:
        part = parts[name]
        results = tuple(part.values[each] for each in part.outputs.values())
        part.graph.output(results if tuple_return or len(results) > 1 else results[0] if results else None)
        around[part.submod_name] = GraphModule(part.targets, part.graph)
        made = graph.call_module(part.submod_name, tuple(values[each] for each in part.inputs))
        _spread(graph, made, list(part.outputs), values, tuple_return)
    for node in m.graph.nodes:
        if node.op == "output":
            graph.output(map_arg(node.args[0], lambda value: values[value.name]), node.type).meta = node.meta.copy()
    made_module = GraphModule(around, graph)
    made_module.meta = dict(getattr(m, "meta", {}))
    made_module.training = (m if root_m is None else root_m).training
    return made_module


def _assigned(
    graph: Graph, split_callback: Callable[[Node], Any], affix: str | None
) -> tuple[dict[str, Partition], dict[Node, str]]:
    """The parts by name, with their nodes, and the name of each node's part."""
    parts: dict[str, Partition] = {}
    part_of: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op not in _OUTER:
            chosen = split_callback(node)
            name = f"{affix}_{chosen}" if affix else str(chosen)
            parts.setdefault(name, Partition(name)).nodes.append(node)
            part_of[node] = name
    return parts, part_of


def _record_uses(node: Node, parts: dict[str, Partition], part_of: dict[Node, str]) -> None:
    """Write down what a node takes from outside of its part."""
    user = part_of.get(node)

    def record(value: Node) -> Node:
        maker = part_of.get(value)
        if maker != user:
            if maker is not None:
                parts[maker].outputs.setdefault(value.name, value)
            if user is not None:
                parts[user].inputs.setdefault(value.name, value)
            if maker is not None and user is not None:
                parts[user].needs[maker] = parts[maker].feeds[user] = None
        return value

    if node.op not in ("placeholder", "get_attr"):
        map_arg(node.args, record)
        map_arg(node.kwargs, record)


def _sorted(parts: dict[str, Partition]) -> list[str]:
    """The parts in an order in which each comes after those that it needs."""
    waiting = {name: len(part.needs) for name, part in parts.items()}
    ready = [name for name, count in waiting.items() if not count]
    for name in ready:  # grows while it is read
        for user in parts[name].feeds:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(ready) < len(parts):
        left = ", ".join(name for name in parts if name not in ready)
        raise RuntimeError(f"cycle exists between partitions! Among {left}, each needs what another one makes later")
    return ready


def _build(
    part: Partition, m: GraphModule, keep_node_names: Any, keep_input_names: bool, qualname_map: dict[str, str] | None
) -> None:
    """Copy a part's nodes into a graph of its own."""
    for index, (name, node) in enumerate(part.inputs.items()):
        made = part.graph.placeholder(name if keep_input_names else f"arg_{index}", node.type)
        made.meta = node.meta.copy()
        part.values[node] = made
    for node in part.nodes:
        target = node.target
        if node.op == "call_module":
            target = str(node.target).replace(".", "_")
            part.targets[target] = m.get_submodule(str(node.target))
            if qualname_map is not None:
                qualname_map[f"{part.submod_name}.{target}"] = str(node.target)
        args, kwargs = (map_arg(each, part.values.__getitem__) for each in (node.args, node.kwargs))
        made = part.graph.create_node(
            node.op, target, args, kwargs, name=node.name if keep_node_names else None, type_expr=node.type
        )
        made.meta = node.meta.copy()
        part.values[node] = made


def _spread(graph: Graph, made: Node, names: list[str], values: dict[str, Node], tuple_return: bool) -> None:
    """Give the results of a part, in the graph around it, the names of the nodes that made them."""
    if len(names) == 1 and not tuple_return:
        values[names[0]] = made
        return
    for index, name in enumerate(names):
        values[name] = graph.call_function(operator.getitem, (made, index))


def _found(module: Module, path: str) -> Any:
    """The attribute at a path."""
    for name in path.split("."):
        module = getattr(module, name)
    return module
