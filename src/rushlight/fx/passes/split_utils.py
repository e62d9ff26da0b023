"""`torch.fx.passes.split_utils`: a graph cut by the tags of its nodes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from rushlight import nn
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node, map_arg
from rushlight.fx.passes.utils.subgraphs import HolderModule, lift_subgraph_as_module
from rushlight.fx.proxy import Proxy

__all__ = ["Component", "getattr_recursive", "setattr_recursive", "split_by_tags"]


def getattr_recursive(obj: Any, name: str) -> Any:
    """The attribute at the end of a dotted path; None where there is none."""
    for part in name.split("."):
        if isinstance(obj, nn.ModuleList):
            obj = obj._modules.get(part)
        else:
            obj = getattr(obj, part, None)
        if obj is None:
            return None
    return obj


def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Set the attribute at the end of a dotted path."""
    *outer, last = attr.split(".")
    for part in outer:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@dataclass
class Component:
    """The graph of one tag: its inputs there and in the whole graph, and the nodes of the whole graph that it gives."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> GraphModule | tuple[GraphModule, dict[str, str]]:
    """A module of `GraphModuleCls` that calls one module for each of `tags`, named like it, in this order: the nodes
    whose attribute `tag` is that tag.

    Nodes that read attributes need no tag, they are copied to where they are used.  With `return_tuple` a part gives
    a tuple also where it gives one value; with `return_fqn_mapping` the paths of modules and attributes in the result
    come too.  AssertionError for nodes without a tag, and where a part needs a later one.
    """
    split = _Split(gm, tags)
    for node in gm.graph.nodes:
        split.place(node)
    if split.output is None:
        raise RuntimeError("Graph had no output node!")
    split.mark_results()
    moved: dict[str, str] = {}
    for part in split.parts.values():
        moved |= split.call(part, return_tuple)
    result = split.finish(GraphModuleCls)
    return (result, moved) if return_fqn_mapping else result


class _Split:
    """The parts and the outer graph, while they are built."""

    def __init__(self, gm: GraphModule, tags: list[str]) -> None:
        self.gm, self.graph = gm, Graph()
        self.parts = {tag: Component(Graph(), place, tag) for place, tag in enumerate(tags)}
        self.owner: dict[Node, Component] = {}
        self.inner: dict[Node, Node] = {}  # copies in the parts
        self.outer: dict[Node, Node] = {}  # values in the outer graph
        self.needed: dict[Node, None] = {}  # nodes whose values cross the outer graph
        self.output: Node | None = None

    def place(self, node: Node) -> None:
        """Copy a node to its part, or an input to the outer graph."""
        if node.op == "output":
            self.output = node
        elif node.op == "placeholder":
            self.outer[node] = self.graph.placeholder(node.name, type_expr=node.type)
            self.outer[node].meta = copy.copy(node.meta)
        elif node.op != "get_attr":
            if not hasattr(node, "tag"):
                raise AssertionError(f"Node does not have tag: {node.format_node()}")
            part = self.owner[node] = self.parts[node.tag]
            latest = max((self.owner[each].order for each in node.all_input_nodes if each in self.owner), default=0)
            if part.order < latest:
                raise AssertionError(
                    f"Component {part.name} order must be >= max of its upstream components, order={part.order} and "
                    f"max={latest}"
                )
            made: Any = part.graph.node_copy(node, lambda each: self._argument(part, each))
            made.tag, self.inner[node] = node.tag, made

    def _argument(self, part: Component, node: Node) -> Node:
        if node.op == "get_attr":
            if node not in part.getattr_maps:
                read = part.getattr_maps[node] = part.graph.get_attr(str(node.target), type_expr=node.type)
                read.meta = copy.copy(node.meta)
            return part.getattr_maps[node]
        if self.owner.get(node) is part:
            return self.inner[node]
        if node not in part.orig_inputs:
            part.orig_inputs.append(node)
            made = part.graph.placeholder(node.name, type_expr=node.type)
            made.meta = copy.copy(node.meta)
            part.input_placeholders.append(made)
            self.needed[node] = None
        return part.input_placeholders[part.orig_inputs.index(node)]

    def mark_results(self) -> None:
        """Note which nodes each part gives."""
        for node in self._results():
            if node.op == "get_attr":
                self.outer[node] = self.graph.get_attr(node.name, type_expr=node.type)
            else:
                self.needed[node] = None
        for node in self.needed:
            if node.op != "placeholder":
                self.owner[node].orig_outputs.append(node)

    def _results(self) -> list[Node]:
        found: list[Node] = []
        assert self.output is not None
        map_arg(self.output.args[0], lambda node: found.append(node) or node)  # type: ignore[func-returns-value]
        return found

    def call(self, part: Component, return_tuple: bool) -> dict[str, str]:
        """Finish a part, and call it in the outer graph; the paths of what it holds."""
        given = tuple(self.inner[node] for node in part.orig_outputs)
        single = len(given) == 1 and not return_tuple
        part.graph.output(given[0] if single else given)
        part.gm, moved = lift_subgraph_as_module(self.gm, part.graph, comp_name=part.name)
        called: Any = self.graph.call_module(part.name, tuple(self.outer[node] for node in part.orig_inputs))
        items: Any = Proxy(called)
        for place, node in enumerate(part.orig_outputs):
            self.outer[node] = called if single else items[place].node
        return moved

    def finish(self, kind: type[GraphModule]) -> GraphModule:
        """The outer module."""
        assert self.output is not None
        self.graph.output(map_arg(self.output.args[0], self.outer.__getitem__))
        self.graph._codegen = self.gm.graph._codegen
        root = HolderModule({part.name: part.gm for part in self.parts.values()})
        for node in self._results():
            if node.op == "get_attr":
                setattr(root, node.name, getattr_recursive(self.gm, str(node.target)))
        return kind(root, self.graph)
