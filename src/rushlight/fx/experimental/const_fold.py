"""`torch.fx.experimental.const_fold`: what depends on a module's own tensors alone is computed once, before its first
call.

>>> import rushlight as torch
>>> class Net(torch.nn.Module):
...     def __init__(self):
...         super().__init__()
...         self.weight = torch.nn.Parameter(torch.ones(2))
...     def forward(self, x):
...         return x + self.weight * 3
>>> folded = split_const_subgraphs(Net())
>>> [node.name for node in folded.graph.nodes], folded(torch.zeros(2)).tolist()
(['x', '_fx_const_folded_attrs', 'add', 'output'], [3.0, 3.0])
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight.fx._symbolic_trace import symbolic_trace
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.nn.modules.module import Module

__all__ = ["FoldedGraphModule", "get_unique_attr_name_in_module", "split_const_subgraphs"]


class FoldedGraphModule(GraphModule):
    """A graph module that runs `const_subgraph_module` before its first call, and keeps the results as
    `fx_const_folded_attrs_name`.
    """

    def __init__(
        self,
        root: Module,
        graph: Graph,
        const_subgraph: Graph | None = None,
        fx_const_folded_attrs_name: str | None = None,
        device_for_folded_attrs: str = "cuda",
    ) -> None:
        super().__init__(root, graph)
        self.const_subgraph_module = None if const_subgraph is None else GraphModule(root, const_subgraph)
        self.has_folding_been_run = False
        self.fx_const_folded_attrs_name = fx_const_folded_attrs_name
        self.device_for_folded_attrs = device_for_folded_attrs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.has_folding_been_run:
            self.run_folding()
        return super().__call__(*args, **kwargs)

    def run_folding(self) -> None:
        """Compute what is constant; AssertionError the second time."""
        if self.const_subgraph_module is None or self.fx_const_folded_attrs_name is None:
            return
        if self.has_folding_been_run:
            raise AssertionError("Folding has already been run")
        self.has_folding_been_run = True
        made = self.const_subgraph_module()
        kept: Any = (
            rushlight.nn.ParameterList([self._kept(each) for each in made])
            if isinstance(made, tuple)
            else self._kept(made)
        )
        setattr(self, self.fx_const_folded_attrs_name, kept)

    def _kept(self, value: Any) -> Any:
        if isinstance(value, rushlight.Tensor):
            return rushlight.nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
        return rushlight.nn.Parameter(rushlight.Tensor([value]).to(self.device_for_folded_attrs), requires_grad=False)


def get_unique_attr_name_in_module(mod_traced: Module, name: str) -> str:
    """`name` as an attribute that the module does not have yet: what cannot be in a name becomes `_`, a number makes it
    unique.
    """
    name = "".join(letter if letter.isalnum() or letter == "_" else "_" for letter in name)
    name = f"_{name}" if name[0].isdigit() else name
    stem, _, number = name.rpartition("_")
    stem, first = (stem, int(number) + 1) if stem and number.isdigit() else (name, 1)
    taken = itertools.chain((name,), (f"{stem}_{i}" for i in itertools.count(first)))
    return next(each for each in taken if not hasattr(mod_traced, each))


def split_const_subgraphs(
    module: Module, skip_folding_node_fn: Callable[[Node], bool] | None = None, device_for_folded_attrs: str = "cpu"
) -> FoldedGraphModule:
    """A module whose graph reads what `module` computes from its own tensors; nodes that `skip_folding_node_fn` names
    are left where they are.
    """
    traced = module if isinstance(module, GraphModule) else symbolic_trace(module)
    constant = _constant_nodes(traced, skip_folding_node_fn)
    wanted = [node for node in constant if node.op != "get_attr" and any(user not in constant for user in node.users)]
    if not wanted:
        return FoldedGraphModule(traced, traced.graph)
    name = get_unique_attr_name_in_module(traced, "_FX_CONST_FOLDED_ATTRS")
    setattr(
        traced, name, rushlight.nn.ParameterList() if len(wanted) > 1 else rushlight.nn.Parameter(rushlight.empty(0))
    )
    try:
        return FoldedGraphModule(
            traced,
            _rest(traced.graph, constant, wanted, name),
            _constants(constant, wanted),
            name,
            device_for_folded_attrs,
        )
    finally:
        delattr(traced, name)


def _constant_nodes(traced: GraphModule, skip: Callable[[Node], bool] | None) -> dict[Node, None]:
    """The nodes that depend on nothing but attributes, in order."""
    constant: dict[Node, None] = {}
    for node in traced.graph.nodes:
        if node.op in ("placeholder", "output") or (
            node.op != "get_attr" and not constant.keys() >= set(node.all_input_nodes)
        ):
            continue
        if (skip is not None and skip(node)) or node.is_impure() or _has_effects(traced, node):
            continue
        constant[node] = None
    return constant


def _has_effects(traced: GraphModule, node: Node) -> bool:
    if node.op != "call_module":
        return False
    called = traced.get_submodule(str(node.target))
    return isinstance(called, GraphModule) and any(
        inner.is_impure() or _has_effects(called, inner) for inner in called.graph.nodes
    )


def _constants(constant: dict[Node, None], wanted: list[Node]) -> Graph:
    """The graph that computes what the rest wants of the constants."""
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in constant:
        made[node] = graph.node_copy(node, made.__getitem__)
    results = tuple(made[node] for node in wanted)
    graph.output(results if len(results) > 1 else results[0])
    graph.eliminate_dead_code()
    return graph


def _rest(old: Graph, constant: dict[Node, None], wanted: list[Node], name: str) -> Graph:
    """The graph without the constants; their results are read from the attribute `name`."""
    graph = Graph(tracer_cls=old._tracer_cls)
    made: dict[Node, Node] = {}
    for node in old.nodes:
        if node.op != "placeholder" and wanted[0] not in made:  # behind the arguments, before all else
            _read(graph, made, wanted, name)
        if node.op == "get_attr" or node not in constant:
            made[node] = graph.node_copy(node, made.__getitem__)
    graph.eliminate_dead_code()
    return graph


def _read(graph: Graph, made: dict[Node, Node], wanted: list[Node], name: str) -> None:
    folded = graph.get_attr(name)
    for at, node in enumerate(wanted):
        made[node] = folded if len(wanted) == 1 else graph.call_function(operator.getitem, (folded, at))
        made[node].meta = node.meta.copy()
