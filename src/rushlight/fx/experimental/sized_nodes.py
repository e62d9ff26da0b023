"""Nodes that stand for symbolic numbers in a graph: sizes of tensors, and what was computed of them.

A node is made when a call first takes its number: what is computed and never used is in no graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import rushlight
from rushlight import SymFloat, SymInt
from rushlight._interface.sizes import Undecided
from rushlight.fx.graph import Graph
from rushlight.fx.node import Node

__all__ = ["BY_SIGN", "MIRRORED", "SizedNodes"]

_OPPOSITE = {"<": ">=", "<=": ">", "==": "!="}
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
BY_SIGN: dict[str, Callable[..., Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
Made = Node | tuple[Callable[..., Any], tuple[Any, ...]]  # a node, or the call that it will be


class SizedNodes:
    """The nodes of one graph's numbers."""

    def __init__(self, graph: Graph, node_of: Callable[[Any], Any]) -> None:
        self._graph, self._node_of = graph, node_of
        self._objects: dict[int, tuple[Any, Made]] = {}  # the number with its call: as it was computed
        self._formulas: dict[Any, Made] = {}  # the first call with this formula

    def note(self, target: Callable[..., Any], args: tuple[Any, ...], number: Any) -> None:
        """A number is what a call gave."""
        made = target, self._given(target, args)
        self._objects.setdefault(id(number), (number, made))
        self._formulas.setdefault(_formula(number), made)

    def note_tensor(self, tensor: Any, node: Node) -> None:
        """Sizes, strides and the rest of a tensor that a node stands for."""
        aten = rushlight.ops.aten
        if not any(isinstance(n, SymInt) for n in (*tensor.shape, *tensor.stride())):
            return
        for d, size in enumerate(tensor.shape):
            self._fact(size, aten.sym_size.int, (node, d))
        for d, stride in enumerate(tensor.stride()):
            self._fact(stride, aten.sym_stride.int, (node, d))
        offset = tensor.storage_offset()
        self._fact(offset, aten.sym_storage_offset.default, (node,))

    def _fact(self, number: Any, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
        if isinstance(number, SymInt) and id(number) not in self._objects:
            self.note(target, args, number)

    def stand(self, number: Any, node: Node) -> None:
        """A node that exists gives a number; the first one stays."""
        if isinstance(self._formulas.get(_formula(number)), Node):
            return
        self._objects[id(number)] = number, node
        self._formulas[_formula(number)] = node

    def stand_for(self, asked: Undecided, node: Node) -> None:
        """A node gives a truth value that only elements tell."""
        self._objects[id(asked)] = asked, node

    def node(self, number: Any) -> Any:
        """The node of a number; the number itself where it was decided."""
        decided = number.shape_env.decided(number)
        if decided is not None:
            return decided
        formula = _formula(number)
        held = self._objects.get(id(number))
        known = self._formulas.get(formula) if held is None else held[1]
        if not isinstance(known, Node):
            known = self._create(*(known or _computed(number)), number)
        self._objects[id(number)] = number, known
        if held is None:
            self._formulas[formula] = known
        return known

    def condition(self, asked: Undecided) -> Node:
        """A node for a condition on numbers: what is added on the left, what is subtracted on the right."""
        known = self._objects.get(id(asked))
        if known is not None:
            return known[1]  # type: ignore[return-value]
        env: Any = asked.difference.shape_env
        terms = asked.difference.terms
        constant = next((c for atoms, c in terms if not atoms), 0)
        left, right = [tuple((a, abs(c)) for a, c in terms if a and (c > 0) is more) for more in (True, False)]
        sides: list[Any] = [env.number(side) if side else 0 for side in (left, right)]
        wanted = asked.wanted if asked.held else _OPPOSITE[asked.wanted]
        if not left:  # numbers stand on the right
            sides, wanted, constant = [sides[1], 0], MIRRORED[wanted], -constant
        sides[1] = sides[1] - constant if constant else sides[1]
        node = self._graph.create_node("call_function", BY_SIGN[wanted], tuple([self._node_of(n) for n in sides]), {})
        node.meta["val"] = asked
        return node

    def _create(self, target: Callable[..., Any], args: tuple[Any, ...], number: Any) -> Node:
        given = tuple([self._node_of(a) for a in args])
        node = self._graph.create_node("call_function", target, given, {})
        node.meta["val"] = number
        return node

    def _given(self, target: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The operands as the graph shows them: integers that meet a float are floats."""
        if not any(isinstance(a, float) for a in args):
            return args
        made = []
        for a in args:
            if isinstance(a, SymInt) and target in (
                operator.pow,
                operator.add,
                operator.sub,
                operator.mul,
                operator.truediv,
            ):
                number = a.real_number()
                self._objects.setdefault(id(number), (number, (rushlight.sym_float, (a,))))
                a = number
            made.append(a)
        return tuple(made)


def _formula(number: Any) -> Any:
    return number.terms if isinstance(number, SymInt) else number.name


def _computed(number: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A number that nobody computed, as a call: a sum of products, a quotient."""
    if isinstance(number, SymFloat):
        raise NotImplementedError(f"make_fx: the number {number} comes from no size of the traced function")
    env, terms = number.shape_env, number.terms
    if len(terms) > 1:
        return operator.add, (env.number(terms[1:2]), env.number(terms[:1] + terms[2:]))
    (atoms, factor), *_ = terms
    if factor != 1:
        return operator.mul, (env.number(((atoms, 1),)), factor)
    if len(atoms) > 1:
        return operator.mul, (env.number(((atoms[:-1], 1),)), env.number(((atoms[-1:], 1),)))
    key = env.key_of(atoms[0])
    if key is None or key[0] not in ("//", "%"):
        raise NotImplementedError(f"make_fx: the number {number} comes from no size of the traced function")
    given = [env.number(k) if type(k) is tuple else k for k in key[1:]]
    return operator.floordiv if key[0] == "//" else operator.mod, tuple(given)
