"""Rewrites of products of bytes for the routine that reads windows in place (`byte_products.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._graph.core import rebuilt
from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES
from rushlight._types.dtype import INT8, INT32, UINT8
from rushlight._types.layout import numel

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node, Value

__all__ = ["WORD", "windows_in_place"]

WORD = 8  # bytes of a row that the routine reads at a time
LEAST_WORK = 1 << 12  # multiplications of a product that is worth a call
MOST_DIMS = 3  # spatial dims of the windows


def windows_in_place(graph: Graph, matrices: bool) -> Graph:
    """The graph with products of bytes as `window_dot`, whose windows are not written out; `matrices`: also those
    without windows.
    """

    def is_taken(node: Node) -> bool:
        return _is_taken(node) and (matrices or _window_of(node.inputs[0]) is not None)

    if not any(is_taken(node) for node in graph.nodes):
        return graph

    def apply(node: Node, inputs: list[Any]) -> Any:
        return _windowed(*inputs) if is_taken(node) else node.prim(*inputs, **node.params)

    return rebuilt(graph, apply)


def _is_taken(node: Node) -> bool:
    if node.prim.name != "dot" or len(node.outputs[0].shape) != 2:
        return False
    (a, b), out = node.inputs, node.outputs[0]
    known = a.dtype is UINT8 and b.dtype is INT8 and out.dtype is INT32
    return known and bool(numel((*a.shape, b.shape[1])) >= LEAST_WORK)


def _windowed(a: Value, b: Value) -> Any:
    """The product of a matrix of windows, or of rows that are windows of themselves."""
    found = _window_of(a)
    if found is None:
        x, size, stride, dilation, positions = a, (a.shape[1],), (1,), (1,), (1,)
    else:
        x, p, n = found.inputs[0], found.params, len(found.params["dims"])
        size, stride, dilation, positions = p["size"], p["stride"], p["dilation"], found.outputs[0].shape[1 : 1 + n]
    # the last word of a window may reach beyond it
    least = (positions[-1] - 1) * stride[-1] + -(-size[-1] // WORD) * WORD
    if least > x.shape[-1]:
        none = (0,) * len(x.shape)
        x = build.pad(x, none, (*none[1:], least - x.shape[-1]), none)
    params = {"size": size, "stride": stride, "dilation": dilation, "positions": tuple(positions)}
    return PRIMITIVES["window_dot"](x, build.transpose(b, (1, 0)), **params)


def _window_of(a: Value) -> Node | None:
    """The `window` along all dims but the first whose windows are the rows of a matrix, each a few runs of memory."""
    value = a
    while value.node is not None and value.node.prim.name == "reshape":
        value = value.node.inputs[0]
    node = value.node
    if node is None or node.prim.name != "window":
        return None
    p, x = node.params, node.inputs[0]
    n = len(p["dims"])
    whole = tuple(p["dims"]) == tuple(range(1, len(x.shape))) and n <= MOST_DIMS and p["dilation"][-1] == 1
    rows = x.shape[0] * numel(value.shape[1 : 1 + n])
    return node if whole and a.shape == (rows, numel(p["size"])) else None
