"""Group statistics of channels-last images, where each group of channels is a few neighbours at every position.

A sum over such a group would read a few neighbours of every cache line, once for each group. Sums are taken over the
positions first, with all channels side by side, and over the few neighbours afterwards. A value of a group is
broadcast to its neighbours first and to the positions afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rushlight._graph.core import rebuilt
from rushlight._prims.record import PRIMITIVES
from rushlight._types.layout import is_contiguous, numel, suggests_channels_last, view_strides

if TYPE_CHECKING:
    from rushlight._graph.core import Graph, Node
    from rushlight._schedule.policy import Policy

__all__ = ["apart", "images_last"]

Strides = Sequence[int]


def images_last(graph: Graph, layouts: Sequence[Strides | None]) -> bool:
    """Whether the images among the inputs lie channels last.  Temporary images then do so too."""
    images = [
        (v.shape, s)
        for v, s in zip(graph.inputs, layouts, strict=True)
        if s is not None and len(s) in (4, 5) and numel(v.shape[2:]) > 1
    ]
    return bool(images) and all(suggests_channels_last(shape, s) and not is_contiguous(shape, s) for shape, s in images)


def apart(graph: Graph, layouts: Sequence[Strides | None], policy: Policy) -> Graph:
    """The graph with sums and broadcasts of interleaved groups in two steps, or the graph itself where there are none."""
    if not images_last(graph, layouts):
        return graph
    lies = _strides_of(graph, layouts)
    neighbours = {id(node): dims for node in graph.nodes if (dims := _neighbours(node, lies, policy))}
    if not neighbours:
        return graph

    def apply(node: Node, inputs: list[Any]) -> Any:
        few = neighbours.get(id(node))
        if few is None:
            return node.prim(*inputs, **node.params)
        return (_sum if node.prim.name == "sum" else _spread)(node, inputs[0], few)

    return rebuilt(graph, apply)


def _strides_of(graph: Graph, layouts: Sequence[Strides | None]) -> dict[int, Strides]:
    """Strides of values, by id: of inputs, of pointwise results, which take an operand's, and of the other operands of
    these.
    """
    lies = {id(v): s for v, s in zip(graph.inputs, layouts, strict=True) if s is not None}
    for node in graph.nodes:
        out, strides = node.outputs[0], None
        if node.prim.name == "reshape" and id(node.inputs[0]) in lies:
            strides = view_strides(node.inputs[0].shape, lies[id(node.inputs[0])], out.shape)
        elif node.prim.lower[0] == "scalar":
            strides = next((lies[id(x)] for x in node.inputs if id(x) in lies and x.shape == out.shape), None)
        if strides is not None:
            lies[id(out)] = strides
            if node.prim.lower[0] == "scalar":
                lies |= {id(x): strides for x in node.inputs if x.shape == out.shape and id(x) not in lies}
    return lies


def _neighbours(node: Node, lies: dict[int, Strides], policy: Policy) -> list[int]:
    """The dims of a group's neighbours, where other groups lie between these and the rest of the group; else none."""
    if node.prim.name == "sum":
        shape, strides, inside = node.inputs[0].shape, lies.get(id(node.inputs[0])), set(node.params["dims"])
    elif node.prim.name == "broadcast":  # in the layout of the values that its result meets
        shape, strides = node.outputs[0].shape, lies.get(id(node.outputs[0]))
        inside = set(range(len(shape))) - {
            d for d, s in zip(node.params["dims"], node.inputs[0].shape, strict=True) if s != 1
        }
    else:
        return []
    if strides is None or numel(shape) < policy.interleaved:
        return []
    between = min((strides[d] for d in range(len(shape)) if d not in inside and shape[d] > 1), default=0)
    few = [d for d in sorted(inside) if shape[d] > 1 and strides[d] < between]
    rest = [d for d in inside if shape[d] > 1 and strides[d] > between]
    if not (few and rest) or min(strides[d] for d in few) != 1:
        return []
    return few if numel([shape[d] for d in few]) < policy.few_neighbours else []


def _sum(node: Node, x: Any, few: Sequence[int]) -> Any:
    many = tuple(d for d in node.params["dims"] if d not in few)
    places = PRIMITIVES["sum"](x, dims=many)
    return PRIMITIVES["sum"](places, dims=tuple(d - sum(m < d for m in many) for d in few))


def _spread(node: Node, x: Any, few: Sequence[int]) -> Any:
    shape, dims = node.outputs[0].shape, node.params["dims"]
    kept = sorted({*few, *(d for d, s in zip(dims, x.shape, strict=True) if s != 1)})
    x = PRIMITIVES["reshape"](x, shape=tuple(s for s in x.shape if s != 1)) if 1 in x.shape else x
    groups = [d for d in kept if d not in few]
    x = PRIMITIVES["broadcast"](x, shape=tuple(shape[d] for d in kept), dims=tuple(kept.index(d) for d in groups))
    return PRIMITIVES["broadcast"](x, shape=shape, dims=tuple(kept))
