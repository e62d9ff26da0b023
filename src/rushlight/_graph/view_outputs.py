"""View-only outputs: graphs whose results are their inputs under other strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph

__all__ = ["moved_layouts"]


def moved_layouts(graph: Graph, specs: Sequence[Any]) -> list[tuple[int, tuple[int, ...], tuple[int, ...], int]] | None:
    """Each output as (input number, shape, strides, offset in elements), or None when one needs more than strides.

    `specs` has shape, strides and dtype of each input that is a tensor, None for others.
    """
    layouts: dict[int, Any] = {}
    for i, (value, spec) in enumerate(zip(graph.inputs, specs, strict=True)):
        if spec is not None:
            layouts[id(value)] = (i, tuple(spec.shape), tuple(spec.strides), 0)
    for node in graph.nodes:
        rule = node.prim.layout
        source = layouts.get(id(node.inputs[0])) if node.inputs else None
        if rule is None or source is None or len(node.inputs) != 1:
            return None
        number, shape, strides, offset = source
        layout = rule(shape, strides, offset, **node.params)
        if layout is None:
            return None
        layouts[id(node.outputs[0])] = (number, *layout)
    result = []
    for value in graph.outputs:
        if id(value) not in layouts or value.dtype is not specs[layouts[id(value)][0]].dtype:
            return None
        result.append(layouts[id(value)])
    return result
