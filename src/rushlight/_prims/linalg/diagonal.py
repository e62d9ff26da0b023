"""The diagonal of a matrix: the one view whose stride is the sum of two."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, floats, integers
from rushlight._types.dtype import INT64

__all__: list[str] = []

Ints = tuple[int, ...]


def _spec(x: Any, start: Ints, size: int) -> Aval:
    if (
        len(x.shape) < 2
        or size < 0
        or any(size and not 0 <= at <= at + size <= n for at, n in zip(start, x.shape[-2:], strict=True))
    ):
        raise ValueError(f"prim.diagonal: {size} elements from {start} do not fit {list(x.shape)}")
    return (*x.shape[:-2], size), x.dtype


def _reference(x: Any, start: Ints, size: int) -> Any:
    offsets = np.arange(size)
    return x[..., offsets + start[0], offsets + start[1]]


def _layout(shape: Ints, strides: Ints, offset: int, start: Ints, size: int) -> tuple[Ints, Ints, int]:
    row, column = strides[-2:]
    at = start[0] * row + start[1] * column if size else 0
    return (*shape[:-2], size), (*strides[:-2], row + column), offset + at


def _vjp(ct: Any, out: Any, x: Any, start: Ints, size: int) -> tuple[Any]:
    """Each row holds at most one element of the diagonal: the cotangent along rows, masked by the column."""
    if size == 0:
        return (build.zeros_like(x),)
    last = len(x.shape) - 1
    lo, hi = [0] * last, [0] * last
    lo[-1], hi[-1] = start[0], x.shape[-2] - start[0] - size
    rows = build.pad(ct, lo, hi, [0] * last)
    spread = prim.broadcast(rows, shape=x.shape, dims=tuple(range(last)))
    row, column = (prim.iota(shape=x.shape, dim=d, dtype=INT64) for d in (last - 1, last))
    return (build.select(build.eq(column - row, start[1] - start[0]), spread, build.zeros_like(spread)),)


def _decompose(x: Any, start: Ints, size: int) -> Any:
    """Every (columns + 1)-th element of the concatenated rows."""
    lead, (rows, columns) = x.shape[:-2], x.shape[-2:]
    if size == 0:
        return build.full((*lead, 0), 0, x.dtype)
    first = start[0] * columns + start[1]
    flat = build.reshape(x, (*lead, rows * columns))
    zeros, ones = (0,) * len(lead), (1,) * len(lead)
    stops = (*lead, first + (size - 1) * (columns + 1) + 1)
    return prim.slice(flat, starts=(*zeros, first), stops=stops, steps=(*ones, columns + 1))


def _samples() -> Samples:
    yield [floats((4, 5))], {"start": (0, 1), "size": 4}
    yield [floats((2, 4, 3), dtype="float32")], {"start": (1, 0), "size": 3}
    yield [integers((3, 3))], {"start": (0, 0), "size": 3}
    yield [floats((0, 2))], {"start": (0, 0), "size": 0}


Primitive(
    "diagonal", "Places (start[0] + i, start[1] + i) of the last two dims, as one dim.", family="shape", spec=_spec, reference=_reference,
    lower=("extern", "diagonal"), layout=_layout, decompose=_decompose, samples=_samples, vjp=_vjp,
    jvp=lambda tangents, out, x, **p: prim.diagonal(tangents[0], **p), batch=lambda batched, x, **p: prim.diagonal(x, **p),
)  # fmt: skip
