"""Rewrite a graph that changes memory to one that only computes: a write becomes a new value.

A reference to memory becomes an array of its elements, `read` returns that array, and `write` makes another array, with
the written elements of its views replaced.  The final contents of memory are an output if the graph returns the
reference.  Random streams are unchanged: a draw returns the stream afterwards, and is a function of its operands
already.

>>> from rushlight._graph.core import GraphBuilder
    >>> from rushlight._graph.printer import to_source
    >>> from rushlight._prims.effects import prim
    >>> from rushlight._transforms.functionalize import functionalize
    >>> from rushlight._types.dtype import FLOAT32
    >>> builder = GraphBuilder()
    >>> x = builder.reference("memory", (3,), FLOAT32)
    >>> with builder:
    ...     after = prim.write(x, prim.read(x) * 2.0, views=())
    >>> made = functionalize(builder.finish([after]))
    >>> print(to_source(made.graph))
    def graph(x0: "float32[3]"):
        v0 = prim.full(shape=(3,), value=2.0, dtype=FLOAT32)  # float32[3]
        v1 = prim.mul(x0, v0)  # float32[3]
        return (v1,)
    >>> made.written                        # output 0 is the final contents of input 0
    [(0, 0)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph, Node, Reference, Value
from rushlight._graph.rewrite import RewritingBuilder
from rushlight._prims.memory import replaced
from rushlight._transforms.simplify import EXACT

__all__ = ["Functional", "functionalize"]


class Functional:
    """A graph without memory; `written` lists (input, output) pairs: the output is the final contents of the input's
    memory."""

    __slots__ = ("graph", "written")

    def __init__(self, graph: Graph, written: Sequence[tuple[int, int]]) -> None:
        self.graph, self.written = graph, list(written)

    def __repr__(self) -> str:
        return f"Functional({self.graph!r}, written={self.written})"


def functionalize(graph: Graph) -> Functional:
    """The graph with arrays instead of memory; its inputs and outputs are those of `graph`, in order.

    A graph that changes no memory is simplified and otherwise the same.
    """
    builder = RewritingBuilder(EXACT)
    held: dict[Value, Any] = {}
    first: dict[Value, int] = {}  # the input that a reference to memory comes from
    for i, value in enumerate(graph.inputs):
        memory = isinstance(value, Reference) and value.kind == "memory"
        held[value] = builder.input(value.shape, value.dtype) if memory else builder.input_like(value)
        if memory:
            first[value] = i
    changed: dict[Value, int] = {}
    with builder:
        for node in graph.nodes:
            inputs = [held[v] for v in node.inputs]
            held.update(zip(node.outputs, _values(node, inputs), strict=True))
            if node.prim.effect is not None and node.prim.effect.verb == "writes" and node.inputs[0] in first:
                changed[node.outputs[0]] = first[node.outputs[0]] = first[node.inputs[0]]
    finished = builder.finish([held[v] for v in graph.outputs])
    return Functional(finished, [(changed[v], j) for j, v in enumerate(graph.outputs) if v in changed])


def _values(node: Node, inputs: list[Any]) -> Sequence[Any]:
    """The results of a node, with arrays as memory."""
    verb = "" if node.prim.effect is None else node.prim.effect.verb
    if verb in ("allocates", "reads"):
        return inputs
    if verb == "writes":
        return [replaced(*inputs, **node.params)]
    result = node.prim(*inputs, **node.params)
    return result if node.prim.multiple else [result]
