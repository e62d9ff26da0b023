"""Rewriting: local rules, applied while a graph is built.

A rule looks at one node and returns the value that replaces its result, or None.  It may call primitives; the nodes
that it builds go through the rules as well, so one walk from inputs to outputs reaches a fixed point.

    >>> from rushlight._graph.rewrite import rewrite, rule
    >>> @rule("neg")
    ... def double_negation(node):
    ...     "--x = x"
    ...     (x,) = node.inputs
    ...     return x.node.inputs[0] if x.node is not None and x.node.prim.name == "neg" else None
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight._graph.core import Graph, GraphBuilder, Node, rebuilt
from rushlight._prims.record import Primitive

__all__ = ["RewritingBuilder", "Rule", "rewrite", "rule"]


class Rule:
    """A named rewriting rule for the primitives it lists."""

    __slots__ = ("apply", "doc", "name", "prims")

    def __init__(self, prims: Sequence[str], apply: Callable[[Node], Any]) -> None:
        self.prims, self.apply = tuple(prims), apply
        self.name, self.doc = apply.__name__, apply.__doc__ or ""

    def __call__(self, node: Node) -> Any:
        return self.apply(node)

    def __repr__(self) -> str:
        return f"Rule({self.name}: {self.doc})"


def rule(*prims: str) -> Callable[[Callable[[Node], Any]], Rule]:
    """Declare a rule for nodes of these primitives."""
    return lambda apply: Rule(prims, apply)


class RewritingBuilder(GraphBuilder):
    """A builder that gives every new node to the rules first.  `rules` may be exchanged between nodes."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        super().__init__()
        self._rewritten: dict[Node, Any] = {}
        self.use(rules)

    def use(self, rules: Iterable[Rule]) -> None:
        """Apply these rules from now on."""
        self._table: dict[str, list[Rule]] = {}
        for item in rules:
            for name in item.prims:
                self._table.setdefault(name, []).append(item)

    def bind(self, primitive: Primitive, inputs: Sequence[Any], params: dict[str, Any]) -> Any:
        """Add (or find) the node, then replace it if a rule applies."""
        result = super().bind(primitive, inputs, params)
        rules = self._table.get(primitive.name)
        if rules is None:
            return result
        node: Node = (result[0] if primitive.multiple else result).node
        if node in self._rewritten:
            return self._rewritten[node]
        for item in rules:
            replacement = item(node)
            if replacement is not None:
                result = replacement
                break
        self._rewritten[node] = result
        return result


def rewrite(graph: Graph, rules: Iterable[Rule]) -> Graph:
    """The graph after the rules, common subexpressions merged and dead nodes dropped."""
    return rebuilt(graph, builder=RewritingBuilder(rules))
