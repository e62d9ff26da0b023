"""Assertions about data-dependent sizes, as nodes that check them."""

from __future__ import annotations

import operator
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._interface.sizes import Integer, Undecided, apart
from rushlight.fx.graph import Graph
from rushlight.fx.node import Node
from rushlight.utils._sympy.numbers import int_oo

__all__ = ["CONDITIONS", "assert_bounds", "assert_required", "is_bound"]

# Functions of numbers that conditions consist of.
CONDITIONS = frozenset(
    (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.neg, operator.eq, operator.ne, operator.lt, operator.le,
     operator.gt, operator.ge)
)  # fmt: skip


def is_bound(condition: Any) -> bool:
    """Whether a condition is a bound of one size that elements tell, which `assert_bounds` checks."""
    if not isinstance(condition, Undecided):
        return False
    env: Any = condition.difference.shape_env
    rest, _, _ = apart(condition.difference.terms)
    ((atoms, factor), *others) = rest
    alone = not others and len(atoms) == 1 and factor == 1 and env._names[atoms[0]] in env.unbacked_names
    return alone and (condition.wanted != "==" or condition.held)


def assert_bounds(graph: Graph, env: Any) -> None:
    """Check the bounds of each size without a value where it is computed: RuntimeError when the program runs."""
    for name in env.unbacked_names:
        if name not in env._symbol_names:  # a number with a fraction has no bounds
            continue
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


def assert_required(mode: Any, condition: Any) -> None:
    """Check what the program requires, here, of sizes that elements tell and of other sizes beside them."""
    test = mode.node_of(condition)
    text = f"Runtime assertion failed for expression {condition} on node '{test.name}'"
    op = rushlight.ops.aten._assert_scalar.default
    made = mode.graph.create_node("call_function", op, (test, text), {}, name="_assert_scalar_default")
    made.meta["val"] = None


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
