"""Weighted gathers: sums of elements at indices that are data, a few *taps* for each result, as in reading an image
between its elements.

Three products of an array x [N, C, L], results y [N, C, P] and, for each tap, weights [N, P] at indices [N, P]; each is
linear in its two operands, and their derivatives are one another.  A negative index reads a zero and adds to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import lift, require
from rushlight._prims.record import Aval, ByDecomposition, Primitive, prim
from rushlight._prims.samples import Samples, floats, integers
from rushlight._types.dtype import INT64

__all__: list[str] = []


def _check(name: str, arrays: Sequence[Any], indices: Sequence[Any], weights: Sequence[Any]) -> None:
    for x in (*arrays, *weights):
        require(name, x, "f")
    dtype = arrays[0].dtype
    shape: tuple[int, ...] = indices[0].shape if indices else ()
    right = (
        len(shape) == 2
        and all(v.shape == shape for v in (*indices, *weights))
        and all(v.dtype is INT64 for v in indices)
    )
    right = (
        right
        and all(len(x.shape) == 3 and x.shape[0] == shape[0] for x in arrays)
        and all(x.dtype is dtype for x in (*arrays, *weights))
    )
    if not right:
        raise ValueError(
            f"prim.{name} takes arrays [N, C, *], and for each tap int64 indices [N, P], and weights, got {[*arrays, *indices, *weights]}"
        )


def _halves(taps: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """Indices and weights."""
    return taps[: len(taps) // 2], taps[len(taps) // 2 :]


def _inside(indices: Any, channels: int) -> Any:
    """A mask of the indices [N, P] that are inside, for each channel."""
    return _spread(prim.le(build.zeros_like(indices), indices), channels)


def _spread(x: Any, channels: int) -> Any:
    """Weights or indices repeated for each channel."""
    return prim.broadcast(x, shape=(x.shape[0], channels, x.shape[1]), dims=(0, 2))


def _safe(indices: Any, channels: int) -> Any:
    return _spread(build.select(prim.le(build.zeros_like(indices), indices), indices, 0), channels)


def _read(x: Any, indices: Any) -> Any:
    """The elements that a tap reads, [N, C, P]."""
    return build.select(_inside(indices, x.shape[1]), prim.gather(x, _safe(indices, x.shape[1]), dim=2), 0)


def _read_reference(x: Any, indices: Any) -> Any:
    safe = np.broadcast_to(np.maximum(indices, 0)[:, None], (*x.shape[:2], indices.shape[1]))
    return np.where((indices >= 0)[:, None], np.take_along_axis(x, safe, 2), 0).astype(x.dtype)


def _batched(name: str) -> Callable[..., Any]:
    def batch(batched: Sequence[bool], *xs: Any, **p: Any) -> Any:
        """The batch becomes items."""
        lifted = lift(batched, xs)
        size, n = lifted[0].shape[:2]
        out = getattr(prim, name)(*(build.reshape(x, (size * n, *x.shape[2:])) for x in lifted), **p)
        outs = tuple(build.reshape(y, (size, n, *y.shape[1:])) for y in (out if isinstance(out, tuple) else (out,)))
        return outs if isinstance(out, tuple) else outs[0]

    return batch


def _samples_of(arrays: str, weighted: bool, sized: bool = False) -> Callable[[], Samples]:
    def samples() -> Samples:
        for (n, c, length, k, p), dtype in (
            ((2, 3, 7, 4, 5), "float64"),
            ((1, 2, 9, 1, 70), "float32"),
            ((3, 1, 2, 5, 1), "float64"),
        ):
            operands = [
                floats((n, c, {"x": length, "y": p}[name]), seed, dtype=dtype) for seed, name in enumerate(arrays)
            ]
            indices = [integers((n, p), 3 + t, low=-2, high=length) for t in range(k)]
            weights = [floats((n, p), 9 + t, dtype=dtype) for t in range(k)] if weighted else []
            yield [*operands, *indices, *weights], {"size": length} if sized else {}

    return samples


# ***** weighted_gather *****


def _spec(x: Any, *taps: Any) -> Aval:
    _check("weighted_gather", (x,), *_halves(taps))
    return (*x.shape[:2], taps[0].shape[1]), x.dtype


def _reference(x: Any, *taps: Any) -> Any:
    return sum(_read_reference(x, indices) * weights[:, None] for indices, weights in zip(*_halves(taps), strict=True))


def _decompose(x: Any, *taps: Any) -> Any:
    total = None
    for indices, weights in zip(*_halves(taps), strict=True):
        part = _read(x, indices) * _spread(weights, x.shape[1])
        total = part if total is None else total + part
    return total


def _vjp(ct: Any, out: Any, x: Any, *taps: Any) -> tuple[Any, ...]:
    indices, _ = _halves(taps)
    return (
        prim.weighted_scatter(ct, *taps, size=x.shape[2]),
        *(None for _ in indices),
        *prim.gather_weights(ct, x, *indices),
    )


Primitive(
    "weighted_gather", "y[n, c, p] = sum over taps of x[n, c, indices[n, p]] weights[n, p]; after x come the indices of all taps, then the weights.",
    family="heavy", spec=_spec, reference=_reference, lower=("extern", "taps"), decompose=_decompose, samples=_samples_of("x", True),
    vjp=_vjp, jvp=ByDecomposition(), batch=_batched("weighted_gather"),
)  # fmt: skip

# ***** weighted_scatter *****


def _back_spec(y: Any, *taps: Any, size: int) -> Aval:
    _check("weighted_scatter", (y,), *_halves(taps))
    return (*y.shape[:2], size), y.dtype


def _back_reference(y: Any, *taps: Any, size: int) -> Any:
    sums = np.zeros((*y.shape[:2], size), y.dtype)
    for indices, weights in zip(*_halves(taps), strict=True):
        n, p = np.nonzero(indices >= 0)
        np.add.at(sums, (n, slice(None), indices[n, p]), (y * weights[:, None])[n, :, p])
    return sums


def _back_decompose(y: Any, *taps: Any, size: int) -> Any:
    n, c, _ = y.shape
    sums = build.full((n, c, size), 0, y.dtype)
    for indices, weights in zip(*_halves(taps), strict=True):
        sums = prim.scatter(
            sums, _safe(indices, c), build.select(_inside(indices, c), y * _spread(weights, c), 0), dim=2, reduce="add"
        )
    return sums


def _back_vjp(ct: Any, out: Any, y: Any, *taps: Any, size: int) -> tuple[Any, ...]:
    indices, _ = _halves(taps)
    return prim.weighted_gather(ct, *taps), *(None for _ in indices), *prim.gather_weights(y, ct, *indices)


Primitive(
    "weighted_scatter", "x[n, c, i] = sum over taps and the p with indices[n, p] = i of y[n, c, p] weights[n, p]; x is [N, C, size].", family="heavy",
    spec=_back_spec, reference=_back_reference, lower=("extern", "taps"), decompose=_back_decompose,
    samples=_samples_of("y", True, sized=True), vjp=_back_vjp, jvp=ByDecomposition(), batch=_batched("weighted_scatter"),
)  # fmt: skip

# ***** gather_weights *****


def _weights_spec(y: Any, x: Any, *indices: Any) -> list[Aval]:
    _check("gather_weights", (y, x), indices, ())
    if x.shape[1] != y.shape[1] or y.shape[2] != indices[0].shape[1]:
        raise ValueError(
            f"prim.gather_weights takes y [N, C, P] and x [N, C, L], got {list(y.shape)}, {list(x.shape)} for indices {list(indices[0].shape)}"
        )
    return [(indices[0].shape, y.dtype)] * len(indices)


def _weights_vjp(cts: Sequence[Any], outs: Any, y: Any, x: Any, *indices: Any) -> tuple[Any, ...]:
    weights = [build.full(at.shape, 0, y.dtype) if ct is None else ct for ct, at in zip(cts, indices, strict=True)]
    taps = (*indices, *weights)
    return prim.weighted_gather(x, *taps), prim.weighted_scatter(y, *taps, size=x.shape[2]), *(None for _ in indices)


Primitive(
    "gather_weights", "For each tap weights[n, p] = sum over c of y[n, c, p] x[n, c, indices[n, p]].", family="heavy", spec=_weights_spec,
    reference=lambda y, x, *indices: tuple((y * _read_reference(x, at)).sum(1) for at in indices), lower=("extern", "taps"), multiple=True,
    decompose=lambda y, x, *indices: tuple(prim.sum(y * _read(x, at), dims=(1,)) for at in indices), samples=_samples_of("yx", False),
    vjp=_weights_vjp, jvp=ByDecomposition(), batch=_batched("gather_weights"),
)  # fmt: skip
