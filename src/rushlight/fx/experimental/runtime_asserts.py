"""Requirements of a program on sizes that elements tell, as nodes that check it when the graph runs.

Bounds of a size are checked where it is computed, and what the program requires in other words than those bounds; its
own checks stay where they are, as `_assert_scalar`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import rushlight
from rushlight import SymInt, Tensor
from rushlight._interface.sizes import MOST
from rushlight.fx.experimental.sized_nodes import BY_SIGN, MIRRORED
from rushlight.fx.graph import Graph
from rushlight.fx.node import Node

__all__ = ["RuntimeAsserts", "relation"]

_SIGNS: dict[Any, str] = {function: sign for sign, function in BY_SIGN.items()}
_LEAST = -(1 << 61)  # no bound is less: a number of a tensor may be any integer


def relation(target: Any, a: Any, b: Any) -> str:
    """A comparison as PyTorch prints its expression: the number on the right."""
    sign = _SIGNS[target]
    if not isinstance(a, SymInt):
        a, b, sign = b, a, MIRRORED[sign]
    left, right = [x.shape_env.shown(x) if isinstance(x, SymInt) else str(x) for x in (a, b)]
    return f"{'Eq' if sign == '==' else 'Ne'}({left}, {right})" if sign in ("==", "!=") else f"{left} {sign} {right}"


class RuntimeAsserts:
    """The assertions of one graph; `required` are the conditions on sizes that its program requires."""

    def __init__(self, graph: Graph, node_of: Callable[[str], Node | None], required: Iterable[Any]) -> None:
        self._graph, self._node_of = graph, node_of
        self._required = list(required)
        self._own = {node.args[0].meta.get("relation") for node in graph.nodes if _is_check(node)}
        self._added: set[str] = set()
        self._seen: set[str] = set()

    def insert(self) -> None:
        """Add them to the graph."""
        for node in list(self._graph.nodes):
            if _is_check(node):
                self._replace(node)
            spot = node
            for symbol, place in _symbols_in(node.meta.get("example_value")):
                name = symbol.shape_env.text_of(symbol)
                if name not in self._seen and node.op != "placeholder":
                    self._seen.add(name)
                    spot = self._bounds(symbol, self._number(symbol, node, place, spot), spot)

    def _number(self, symbol: Any, node: Node, place: tuple[int, ...], spot: Node) -> Node:
        """The node that gives a symbol: this one, or a size of what it gives."""
        if not place:
            return node
        known = self._node_of(symbol.shape_env.text_of(symbol)) if len(place) == 1 else None
        if known is not None:
            return known
        for index in place[:-1]:
            with self._graph.inserting_after(spot):
                node = spot = self._graph.call_function(operator.getitem, (node, index))
        with self._graph.inserting_after(spot):
            made = self._graph.call_function(rushlight.ops.aten.sym_size.int, (node, place[-1]))
        made.meta["example_value"] = symbol
        return made

    def _bounds(self, symbol: Any, number: Node, spot: Node) -> Node:
        """Check what is known of a symbol, behind a node; the last node."""
        env = symbol.shape_env
        name = env.text_of(symbol)
        spot = number if number is not spot else spot
        lo, hi = env.known_bounds(symbol.terms)
        for sign, bound in ((">=", lo), ("<=", hi)):
            if _LEAST < bound < MOST:
                spot = self._check(number, sign, int(bound), f"{name} {sign} {int(bound)}", spot)
        for condition in self._required:
            left, sign, right = _apart(str(condition))
            if left == name and sign in ("<", ">", "Eq", "Ne") and right.lstrip("-").isdigit():
                spot = self._check(number, {"Eq": "==", "Ne": "!="}.get(sign, sign), int(right), str(condition), spot)
        return spot

    def _check(self, number: Node, sign: str, bound: int, text: str, spot: Node) -> Node:
        if text in self._own or text in self._added:
            return spot
        self._added.add(text)
        with self._graph.inserting_after(spot):
            test = self._graph.call_function(BY_SIGN[sign], (number, bound))
        test.meta["relation"] = text
        with self._graph.inserting_after(test):
            message = f"Runtime assertion failed for expression {text} on node '{test.name}'"
            return self._graph.call_function(rushlight.ops.aten._assert_scalar.default, (test, message))

    def _replace(self, node: Node) -> None:
        """The program's own check."""
        test: Any = node.args[0]
        default = f"Runtime assertion failed for expression {test.meta['relation']} on node '{test.name}'"
        with self._graph.inserting_before(node):
            made = self._graph.call_function(
                rushlight.ops.aten._assert_scalar.default, (test, (*node.args, default)[1])
            )
        node.replace_all_uses_with(made)
        self._graph.erase_node(node)
        self._added.add(test.meta["relation"])


def _is_check(node: Node) -> bool:
    """Whether this is a `torch._check` of a comparison of sizes."""
    named = getattr(node.target, "__name__", "") == "_check" and node.op == "call_function"
    return named and isinstance(node.args[0], Node) and "relation" in node.args[0].meta


def _apart(text: str) -> tuple[str, str, str]:
    """Left side, sign and right side of a condition as text: `u0 < 8`, `Eq(u0, 3)`."""
    if text.startswith(("Eq(", "Ne(")):
        left, _, right = text[len("Eq(") : -1].partition(", ")
        return left, text[:2], right
    for sign in ("<=", ">=", "<", ">"):
        left, found, right = text.partition(f" {sign} ")
        if found:
            return left, sign, right
    return text, "", ""


def _symbols_in(value: Any) -> list[tuple[Any, tuple[int, ...]]]:
    """Symbols without a value that a node's value gives, with the place of each: items of tuples, then the dim."""
    if isinstance(value, SymInt):
        return [(value, ())] if _is_symbol(value) else []
    if isinstance(value, Tensor):
        return [(size, (d,)) for d, size in enumerate(value.shape) if isinstance(size, SymInt) and _is_symbol(size)]
    if isinstance(value, (tuple, list)):
        return [(size, (k, *place)) for k, each in enumerate(value) for size, place in _symbols_in(each)]
    return []


def _is_symbol(number: Any) -> bool:
    return number.shape_env.text_of(number) in getattr(number.shape_env, "unbacked_names", ())
