"""Weighted sums of a few elements along a dim: the operation of resizing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.record import Aval, ByDecomposition, Primitive, prim
from rushlight._prims.samples import Samples, floats, integers
from rushlight._types.dtype import INT64

__all__: list[str] = []

Ints = tuple[int, ...]


def _check(name: str, x: Any, tables: Sequence[Any], count: int) -> None:
    require(name, x, "f")
    if len(x.shape) != 4 or len(tables) != 2 * count:
        raise ValueError(
            f"prim.{name} takes [N, C, H, W] and indices and weights for {count} dims, got {list(x.shape)} and {len(tables)} tables"
        )
    for index, weights in zip(tables[::2], tables[1::2], strict=True):
        if (
            index.dtype is not INT64
            or weights.dtype is not x.dtype
            or index.shape != weights.shape
            or len(index.shape) != 2
            or not index.shape[0]
        ):
            raise ValueError(f"prim.{name} takes indices and weights [K, result], got {index!r} and {weights!r}")


def _resized(shape: Ints, dim: int, size: int) -> Ints:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _row(x: Any, k: int) -> Any:
    """Row k of a table, or item k of a batch, with its dim."""
    rest = (0,) * (len(x.shape) - 1)
    return prim.slice(x, starts=(k, *rest), stops=(k + 1, *x.shape[1:]), steps=(1,) * len(x.shape))


def _spread(weights: Any, k: int, shape: Ints, dim: int) -> Any:
    """Row k of the weights, for all elements of an array whose `dim` it goes along."""
    return build.broadcast_to(
        build.reshape(_row(weights, k), tuple(s if d == dim else 1 for d, s in enumerate(shape))), shape
    )


def _read(x: Any, dim: int, index: Any, k: int) -> Any:
    """The elements at row k of the index along `dim`."""
    order = (dim, *(d for d in range(len(x.shape)) if d != dim))
    back = tuple(order.index(d) for d in range(len(x.shape)))
    row = build.reshape(_row(index, k), (index.shape[1],))
    return build.transpose(prim.index(build.transpose(x, order), row), back)


# ***** resample *****


def _spec(x: Any, *tables: Any, dims: Ints) -> Aval:
    _check("resample", x, tables, len(dims))
    shape = x.shape
    for index, dim in zip(tables[::2], dims, strict=True):
        shape = _resized(shape, dim, index.shape[1])
    return shape, x.dtype


def _reference(x: Any, *tables: Any, dims: Ints) -> Any:
    for index, weights, dim in zip(tables[::2], tables[1::2], dims, strict=True):
        shape = [-1 if d == dim else 1 for d in range(4)]
        x = sum(np.take(x, row, axis=dim) * w.reshape(shape) for row, w in zip(index, weights, strict=True))
    return x


def _decompose(x: Any, *tables: Any, dims: Ints) -> Any:
    for index, weights, dim in zip(tables[::2], tables[1::2], dims, strict=True):
        total = None
        for k in range(index.shape[0]):
            part = _read(x, dim, index, k)
            part = part * _spread(weights, k, part.shape, dim)
            total = part if total is None else total + part
        x = total
    return x


def _to_weights(ct: Any, x: Any, index: Any, dim: int) -> Any:
    """The cotangent of weights [K, result]."""
    others = tuple(d for d in range(4) if d != dim)
    rows = [build.expand_dims(prim.sum(_read(x, dim, index, k) * ct, dims=others), (0,)) for k in range(index.shape[0])]
    return prim.cat(*rows, dim=0)


def _vjp(ct: Any, out: Any, x: Any, *tables: Any, dims: Ints) -> tuple[Any, ...]:
    steps = [x]
    for at, dim in enumerate(dims[:-1]):
        steps.append(prim.resample(steps[-1], *tables[2 * at : 2 * at + 2], dims=(dim,)))
    to_weights: list[Any] = []
    for at in reversed(range(len(dims))):
        index, weights = tables[2 * at : 2 * at + 2]
        to_weights[:0] = [None, partial(_to_weights, ct, steps[at], index, dims[at])]
        ct = prim.resample_back(ct, index, weights, dim=dims[at], size=steps[at].shape[dims[at]])
    return (ct, *to_weights)


def _batch(batched: Sequence[bool], x: Any, *tables: Any, **p: Any) -> Any:
    return _batched(prim.resample, batched, x, tables, p)


def _batched(primitive: Any, batched: Sequence[bool], x: Any, tables: Sequence[Any], p: dict[str, Any]) -> Any:
    """The batch becomes images; with tables of their own one item after the other."""
    size = next(v.shape[0] for v, b in zip((x, *tables), batched, strict=True) if b)
    if not any(batched[1:]):
        out = primitive(build.reshape(x, (size * x.shape[1], *x.shape[2:])), *tables, **p)
        return build.reshape(out, (size, x.shape[1], *out.shape[1:]))
    parts = []
    for k in range(size):
        here = [build.squeeze(_row(v, k), (0,)) if b else v for v, b in zip((x, *tables), batched, strict=True)]
        parts.append(build.expand_dims(primitive(*here, **p), (0,)))
    if parts:
        return prim.cat(*parts, dim=0)
    shapes = [v.shape[1:] if b else v.shape for v, b in zip((x, *tables), batched, strict=True)]
    nothing = primitive(*(build.full(shape, 0, v.dtype) for shape, v in zip(shapes, (x, *tables), strict=True)), **p)
    return build.full((0, *nothing.shape), 0, x.dtype)


def _tables(size: int, out: int, taps: int, seed: int, dtype: str) -> list[Any]:
    return [integers((taps, out), seed, low=0, high=size), floats((taps, out), seed + 1, dtype=dtype)]


def _samples() -> Samples:
    for dtype in ("float64", "float32"):
        yield (
            [floats((2, 3, 4, 5), dtype=dtype), *_tables(5, 9, 2, 1, dtype), *_tables(4, 3, 3, 2, dtype)],
            {"dims": (3, 2)},
        )
    yield [floats((2, 2, 6, 3)), *_tables(6, 4, 1, 1, "float64")], {"dims": (2,)}
    yield [floats((1, 2, 1, 7)), *_tables(7, 20, 4, 1, "float64")], {"dims": (3,)}
    yield [floats((0, 2, 3, 3)), *_tables(3, 4, 2, 1, "float64")], {"dims": (3,)}


Primitive(
    "resample", "Sums over k of x[.., index[k, i], ..] weights[k, i] along one of dims after the other; x is [N, C, H, W].", family="heavy",
    spec=_spec, reference=_reference, lower=("extern", "resample"), decompose=_decompose, samples=_samples, vjp=_vjp, jvp=ByDecomposition(),
    batch=_batch,
)  # fmt: skip

# ***** resample_back *****


def _back_spec(ct: Any, index: Any, weights: Any, dim: int, size: int) -> Aval:
    _check("resample_back", ct, (index, weights), 1)
    return _resized(ct.shape, dim, size), ct.dtype


def _back_reference(ct: Any, index: Any, weights: Any, dim: int, size: int) -> Any:
    rows = np.moveaxis(ct, dim, 0)
    sums = np.zeros((size, *rows.shape[1:]), ct.dtype)
    for indices, factors in zip(index, weights, strict=True):
        np.add.at(sums, indices, rows * factors[:, None, None, None])
    return np.moveaxis(sums, 0, dim)


def _back_decompose(ct: Any, index: Any, weights: Any, dim: int, size: int) -> Any:
    order = (dim, *(d for d in range(4) if d != dim))
    parts = [build.transpose(ct * _spread(weights, k, ct.shape, dim), order) for k in range(index.shape[0])]
    zeros = build.full((size, *parts[0].shape[1:]), 0, ct.dtype)
    indices = build.reshape(index, (index.shape[0] * index.shape[1],))
    sums = prim.index_put(zeros, prim.cat(*parts, dim=0), indices, accumulate=True)
    return build.transpose(sums, tuple(order.index(d) for d in range(4)))


def _back_vjp(g: Any, out: Any, ct: Any, index: Any, weights: Any, dim: int, size: int) -> tuple[Any, ...]:
    return prim.resample(g, index, weights, dims=(dim,)), None, partial(_to_weights, ct, g, index, dim)


def _back_samples() -> Samples:
    yield [floats((2, 3, 4, 9)), *_tables(5, 9, 2, 1, "float64")], {"dim": 3, "size": 5}
    yield [floats((2, 2, 4, 3), dtype="float32"), *_tables(6, 4, 3, 1, "float32")], {"dim": 2, "size": 6}
    yield [floats((0, 2, 4, 3)), *_tables(6, 4, 3, 1, "float64")], {"dim": 2, "size": 6}


Primitive(
    "resample_back", "The transpose of `resample` along one dim, whose size was `size`: each element adds to those it was made from.",
    family="heavy", spec=_back_spec, reference=_back_reference, lower=("extern", "resample"), decompose=_back_decompose, samples=_back_samples,
    vjp=_back_vjp, jvp=ByDecomposition(), batch=lambda batched, x, *tables, **p: _batched(prim.resample_back, batched, x, tables, p),
)  # fmt: skip
