"""What a program requires of sizes that elements tell, as nodes that check it."""

from __future__ import annotations

import operator
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.sizes import Integer, Undecided
from rushlight.fx.graph import Graph
from rushlight.fx.node import Node
from rushlight.utils._sympy.numbers import int_oo

__all__ = ["assert_bounds"]


def assert_bounds(graph: Graph, env: Any) -> None:
    """Check the bounds of each size without a value where it is computed: RuntimeError when the program runs."""
    for name in env.unbacked_names:
        symbol = env.symbols[env._symbol_names.index(name)]
        found = _source(graph, symbol)
        if found is None:
            continue
        bounds = env.bounds_of(symbol.terms)
        spot = found
        for word, sign, bound in (("ge", ">=", bounds.lower), ("le", "<=", bounds.upper)):
            if bound in (int_oo, -int_oo):
                continue
            with graph.inserting_after(spot):
                test = graph.create_node("call_function", getattr(operator, word), (found, bound), {}, name=word)
            number = found.meta["val"]
            test.meta["val"] = Undecided(bound - number if word == "ge" else number - bound, "<=")
            text = f"Runtime assertion failed for expression {name} {sign} {bound} on node '{test.name}'"
            with graph.inserting_after(test):
                op = rushlight.ops.aten._assert_scalar.default
                spot = graph.create_node("call_function", op, (test, text), {}, name="_assert_scalar_default")
            spot.meta["val"] = None
            for node in (test, spot):
                node.meta.update({k: v for k, v in found.meta.items() if k in ("stack_trace", "nn_module_stack")})


def _source(graph: Graph, symbol: Any) -> Node | None:
    """The node that gives a symbol first; made where a tensor's size is it."""
    for node in graph.nodes:
        value = node.meta.get("val")
        if type(value) is Integer and value.terms == symbol.terms:
            return node
        if isinstance(value, Tensor) and node.op == "call_function":
            for d, size in enumerate(value.shape):
                if type(size) is Integer and size.terms == symbol.terms:
                    return _size_of(graph, node, d, size)
    return None


def _size_of(graph: Graph, node: Node, d: int, size: Any) -> Node:
    op = rushlight.ops.aten.sym_size.int
    known = [u for u in node.users if u.target is op and u.args == (node, d)]
    with graph.inserting_after(node):
        made = graph.create_node("call_function", op, (node, d), {}, name="sym_size_int")
    made.meta["val"] = size
    made.meta.update({k: v for k, v in node.meta.items() if k in ("stack_trace", "nn_module_stack")})
    for each in known:
        each.replace_all_uses_with(made)
        graph.erase_node(each)
    return made
