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
from rushlight._prims.numbers import holder, rounded
from rushlight._types.dtype import COMPLEX32

__all__ = ["run"]


def run(graph: Graph, arguments: Sequence[Any]) -> list[Any]:
    """The graph's outputs as arrays.  Arguments are arrays of the inputs' shapes and dtypes; dtypes that NumPy lacks
    are passed as wider ones, rounded."""
    arrays = [_accept(value, argument) for value, argument in zip(graph.inputs, arguments, strict=True)]
    with np.errstate(all="ignore"):
        return evaluate(graph, arrays, _apply)


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
