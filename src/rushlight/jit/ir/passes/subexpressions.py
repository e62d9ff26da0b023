"""Common subexpressions: what is computed twice of the same values is computed once."""

from __future__ import annotations

from typing import Any

from rushlight.jit.ir.graph import Block, Graph, Node
from rushlight.jit.ir.passes.constants import node_has_effect, written_values

__all__ = ["eliminate_common"]

_RANDOM = (
    "rand",
    "dropout",
    "bernoulli",
    "multinomial",
    "normal",
    "poisson",
    "uniform",
    "exponential",
    "cauchy",
    "geometric",
    "rrelu",
    "seed",
)
_MADE = (
    "prim::ListConstruct",
    "prim::DictConstruct",
    "prim::CreateObject",
    "prim::Uninitialized",
    "prim::GetAttr",
    "prim::Load",
)


def eliminate_common(graph: Graph) -> bool:
    """Use the first of equal nodes for the others; whether there were any.

    Nodes that draw random numbers, change something, make something that can be changed, or read what is changed stay.
    """
    return _eliminate(graph.block, {}, bool(written_values(graph.block)))


def _eliminate(block: Block, outer: dict[Any, Node], mutable: bool) -> bool:
    seen, changed = dict(outer), False
    for node in list(block.nodes):
        for inner in node.blocks:
            changed |= _eliminate(inner, seen, mutable)
        key = _key(node, mutable)
        if key is None:
            continue
        first = seen.setdefault(key, node)
        if first is not node:
            node.replaceAllUsesWith(first)
            node.destroy()
            changed = True
    return changed


def _key(node: Node, mutable: bool) -> Any:
    if node.blocks or not node.outputs or node.kind_ in _MADE or node_has_effect(node):
        return None
    if any(word in node.kind_ for word in _RANDOM):
        return None
    if mutable and node.kind_ != "prim::Constant":
        return None
    kinds = tuple(str(v.type) for v in node.outputs)
    held = tuple(
        (k, type(v), repr(v) if isinstance(v, (bool, int, float, str, complex)) else id(v))
        for k, v in node.attributes.items()
    )
    return node.kind_, tuple(id(v) for v in node.inputs), kinds, held
