"""Sums of a program's calls that are cut into parts when the calls run by themselves: nothing else joins their kernels.

A sum of few long rows is cut into parts where it has its kernel for itself (see `_codegen.grid.lowering`).  A program has the
bits of its calls, so such a sum stays by itself there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.target import CUDA_TARGET
from rushlight._codegen.grid.lowering import GridLowering
from rushlight._graph.core import Graph, Node, rebuilt
from rushlight._prims import prim
from rushlight._schedule.groups import Group
from rushlight._schedule.rewrites.interleaved import apart
from rushlight._schedule.rewrites.prepare import prepared
from rushlight._schedule.schedule import is_reduction
from rushlight._schedule.scheduling import schedule_graph
from rushlight._transforms.units import Unit, cut
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Value

__all__ = ["call_of", "sums_alone"]

_SHORT, _MANY = 128, 1 << 16  # shorter rows are never cut, nor are so many


def sums_alone(graph: Graph, layouts: Sequence[Any], out_strides: Sequence[Any] | None) -> Graph:
    """The graph with marks before the sums that must have kernels for themselves; itself where there are none."""
    borders = [node for node in graph.nodes if node.prim.name == "border"]
    if len(borders) < 2 or out_strides is None or any(s is None for s in out_strides):
        return graph
    found = {id(v) for unit in cut(graph, layouts, out_strides, False).units if _is_cut(unit) for v in unit.results}
    marked = {
        id(node) for b in borders if any(id(v) in found for v in b.outputs) for node in call_of(b.inputs) if _sums(node)
    }
    if not marked:
        return graph

    def apply(node: Node, inputs: list[Any]) -> Any:
        if id(node) in marked:  # of two equal sums one may be cut by itself, and the other be part of a longer call
            inputs = [prim.unfused(x) for x in inputs]
        return node.prim(*inputs, **node.params)

    return rebuilt(graph, apply)


def _sums(node: Node) -> bool:
    """Whether a node is a sum or a product that rounds, of rows that may be cut."""
    if node.prim.name not in ("sum", "prod") or node.outputs[0].dtype.kind not in "fc" or not is_reduction(node):
        return False
    rows = numel(node.outputs[0].shape)
    return rows <= _MANY and numel(node.inputs[0].shape) >= _SHORT * rows


def call_of(results: Sequence[Value]) -> list[Node]:
    """The nodes of the call that makes some values, marks among them."""
    found: dict[int, Node] = {}
    todo = list(results)
    while todo:
        node = todo.pop().node
        if node is not None and id(node) not in found and node.prim.name not in ("border", "operand"):
            found[id(node)] = node
            todo += node.inputs
    return list(found.values())


def _is_cut(unit: Unit) -> bool:
    """Whether all sums of a call are cut where it runs by itself."""
    if not any(_sums(node) for node in unit.graph.nodes):
        return False
    graph = apart(prepared(unit.graph, CUDA_TARGET), unit.layouts, CUDA_TARGET.policy)
    schedule = schedule_graph(graph, unit.layouts, unit.strides, {}, {}, CUDA_TARGET)
    lowering = GridLowering(CUDA_TARGET, dict(schedule.sizes), [])
    sums = [g for g in schedule.groups if isinstance(g, Group) and any(i.rounds for s in g.stages for i in s.items)]
    return bool(sums) and all(lowering.parts(group) is not None for group in sums)
