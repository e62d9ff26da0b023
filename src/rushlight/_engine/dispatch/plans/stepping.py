"""Graphs computed step by step, for primitives that are better computed, and recorded, as many small calls.

The second derivative of a recurrent layer is that of its steps.  Written as one graph it grows with the length of the
sequence, and so does the time to make its plan.  Here each step is a call of one small graph with its own plan,
recorded like a call of an operator; the nodes around the primitive stay graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._engine.core.hooks import OPS
from rushlight._graph.core import Graph, Node, Value, rebuilt, trace

__all__ = ["Stepped", "takes_steps"]

Caller = Callable[..., Any]


def takes_steps(graph: Graph) -> bool:
    """Whether `Stepped` has anything to do."""
    return any(node.prim.steps is not None for node in graph.nodes)


class Stepped:
    """`Stepped(graph, make)(*inputs)`: the results of a graph on tensors; `make(graph)` makes the function that runs a
    graph and records it.
    """

    __slots__ = ("_make", "_made", "_parts", "graph")

    def __init__(self, graph: Graph, make: Callable[[Graph], Caller]) -> None:
        self.graph, self._make = graph, make
        self._made: dict[Any, Caller] = {}
        self._parts: list[Node | tuple[Caller, Graph]] = []
        between: list[Node] = []
        for node in graph.nodes:
            if node.prim.steps is None:
                between.append(node)
            else:
                self._add(between)
                self._parts.append(node)
                between = []
        self._add(between)

    def _add(self, nodes: Sequence[Node]) -> None:
        """A run of consecutive nodes as a graph, from the values they read to the values that others read of them."""
        if not nodes:
            return
        inside = {v for node in nodes for v in node.outputs}
        read = {v for node in self.graph.nodes if node not in nodes for v in node.inputs}.union(self.graph.outputs)
        reads = list(dict.fromkeys(v for node in nodes for v in node.inputs if v not in inside))
        part = Graph(reads, nodes, [v for node in nodes for v in node.outputs if v in read])
        self._parts.append((self._make(rebuilt(part)), part))

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        held: dict[Value, Any] = dict(zip(self.graph.inputs, inputs, strict=True))
        for part in self._parts:
            if isinstance(part, Node):
                assert part.prim.steps is not None
                made, outputs = part.prim.steps(self, *[held[v] for v in part.inputs], **part.params), part.outputs
            else:
                made, outputs = part[0](*[held[v] for v in part[1].inputs]), tuple(part[1].outputs)
            held.update(zip(outputs, made, strict=True))
        return tuple([held[v] for v in self.graph.outputs])

    # ***** what steps are made of (`Steps`) *****

    def call(self, key: Any, function: Callable[..., Any], *xs: Any) -> tuple[Any, ...]:
        signature = (key, *[(x._spec.shape, x._spec.dtype) for x in xs])
        made = self._made.get(signature)
        if made is None:
            made = self._made[signature] = self._make(trace(function, signature[1:]))
        return made(*xs)

    def split(self, x: Any, sizes: Sequence[int]) -> Sequence[Any]:
        return OPS["split_with_sizes"](x, list(sizes))

    def join(self, parts: Sequence[Any]) -> Any:
        return OPS["cat"](list(parts))

    def numbers(self, x: Any) -> list[int]:
        return x.tolist()
