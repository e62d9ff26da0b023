"""Graphs made ready for scheduling: primitives without a kernel of their own replaced by simpler ones.

`conv` becomes windows and a product; sorting happens along the last dim; a product with a vector whose matrix would have to be
written out first (depthwise convolution, and both its gradients) becomes a sum that is fused with what makes the matrix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node, Value

__all__ = ["prepared"]


def prepared(graph: Graph) -> Graph:
    """The graph with those primitives replaced; itself where there are none."""
    from rushlight._graph.core import GraphBuilder, evaluate

    while any(_rule(node) is not None for node in graph.nodes):
        builder = GraphBuilder()
        values = [builder.input(v.shape, v.dtype, v.weak) for v in graph.inputs]

        def apply(node: Node, inputs: list[Any]) -> Any:
            rule = _rule(node)
            return node.prim(*inputs, **node.params) if rule is None else rule(*inputs, **node.params)

        with builder:
            outputs = evaluate(graph, values, apply)
        graph = builder.finish(outputs)
    return graph


def _rule(node: Node) -> Any:
    """What replaces a node, or None."""
    name = node.prim.name
    if name == "dot":
        return _dot_rule(node)
    if name == "sort":
        return None if node.params["dim"] == len(node.inputs[0].shape) - 1 else _sort_rows
    if name == "topk":
        return _topk_rows
    return node.prim.decompose if node.prim.lower[0] == "extern" else None


# ***** products *****


def _dot_rule(node: Node) -> Any:
    a, b = node.inputs
    if a.dtype.kind not in "fc" or a.dtype.itemsize < 4 or numel(node.outputs[0].shape) == 0 or a.shape[-1] == 0:
        return None
    if a.shape[-1] == 1:
        return _outer_product
    if b.shape[-1] == 1 and not lies_in_memory(a):
        return _times_column
    if a.shape[-2] == 1 and not lies_in_memory(b):
        return _row_times
    return None


def lies_in_memory(value: Value) -> bool:
    """Whether a value is an input, or dims of one shown otherwise."""
    while value.node is not None:
        if value.node.prim.name not in ("reshape", "transpose", "broadcast", "slice"):
            return value.node.prim.lower[0] in ("extern", "scan", "scatter", "index_write")
        value = value.node.inputs[0]
    return True


def _outer_product(a: Any, b: Any) -> Any:
    shape = (*a.shape[:-1], b.shape[-1])
    return build.broadcast_to(a, shape) * build.broadcast_to(b, shape)


def _times_column(a: Any, b: Any) -> Any:
    n = len(a.shape)
    row = build.broadcast_to(build.transpose(b, (*range(n - 2), n - 1, n - 2)), a.shape)
    return build.reshape(PRIMITIVES["sum"](a * row, dims=(n - 1,)), (*a.shape[:-1], 1))


def _row_times(a: Any, b: Any) -> Any:
    n = len(a.shape)
    column = build.broadcast_to(build.transpose(a, (*range(n - 2), n - 1, n - 2)), b.shape)
    return build.reshape(PRIMITIVES["sum"](column * b, dims=(n - 2,)), (*a.shape[:-1], b.shape[-1]))


# ***** sorting *****


def _sort_rows(x: Any, dim: int, descending: bool, stable: bool) -> Any:
    """Sorting along the last dim, for that is what the library call does."""
    last = len(x.shape) - 1
    perm = [d for d in range(last + 1) if d != dim] + [dim]
    back = [perm.index(d) for d in range(last + 1)]
    values, places = PRIMITIVES["sort"](build.transpose(x, perm), dim=last, descending=descending, stable=stable)
    return build.transpose(values, back), build.transpose(places, back)


def _topk_rows(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    """The first of all in order."""
    starts, stops = (0,) * len(x.shape), tuple(k if d == dim else s for d, s in enumerate(x.shape))
    found = PRIMITIVES["sort"](x, dim=dim, descending=largest, stable=True)
    return tuple(PRIMITIVES["slice"](v, starts=starts, stops=stops, steps=(1,) * len(stops)) for v in found)
