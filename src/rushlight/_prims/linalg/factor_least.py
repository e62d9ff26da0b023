"""Least squares by orthogonal factors with column exchanges."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.linalg.factor import batch_same, each, of_nothing
from rushlight._prims.linalg.matrices import columns, lead_dims, mH, rows, scale_rows, times
from rushlight._prims.record import Aval, ByDecomposition, Primitive, prim
from rushlight._prims.samples import Samples, floats
from rushlight._types.dtype import INT32

__all__: list[str] = []


def _spec(a: Any, b: Any, order: Any, rcond: float) -> list[Aval]:
    require("least_squares", a, "fc")
    lead, (m, n) = lead_dims("least_squares", a), a.shape[-2:]
    if (
        b.dtype is not a.dtype
        or b.shape[:-1] != (*lead, max(m, n))
        or order.shape != (*lead, n)
        or order.dtype is not INT32
    ):
        raise ValueError(
            f"prim.least_squares takes a [m, n], b [max(m, n), k] and int32 [n], got {a!r}, {b!r} and {order!r}"
        )
    return [(b.shape, b.dtype), (lead, INT32), (lead, INT32)]


def _reference(a: Any, b: Any, order: Any, rcond: float) -> tuple[Any, Any, Any]:
    solutions, ranks = np.zeros_like(b), np.zeros(a.shape[:-2], np.int32)
    for item, matrix in each(a):
        solutions[item][: a.shape[-1]], _, ranks[item], _ = np.linalg.lstsq(matrix, b[item][: a.shape[-2]], rcond)
    solutions[..., a.shape[-1] :, :] = b[..., a.shape[-1] :, :]  # undefined, and samples have no such rows
    return solutions, ranks, np.zeros_like(ranks)


def _decompose(a: Any, b: Any, order: Any, rcond: float) -> tuple[Any, Any, Any]:
    """By singular values."""
    (m, n), last = a.shape[-2:], len(a.shape) - 1
    U, S, Vh, info = prim.svd(a, full=False, vectors=True)
    kept = S > build.broadcast_to(columns(S, 0, 1) * rcond, S.shape)
    inverse = build.select(kept, 1.0 / build.select(kept, S, 1.0), 0.0)
    inverse = build.complex_(inverse) if a.dtype.is_complex else inverse
    x = times(mH(Vh), scale_rows(inverse, times(mH(U), rows(b, 0, m))))
    rank = prim.sum(build.convert(kept, INT32), dims=(len(S.shape) - 1,))
    return (prim.cat(x, rows(b, n, m), dim=last - 1) if m > n else x), rank, info


def _samples() -> Samples:
    for dtype in ("float64", "float32", "complex128", "complex64"):
        yield [floats((4, 4), dtype=dtype), floats((4, 2), 1, dtype=dtype), np.zeros(4, np.int32)], {"rcond": 1e-6}
    yield [floats((2, 3, 5), 2), floats((2, 5, 1), 3), np.zeros((2, 5), np.int32)], {"rcond": 1e-10}


Primitive(
    "least_squares", "(X, rank, info): X of least norm among those with the least |A X - B|, in the first n rows; `order` is 0 for columns that may move.",
    family="heavy", spec=_spec, reference=_reference, lower=("extern", "lapack"), multiple=True, samples=_samples, vjp=ByDecomposition(),
    jvp=ByDecomposition(), batch=batch_same("least_squares"), decompose=_decompose, empty=of_nothing("least_squares"),
)  # fmt: skip
