"""`torch.fx.passes.annotate_getitem_nodes`: types of the items of tuples and lists whose type is noted."""

from __future__ import annotations

import operator
from typing import Any, get_args, get_origin

from rushlight import Tensor
from rushlight.fx.graph import Graph

__all__ = ["annotate_getitem_nodes"]


def annotate_getitem_nodes(graph: Graph) -> None:
    """Give each `getitem` node the type that its sequence's type has at that place; tuples, lists and named tuples."""
    for node in graph.nodes:
        if node.target is operator.getitem:
            sequence, index = node.args
            if sequence.type:
                node.type = _item_type(sequence.type, index, node.type)


def _item_type(kind: Any, index: Any, otherwise: Any) -> Any:
    inner = get_args(kind)
    if get_origin(kind) is tuple:
        if len(inner) == 2 and inner[1] is ...:
            return inner[0]
        if len(inner) <= index:
            raise AssertionError(f"Index {index} out of range for parameterized_types (len={len(inner)})")
        return inner[index]
    if get_origin(kind) is list:
        return inner[0]
    if kind is not Tensor and hasattr(kind, "_fields"):
        return kind.__annotations__[kind._fields[index]]
    return otherwise
