"""`torch.fx.passes.dialect.common.cse_pass`: what is computed twice from the same values is computed once.

>>> import rushlight as torch
>>> traced = torch.fx.symbolic_trace(lambda x: torch.sin(x) + torch.sin(x))
>>> result = CSEPass()(traced)
>>> result.modified, [node.name for node in result.graph_module.graph.nodes]
(True, ['x', 'sin', 'add', 'output'])
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import rushlight
from rushlight.fx.graph import Graph
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.fx.passes.infra.pass_base import PassBase, PassResult

__all__ = ["CSEPass", "get_CSE_banned_ops"]

_RANDOM = (
    "dropout", "_fused_dropout", "_standard_gamma", "bernoulli", "multinomial", "native_dropout", "normal", "poisson", "binomial", "rrelu", "rand_like", "rand",
    "randint", "randn", "randperm",
)  # fmt: skip
_IN_PLACE = ("add_", "sub_", "mul_", "div_", "pow_", "lerp_", "relu_", "sigmoid_", "tanh_")


def get_CSE_banned_ops() -> set[Any]:
    """Operators whose second call is not the first: random ones, and those that change an argument."""
    aten = rushlight.ops.aten
    return {getattr(aten, name) for name in (*_RANDOM, *_IN_PLACE) if hasattr(aten, name)}


class CSEPass(PassBase):
    """Common subexpressions of a graph of functions without side effects; calls of `banned_ops` are left as they are."""

    def __init__(self, banned_ops: set[Any] | None = None) -> None:
        self.banned_ops = banned_ops or set()
        super().__init__()

    def call(self, graph_module: GraphModule) -> PassResult:
        """A module with the smaller graph, or the same one where nothing is computed twice."""
        graph, modified = Graph(), False
        made: dict[Node, Node] = {}
        known: dict[Hashable, Node] = {}
        for node in graph_module.graph.nodes:
            key = self._key(node, made)
            if key is not None and key in known:
                made[node], modified = known[key], True
                continue
            made[node] = graph.node_copy(node, made.__getitem__)
            if key is not None:
                known[key] = made[node]
        return PassResult(GraphModule(graph_module, graph) if modified else graph_module, modified)

    def _key(self, node: Node, made: dict[Node, Node]) -> Hashable | None:
        """Key that is equal for nodes that compute the same; None for those that must stay."""
        target = getattr(node.target, "overloadpacket", node.target)
        if node.op in ("placeholder", "output", "get_attr") or target in self.banned_ops:
            return None
        return node.op, node.target, _frozen(node.args, made), _frozen(node.kwargs, made)


def _frozen(value: Any, made: dict[Node, Node]) -> Hashable:
    """Arguments as something hashable; types count, so that 1, 1.0 and True differ."""
    if isinstance(value, Node):
        return made[value]
    if isinstance(value, (list, tuple)):
        return type(value), tuple(_frozen(each, made) for each in value)
    if isinstance(value, dict):
        return dict, tuple((key, _frozen(each, made)) for key, each in value.items())
    if isinstance(value, slice):
        return slice, _frozen((value.start, value.stop, value.step), made)
    return type(value), value if isinstance(value, Hashable) else id(value)
