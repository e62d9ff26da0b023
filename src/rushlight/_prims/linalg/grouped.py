"""Products of groups of matrices that lie side by side, as the experts of a mixture need them.

Where groups end is data: kernels read it from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.errors import DTypeError
from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import batch_items, require
from rushlight._prims.numbers import holder
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, any_dtype
from rushlight._types.dtype import BY_NAME, FLOAT32, INT32, INT64, DType

__all__: list[str] = []

_EIGHT_BITS = ("float8_e4m3fn", "float8_e5m2")


def _shape(a: Any, b: Any, ends: Any) -> tuple[int, ...]:
    """The shape of the result; ValueError for operands that do not fit."""
    dims = len(a.shape), len(b.shape)
    stacked = [x.shape[0] for x in (a, b) if len(x.shape) == 3]
    fits = dims in ((2, 3), (3, 2), (2, 2)) and a.shape[-1] == b.shape[-2]
    if not fits or len(ends.shape) != 1 or any(n != ends.shape[0] for n in stacked):
        raise ValueError(
            "prim.grouped_dot takes [M, K] and [G, K, N], [G, M, K] and [K, N], or [M, K] and [K, N], and [G] ends, got "
            f"{list(a.shape)}, {list(b.shape)} and {list(ends.shape)}"
        )
    shape = (a.shape[-2], b.shape[-1])
    return (ends.shape[0], *shape) if dims == (2, 2) else shape


def _spec(a: Any, b: Any, ends: Any, dtype: DType) -> Aval:
    require("grouped_dot", a, "f", half=True)
    eights = a.dtype.name in _EIGHT_BITS and b.dtype.name in _EIGHT_BITS and dtype is a.dtype.wide
    if a.dtype is not b.dtype and not eights:
        raise TypeError(f"prim.grouped_dot takes operands of one dtype, got {a.dtype.name} and {b.dtype.name}")
    if dtype not in (a.dtype, a.dtype.wide):
        raise TypeError(f"prim.grouped_dot has no sums in {dtype.name} of {a.dtype.name}")
    if ends.dtype is not INT32:
        raise DTypeError(f"prim.grouped_dot takes ends of groups in int32, got {ends.dtype.name}", ends.dtype)
    return _shape(a, b, ends), dtype


def _reference(a: Any, b: Any, ends: Any, dtype: DType) -> Any:
    out = np.zeros(_shape(a, b, ends), np.float64)
    a, b = a.astype(np.float64), b.astype(np.float64)
    for group, (low, high) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if a.ndim == b.ndim:
            out[group] = a[:, low:high] @ b[low:high]
        elif a.ndim == 2:
            out[low:high] = a[low:high] @ b[group]
        else:
            out[:, low:high] = a[group] @ b[:, low:high]
    return out.astype(holder(dtype))


# ***** in simpler primitives *****


def _owners(ends: Any, size: int) -> tuple[Any, Any]:
    """The group of each place along a dim, and whether there is one: groups count the ends before."""
    count = ends.shape[0]
    place = prim.iota(shape=(size, count), dim=0, dtype=INT64)
    behind = prim.le(build.broadcast_to(build.convert(ends, INT64), (size, count)), place)
    group = prim.sum(build.convert(behind, INT64), dims=(1,))
    owned = prim.lt(group, build.full((size,), count, INT64))
    return prim.minimum(group, build.full((size,), count - 1, INT64)), owned


def _swapped(x: Any) -> Any:
    n = len(x.shape)
    return build.transpose(x, (*range(n - 2), n - 1, n - 2))


def _all_pairs(a: Any, b: Any, ends: Any, dtype: DType) -> Any:
    """[M, K] by [G, K, N]: every row by every matrix, of which the row's own is taken."""
    count, rows = ends.shape[0], a.shape[0]
    every = build.dot(build.broadcast_to(a, (count, *a.shape)), b, dtype)
    group, owned = _owners(ends, rows)
    found = prim.index(every, group, prim.iota(shape=(rows,), dim=0, dtype=INT64))
    return build.select(build.broadcast_to(build.expand_dims(owned, (1,)), found.shape), found, 0)


def _decompose(a: Any, b: Any, ends: Any, dtype: DType) -> Any:
    count = ends.shape[0]
    if not count:
        return build.full(_shape(a, b, ends), 0, dtype)
    if len(b.shape) == 3:
        return _all_pairs(a, b, ends, dtype)
    if len(a.shape) == 3:
        return _swapped(_all_pairs(_swapped(b), _swapped(a), ends, dtype))
    depth = a.shape[1]
    group, owned = _owners(ends, depth)
    group = build.select(owned, group, count)
    mine = prim.eq(
        build.broadcast_to(build.expand_dims(group, (0,)), (count, depth)),
        prim.iota(shape=(count, depth), dim=0, dtype=INT64),
    )

    def alone(x: Any, taken: Any) -> Any:
        every = build.broadcast_to(x, (count, *x.shape))
        return build.select(build.broadcast_to(taken, every.shape), every, 0)

    left, right = alone(a, build.expand_dims(mine, (1,))), alone(b, build.expand_dims(mine, (2,)))
    return build.dot(left, right, dtype)


# ***** derivatives: those of products of groups are products of groups *****


def _vjp(ct: Any, out: Any, a: Any, b: Any, ends: Any, dtype: DType) -> tuple[Any, Any, None]:
    left, right = (build.convert(x, dtype) for x in (a, b))
    to_a = prim.grouped_dot(ct, _swapped(right), ends, dtype=dtype)
    to_b = prim.grouped_dot(_swapped(left), ct, ends, dtype=dtype)
    return build.convert(to_a, a.dtype), build.convert(to_b, b.dtype), None


def _jvp(tangents: Any, out: Any, a: Any, b: Any, ends: Any, dtype: DType) -> Any:
    ta, tb = tangents[:2]
    left = None if ta is None else prim.grouped_dot(ta, b, ends, dtype=dtype)
    return build.add_any(left, None if tb is None else prim.grouped_dot(a, tb, ends, dtype=dtype))


# ***** samples *****


def _samples() -> Samples:
    def case(left: Sequence[int], right: Sequence[int], ends: Sequence[int], dtype: str = "float64") -> Any:
        arrays = [any_dtype(tuple(left), dtype, 1), any_dtype(tuple(right), dtype, 2), np.array(ends, np.int32)]
        return arrays, {"dtype": FLOAT32 if dtype == "float16" else BY_NAME[dtype]}

    yield case((7, 3), (3, 3, 4), (2, 2, 6))
    yield case((3, 4, 3), (3, 7), (0, 5, 7))
    yield case((4, 7), (7, 5), (3, 3, 6))
    yield case((6, 5), (2, 5, 3), (4, 6), "float32")
    yield case((6, 5), (2, 5, 3), (1, 6), "float16")


Primitive(
    "grouped_dot", "Products of groups of matrices in `dtype` (see `dot`): ends[g] is where group g ends along the rows of a (for b [G, K, N]), the columns of "
    "b (for a [G, M, K]), or the inner dim of both, which gives [G, M, N].  Rows and columns behind the last end are 0; ends that decrease, or leave "
    "the dim, give anything.",
    family="heavy", spec=_spec, reference=_reference, lower=("extern", "grouped_dot"), samples=_samples, vjp=_vjp, jvp=_jvp,
    batch=batch_items("grouped_dot"), decompose=_decompose,
)  # fmt: skip
