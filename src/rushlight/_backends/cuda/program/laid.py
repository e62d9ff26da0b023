"""Operands and results of a program's convolutions, in the layouts that they have when the calls run by themselves.

A convolution adds channels first where they are neighbours in memory, and taps first elsewhere (see `conv.windows`); a
sum over its result follows the result's layout, too.  A program has the bits of its calls, so what lies between two
calls, of which one is a convolution, lies as its border says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.program.alone import call_of
from rushlight._graph.core import Graph, Node, rebuilt
from rushlight._prims import prim
from rushlight._types.layout import is_contiguous

if TYPE_CHECKING:
    from rushlight._graph.core import Value

__all__ = ["convolutions_laid"]

Strides = Sequence[int]
_SEAMS = ("border", "operand")  # where a call begins or ends


def convolutions_laid(graph: Graph) -> Graph:
    """The graph with marks around the convolutions whose operands or results lie between calls; itself where there are
    none.

    What lies row-major needs no mark: that is how the schedule stores it.
    """
    lies: dict[int, Strides] = {}  # by the ids of values that are to be marked
    for node in graph.nodes:
        if node.prim.name == "conv":
            for value in map(_operand_of, node.inputs):
                _add(lies, value, _strides_of(value))
        elif node.prim.name == "border" and any(n.prim.name == "conv" for n in call_of(node.inputs)):
            for value, strides in zip(node.outputs, node.params["strides"], strict=True):
                _add(lies, value, strides)
    if not lies:
        return graph

    def apply(node: Node, inputs: list[Any]) -> Any:
        made = node.prim(*inputs, **node.params)
        if not any(id(v) in lies for v in node.outputs):
            return made
        if not node.prim.multiple:
            return _mark(made, lies[id(node.outputs[0])])
        return tuple(_mark(x, lies.get(id(v))) for x, v in zip(made, node.outputs, strict=True))

    return rebuilt(graph, apply)


def _add(lies: dict[int, Strides], value: Value, strides: Strides | None) -> None:
    if strides is not None and not is_contiguous(value.shape, strides):
        lies[id(value)] = strides


def _mark(x: Any, strides: Strides | None) -> Any:
    return x if strides is None else prim.laid_out(x, strides=tuple(strides))


def _operand_of(value: Value) -> Value:
    """The operand of a convolution, of which the call reads a view, also padded or flipped."""
    while value.node is not None and value.node.prim.name not in _SEAMS and len(value.node.inputs) == 1:
        value = value.node.inputs[0]
    return value


def _strides_of(value: Value) -> Strides | None:
    """How a view of a call's result lies in memory; None for values of other kinds."""
    views: list[Node] = []
    while value.node is not None and value.node.prim.name != "border":
        if value.node.prim.name not in (*_SEAMS, "unfused"):
            if value.node.prim.layout is None:
                return None
            views.append(value.node)
        value = value.node.inputs[0]
    if value.node is None:
        return None
    layout: Any = (value.shape, value.node.params["strides"][value.index], 0)
    for node in reversed(views):
        layout = node.prim.layout(*layout, **node.params)  # type: ignore[misc]
        if layout is None:
            return None
    return tuple(layout[1])
