"""Small all-reduces of one group as one, of their operands one behind the other.

Calls that follow one another in the order of their group are taken together as long as none needs the result of another.
The order of the calls of a group stays; with more than two processes a sum may be added in another order, as its place in
the message and the size of that decide how the engine adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph, GraphBuilder, Node, Value
from rushlight._prims import build
from rushlight._prims.effects import prim
from rushlight._types.layout import numel

__all__ = ["LARGEST", "MOST_TOGETHER", "bucketed"]

LARGEST = 1 << 16  # bytes of one operand
MOST_TOGETHER = 1 << 20  # bytes of all


def bucketed(graph: Graph) -> tuple[Graph, int]:
    """The graph with small all-reduces taken together, and how many became part of another."""
    runs = _runs(graph)
    if not runs:
        return graph, 0
    rebuilt = _Rebuilding(graph, runs).run()
    return rebuilt, sum(len(run) - 1 for run in runs)


class _Call:
    """An all-reduce of a graph, and the border behind it."""

    __slots__ = ("bit", "border", "needs", "node")

    def __init__(self, node: Node, border: Node, bit: int, needs: int) -> None:
        self.node, self.border, self.bit, self.needs = node, border, bit, needs

    @property
    def x(self) -> Value:
        return self.node.inputs[1]

    @property
    def nbytes(self) -> int:
        return numel(self.x.shape) * self.x.dtype.itemsize

    @property
    def key(self) -> Any:
        return self.x.dtype, tuple(sorted(self.node.params.items()))


def _runs(graph: Graph) -> list[list[_Call]]:
    """Calls to take together, at least two each."""
    needs: dict[int, int] = {}  # of each value, by id: the calls that it depends on, as bits
    borders = {id(v): node for node in graph.nodes if node.prim.name == "border" for v in node.inputs}
    runs: list[list[_Call]] = []
    last: dict[int, list[_Call]] = {}  # the run of each group that may go on
    count = 0
    for node in graph.nodes:
        mask = 0
        for v in node.inputs:
            mask |= needs.get(id(v), 0)
        if node.prim.family == "collective":
            bit = 1 << count
            count += 1
            border = borders.get(id(node.outputs[0]))
            call = None if border is None else _Call(node, border, bit, needs.get(id(node.inputs[1]), 0))
            _take(last, runs, node, call)
            mask |= bit
        for v in node.outputs:
            needs[id(v)] = mask
    return [run for run in runs if len(run) > 1]


def _take(last: dict[int, list[_Call]], runs: list[list[_Call]], node: Node, call: _Call | None) -> None:
    """Let a call join the run of its group, begin one, or end it."""
    group = node.params["group"]
    if node.prim.name != "all_reduce" or call is None or not 0 < call.nbytes <= LARGEST:
        last.pop(group, None)
        return
    run = last.get(group)
    if run is not None:
        bits = 0
        for other in run:
            bits |= other.bit
        alike = run[0].key == call.key and sum(c.nbytes for c in run) + call.nbytes <= MOST_TOGETHER
        if alike and not call.needs & bits:
            run.append(call)
            return
    last[group] = [call]
    runs.append(last[group])


class _Rebuilding:
    """Copies a graph; what needs a call that waits for the last one of its run waits too."""

    def __init__(self, graph: Graph, runs: Sequence[Sequence[_Call]]) -> None:
        self.graph, self.builder = graph, GraphBuilder()
        self.ends = {id(run[-1].node): run for run in runs}
        self.gone = {id(node) for run in runs for call in run for node in (call.node, call.border)}
        self.env: dict[Value, Any] = {}
        self.waiting: list[Node] = []
        self.call = 1 + max((n.params["call"] for n in graph.nodes if n.prim.name == "operand"), default=0)

    def run(self) -> Graph:
        """The copy."""
        self.env.update((v, self.builder.input_like(v)) for v in self.graph.inputs)
        with self.builder:
            for node in self.graph.nodes:
                if id(node) in self.ends:
                    self._together(self.ends[id(node)])
                    self._go_on()
                elif id(node) not in self.gone:
                    self.waiting.append(node)
                    self._go_on()
        return self.builder.finish([self.env[v] for v in self.graph.outputs])

    def _go_on(self) -> None:
        left = []
        for node in self.waiting:
            if all(v in self.env for v in node.inputs):
                made = node.prim(*[self.env[v] for v in node.inputs], **node.params)
                self.env.update(zip(node.outputs, made if node.prim.multiple else (made,), strict=True))
            else:
                left.append(node)
        self.waiting = left

    def _together(self, run: Sequence[_Call]) -> None:
        """One call for several."""
        self._go_on()
        flats = [build.reshape(self._given(call.x), (numel(call.x.shape),)) for call in run]
        (packed,) = prim.border(prim.cat(*flats, dim=0), strides=((1,),))
        self.call += 1
        order = self._given(run[0].node.inputs[0])
        found = prim.all_reduce(order, prim.operand(packed, call=self.call), **run[0].node.params)
        after, whole = prim.border(*found, strides=((), (1,)))
        self.call += 1
        start = 0
        for call in run:
            count = numel(call.x.shape)
            part = prim.slice(whole, starts=(start,), stops=(start + count,), steps=(1,))
            results = {id(call.node.outputs[0]): after, id(call.node.outputs[1]): build.reshape(part, call.x.shape)}
            self.env.update((v, results[id(x)]) for x, v in zip(call.border.inputs, call.border.outputs, strict=True))
            start += count

    def _given(self, value: Value) -> Any:
        """An operand of this call."""
        node = value.node
        base = node.inputs[0] if node is not None and node.prim.name == "operand" else value
        return prim.operand(self.env[base], call=self.call)
