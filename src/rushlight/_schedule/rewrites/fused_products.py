"""Products of matrices as sums and outer products, for those that are faster when fused than by a routine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rushlight._prims import build
from rushlight._prims.record import PRIMITIVES

if TYPE_CHECKING:
    from rushlight._graph.core import Value
    from rushlight._types.dtype import DType

__all__ = [
    "column_product",
    "converted_product",
    "in_pieces",
    "lies_in_memory",
    "outer_product",
    "part_of_dim",
    "row_product",
    "small_products",
]


def converted_product(a: Any, b: Any, dtype: DType) -> Any:
    """A product of operands converted to the dtype of the result.  A library may find that its routine converts them
    itself.
    """
    return build.dot(build.convert(a, dtype), build.convert(b, dtype))


def small_products(a: Any, b: Any, dtype: DType) -> Any:
    """A batch of products as sums of rows of B: one loop nest over the whole batch."""
    n = len(a.shape)
    shape = (*a.shape, b.shape[-1])
    left, right = (build.convert(x, dtype.wide) for x in (a, b))
    left = PRIMITIVES["broadcast"](left, shape=shape, dims=tuple(range(n)))
    right = PRIMITIVES["broadcast"](right, shape=shape, dims=(*range(n - 2), n - 1, n))
    return build.convert(PRIMITIVES["sum"](left * right, dims=(n - 1,)), dtype)


def in_pieces(count: int, a: Any, b: Any, dtype: DType) -> Any:
    """A product as the sum of `count` products over parts of the summed dim, and one over the rest."""
    n, k = len(a.shape), a.shape[-1]
    length = k // count
    whole = length * count
    rest = None
    if whole < k:
        rest = build.dot(part_of_dim(a, n - 1, whole, k), part_of_dim(b, n - 2, whole, k), dtype.wide)
        a, b = part_of_dim(a, n - 1, 0, whole), part_of_dim(b, n - 2, 0, whole)
    lead = a.shape[:-2]
    left = build.reshape(a, (*lead, a.shape[-2], count, length))
    left = build.transpose(left, (n - 1, *range(n - 2), n - 2, n))
    right = build.reshape(b, (*lead, count, length, b.shape[-1]))
    right = build.transpose(right, (n - 2, *range(n - 2), n - 1, n))
    total = PRIMITIVES["sum"](build.dot(left, right, dtype.wide), dims=(0,))
    total = total if rest is None else total + rest
    return total if dtype.wide is dtype else build.convert(total, dtype)


def part_of_dim(x: Any, dim: int, start: int, end: int) -> Any:
    """The slice of a dim from `start` to `end`."""
    full = range(len(x.shape))
    starts, stops = tuple(start if d == dim else 0 for d in full), tuple(end if d == dim else x.shape[d] for d in full)
    return PRIMITIVES["slice"](x, starts=starts, stops=stops, steps=(1,) * len(full))


def lies_in_memory(value: Value) -> bool:
    """Whether a value is stored, or a view of a stored value."""
    while value.node is not None:
        if value.node.prim.name not in ("reshape", "transpose", "broadcast", "slice"):
            return value.node.prim.lower[0] in ("extern", "scan", "scatter", "index_write")
        value = value.node.inputs[0]
    return True


def outer_product(a: Any, b: Any, dtype: DType) -> Any:
    shape = (*a.shape[:-1], b.shape[-1])
    return build.broadcast_to(a, shape) * build.broadcast_to(b, shape)


def column_product(a: Any, b: Any, dtype: DType) -> Any:
    n = len(a.shape)
    row = build.broadcast_to(build.transpose(b, (*range(n - 2), n - 1, n - 2)), a.shape)
    return build.reshape(PRIMITIVES["sum"](a * row, dims=(n - 1,)), (*a.shape[:-1], 1))


def row_product(a: Any, b: Any, dtype: DType) -> Any:
    n = len(a.shape)
    column = build.broadcast_to(build.transpose(a, (*range(n - 2), n - 1, n - 2)), b.shape)
    return build.reshape(PRIMITIVES["sum"](column * b, dims=(n - 2,)), (*a.shape[:-1], b.shape[-1]))
