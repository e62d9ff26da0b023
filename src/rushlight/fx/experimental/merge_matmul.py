"""`torch.fx.experimental.merge_matmul`: products with one right-hand side as one product.

>>> import rushlight as torch
>>> def two(x, y, z):
...     return torch.matmul(x, z), torch.matmul(y, z)
>>> merged = merge_matmul(two)
>>> [node.name for node in merged.graph.nodes if node.op == "call_function"][:3]
['cat', 'matmul_2', 'split_result_tensors']
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import rushlight as torch
from rushlight.fx._symbolic_trace import symbolic_trace
from rushlight.fx.graph_module import GraphModule
from rushlight.fx.node import Node
from rushlight.fx.passes.tools_common import legalize_graph
from rushlight.nn.modules.module import Module

__all__ = ["are_nodes_independent", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(result: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """The rows of `result` that belong to each of `inputs`."""
    return torch.split(result, [each.shape[0] for each in inputs])


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether `a` is `b` or needs it; True also where `search_depth` steps do not tell."""
    if a == b:
        return True
    if not a.all_input_nodes:
        return False
    return search_depth == 0 or any(may_depend_on(each, b, search_depth - 1) for each in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether no node needs another of them."""
    return not any(may_depend_on(one, other) or may_depend_on(other, one) for one, other in combinations(nodes, 2))


def merge_matmul(in_mod: Module | Callable[..., Any]) -> GraphModule:
    """The traced module with calls of `torch.matmul` that have the same right-hand side, and need not wait for one
    another, made one call: the left-hand sides are joined along their rows, and the product is split.
    """
    gm = symbolic_trace(in_mod)
    graph = gm.graph
    by_right: dict[Any, list[Any]] = {}
    for node in graph.nodes:
        if node.op == "call_function" and node.target is torch.matmul:
            right = node.args[1]
            by_right.setdefault(right.target if right.op == "get_attr" else right, []).append(node)
    for right, products in by_right.items():
        if len(products) < 2 or not are_nodes_independent(products):
            continue
        lefts = [product.args[0] for product in products]
        joined = graph.call_function(torch.cat, (lefts,))
        whole = graph.call_function(torch.matmul, (joined, graph.get_attr(right) if isinstance(right, str) else right))
        pieces = graph.call_function(split_result_tensors, (whole, lefts))
        for place, product in enumerate(products):
            product.replace_all_uses_with(graph.call_function(operator.getitem, (pieces, place)))
            graph.erase_node(product)
        legalize_graph(gm)
        graph = gm.graph
    gm.recompile()
    gm.graph.lint()
    return gm
