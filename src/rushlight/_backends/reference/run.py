"""Runs a graph in NumPy and checks every result against the primitive's spec.

>>> import numpy as np
>>> from rushlight._backends.reference import run
>>> from rushlight._graph.core import trace
>>> from rushlight._types.dtype import FLOAT64
>>> graph = trace(lambda x: x * 2.0, [((2,), FLOAT64)])
>>> run(graph, [np.array([1.0, 2.0])])
[array([2., 4.])]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._graph.core import Graph, Node, Value, evaluate
from rushlight._prims.collectives import OVER_RANKS
from rushlight._prims.numbers import holder, rounded
from rushlight._types.dtype import COMPLEX32

__all__ = ["run", "run_ranks"]


def run(graph: Graph, arguments: Sequence[Any]) -> list[Any]:
    """The graph's outputs as arrays.  Arguments are arrays of the inputs' shapes and dtypes; dtypes that NumPy lacks
    are passed as wider ones, rounded."""
    arrays = [_accept(value, argument) for value, argument in zip(graph.inputs, arguments, strict=True)]
    with np.errstate(all="ignore"):
        return evaluate(graph, arrays, _apply)


def run_ranks(graphs: Sequence[Graph], arguments: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Results of the ranks of a group, each for its graph and its arguments; the graphs differ in places and sizes alone.

    >>> import numpy as np
    >>> from rushlight._backends.reference import run_ranks
    >>> from rushlight._graph.core import trace
    >>> from rushlight._prims import build
    >>> from rushlight._prims.effects import prim
    >>> from rushlight._types.dtype import FLOAT64, INT64
    >>> def mean(x):
    ...     order = build.full((), 0, INT64)
    ...     return prim.all_reduce(order, x, group=0, size=2, reduce="avg", factor=None)[1]
    >>> graph = trace(mean, [((2,), FLOAT64)])
    >>> run_ranks([graph, graph], [[np.array([1.0, 2.0])], [np.array([3.0, 4.0])]])
    [[array([2., 3.])], [array([2., 3.])]]
    """
    held: list[dict[Value, Any]] = [
        dict(zip(graph.inputs, map(_accept, graph.inputs, given), strict=True))
        for graph, given in zip(graphs, arguments, strict=True)
    ]
    with np.errstate(all="ignore"):
        for nodes in zip(*[graph.nodes for graph in graphs], strict=True):
            operands = [[env[v] for v in node.inputs] for env, node in zip(held, nodes, strict=True)]
            made = _together(nodes, operands) if nodes[0].prim.family == "collective" else None
            for rank, node in enumerate(nodes):
                found = _apply(node, operands[rank]) if made is None else made[rank]
                held[rank].update(zip(node.outputs, found if node.prim.multiple else (found,), strict=True))
    return [[env[v] for v in graph.outputs] for env, graph in zip(held, graphs, strict=True)]


def _together(nodes: Sequence[Node], operands: Sequence[Sequence[Any]]) -> list[tuple[Any, Any]]:
    """The results of one collective on all ranks."""
    name, params = nodes[0].prim.name, dict(nodes[0].params)
    if any(node.prim.name != name for node in nodes):
        raise ValueError(f"ranks call different collectives: {', '.join(node.prim.name for node in nodes)}")
    if name == "all_to_all":
        params["sent"] = [node.params["sent"] for node in nodes]
    found = OVER_RANKS[name]([xs[1] for xs in operands], **params)
    return [(xs[0] + 1, result) for xs, result in zip(operands, found, strict=True)]


def _accept(value: Value, argument: Any) -> Any:
    array = np.asarray(argument, dtype=holder(value.dtype)) if value.weak else np.asarray(argument)
    if array.dtype.name != holder(value.dtype) or array.shape != value.shape:
        raise TypeError(f"expected {value.dtype.name}{list(value.shape)}, got {array.dtype.name}{list(array.shape)}")
    return rounded(array, value.dtype)


def _apply(node: Node, inputs: list[Any]) -> Any:
    result = node.prim.reference(*inputs, **node.params)
    results = [np.asarray(r) for r in (result if node.prim.multiple else (result,))]
    if any(x.dtype is COMPLEX32 for x in (*node.inputs, *node.outputs)):  # its array type is that of complex64
        results = [
            rounded(r, value.dtype).astype(holder(value.dtype)) for r, value in zip(results, node.outputs, strict=True)
        ]
    for value, array in zip(node.outputs, results, strict=True):
        if array.shape != value.shape or array.dtype.name != holder(value.dtype):
            raise AssertionError(
                f"the reference of prim.{node.prim.name} gave {array.dtype.name}{list(array.shape)}, "
                f"its spec says {value.dtype.name}{list(value.shape)}"
            )
    return tuple(results) if node.prim.multiple else results[0]
