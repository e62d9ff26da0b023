"""Index arguments of operators: checked, as int64, with their dim moved to the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._ops.bodies import narrow, wide, wrap
from rushlight._prims import build
from rushlight._types.dtype import INT32, INT64
from rushlight._types.layout import BELOW_ALL, numel

__all__ = [
    "adding",
    "as_index",
    "check_fits",
    "check_ranks",
    "from_zero",
    "index_vector",
    "inverse_perm",
    "lines_of",
    "to_front",
]


def as_index(name: str, index: Any, allowed: str = "int64") -> Any:
    """An index as int64; errors for other dtypes."""
    if index.dtype is INT64:
        return index
    if index.dtype is INT32 and "int32" in allowed:
        return build.convert(index, INT64)
    if allowed == "any" and index.dtype.kind in "iu":
        return build.convert(index, INT64)
    given = index.dtype.scalar
    if name == "torch.take_along_dim":
        raise RuntimeError(f"{name}(): dtype of indices should be Long but got {given}")
    if allowed == "int64":
        raise RuntimeError(f"{name}(): Expected a long tensor for index, but got {given}")
    if name == "index_select":
        raise RuntimeError(f"{name}(): Expected dtype int32 or int64 for index")
    raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index" + f" but got: {given}" * name.endswith("_"))


def from_zero(index: Any) -> Any:
    """An index as int64 in which negatives do not count from the end: they are moved out of every range, and errors
    still report the original."""
    indices = build.convert(index, INT64)
    return build.select(indices < 0, indices - BELOW_ALL, indices)


def inverse_perm(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def to_front(x: Any, dims: Sequence[int]) -> tuple[Any, tuple[int, ...]]:
    """These dims moved to the front, and the permutation for it."""
    perm = (*dims, *(d for d in range(len(x.shape)) if d not in dims))
    return build.transpose(x, perm), perm


def adding(x: Any, function: Any) -> Any:
    """Sums in float32 for half types: `function(wide x)` rounded."""
    return narrow(function(wide(x)), x.dtype)


def index_vector(name: str, index: Any, allowed: str = "int32 int64") -> Any:
    """An index with one dim, as int64; IndexError for one of more dims."""
    if len(index.shape) > 1:
        got = f", but got dim: {len(index.shape)} with type: {index.dtype.scalar} and size: {list(index.shape)}"
        raise IndexError(f"{name}(): Index is supposed to be a vector" + got * name.endswith("_"))
    return build.reshape(as_index(name, index, allowed), (numel(index.shape),))


def lines_of(x: Any, dim: int) -> tuple[Any, int]:
    """`x` with at least one dim, and the dim wrapped."""
    dim = wrap(dim, x)
    return (x if x.shape else build.reshape(x, (1,))), dim


def check_ranks(name: str, x: Any, index: Any, source: Any = None) -> None:
    """RuntimeError if index, `x` and the source differ in their number of dims (a number counts as one dim)."""
    if max(len(x.shape), 1) != max(len(index.shape), 1):
        raise RuntimeError(
            f"Index tensor must have the same number of dimensions as {'input' if source is None else 'self'} tensor"
        )
    if source is not None and max(len(source.shape), 1) != max(len(index.shape), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")


def check_fits(x: Any, index: Any, dim: int, source: Any = None) -> None:
    """RuntimeError if an index is longer than `x` in another dim than the indexed one, or than the source in any."""
    sizes = None if source is None else source.shape or (1,)
    for d, (n, size) in enumerate(zip(index.shape, x.shape, strict=True)):
        longer = d != dim and n > size
        if sizes is not None and (longer or n > sizes[d]):
            raise RuntimeError(
                f"Expected index {list(index.shape)} to be no larger than self {list(x.shape)} apart from dimension {dim} and to be no larger "
                f"size than src {list(sizes)}"
            )
        if longer:
            raise RuntimeError(
                f"Size does not match at dimension {d} expected index {list(index.shape)} to be no larger than self {list(x.shape)} apart from "
                f"dimension {dim}"
            )
