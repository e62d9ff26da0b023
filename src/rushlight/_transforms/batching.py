"""Batching: a graph that does for a whole batch what the given one does for a single item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._graph.core import Graph
from rushlight._graph.rewrite import RewritingBuilder
from rushlight._prims import build
from rushlight._transforms.simplify import EXACT

__all__ = ["batch"]


def batch(graph: Graph, batched: Sequence[bool], size: int) -> Graph:
    """The graph over `size` items.  Inputs that `batched` marks get a new leading dim, the others are shared by all
    items; every output has the leading dim.

        batch(g, [True, False], n)(xs, y)[k][i] = g(xs[i], y)[k]
    """
    builder = RewritingBuilder(EXACT)
    held: dict[Any, tuple[Any, bool]] = {}
    for value, flag in zip(graph.inputs, batched, strict=True):
        shape = (size, *value.shape) if flag else value.shape
        held[value] = (builder.input(shape, value.dtype, value.weak and not flag), flag)
    with builder:
        for node in graph.nodes:
            inputs = [held[v][0] for v in node.inputs]
            flags = [held[v][1] for v in node.inputs]
            lifted = any(flags)
            result = node.prim.batch(flags, *inputs, **node.params) if lifted else node.prim(*inputs, **node.params)
            for value, item in zip(node.outputs, result if node.prim.multiple else (result,), strict=True):
                expected = (size, *value.shape) if lifted else value.shape
                if item.shape != expected or item.dtype is not value.dtype:
                    raise AssertionError(
                        f"the batching rule of prim.{node.prim.name} gave {item.dtype.name}{list(item.shape)}, "
                        f"expected {value.dtype.name}{list(expected)}"
                    )
                held[value] = (item, lifted)
        outputs = [held[v] for v in graph.outputs]
        results = [item if flag else build.broadcast_to(item, (size, *item.shape)) for item, flag in outputs]
    return builder.finish(results)
