"""Products of bytes with windows as rows, without a matrix of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.record import Aval, Primitive, not_differentiable, prim
from rushlight._prims.samples import Samples, any_dtype
from rushlight._types.dtype import INT8, INT32, UINT8
from rushlight._types.layout import numel

__all__: list[str] = []

Ints = tuple[int, ...]


def _reach(size: Ints, stride: Ints, dilation: Ints, positions: Ints) -> Ints:
    """The extent of all windows in each dim."""
    sizes = zip(size, stride, dilation, positions, strict=True)
    return tuple((count - 1) * step + (k - 1) * gap + 1 for k, step, gap, count in sizes)


def _spec(x: Any, w: Any, *, size: Ints, stride: Ints, dilation: Ints, positions: Ints) -> Aval:
    if x.dtype is not UINT8 or w.dtype is not INT8:
        raise TypeError(f"prim.window_dot takes uint8 and int8, got {x.dtype.name} and {w.dtype.name}")
    n = len(size)
    if not n == len(stride) == len(dilation) == len(positions) or len(x.shape) != n + 1 or len(w.shape) != 2:
        raise ValueError(f"prim.window_dot takes [N, *S] and [O, K] and parameters for each of S, got {list(x.shape)}, {list(w.shape)}")  # fmt: skip
    if min(*size, *stride, *dilation, *positions) < 1 or numel(size) != w.shape[1]:
        raise ValueError(f"prim.window_dot: windows of {list(size)} do not fit a matrix {list(w.shape)}")
    reach = _reach(size, stride, dilation, positions)
    if any(extent > s for extent, s in zip(reach, x.shape[1:], strict=True)):
        raise ValueError(f"prim.window_dot: windows reach {list(reach)} of {list(x.shape[1:])}")
    return (x.shape[0] * numel(positions), w.shape[0]), INT32


def _reference(x: Any, w: Any, *, size: Ints, stride: Ints, dilation: Ints, positions: Ints) -> Any:
    rows, n = x.astype("int64"), len(size)
    for d, (k, step, gap, count) in enumerate(zip(size, stride, dilation, positions, strict=True)):
        index = np.arange(count)[:, None] * step + np.arange(k)[None] * gap
        rows = np.take(rows, index, axis=1 + 2 * d)
    rows = rows.transpose(0, *range(1, 2 * n + 1, 2), *range(2, 2 * n + 1, 2))
    return (rows.reshape(x.shape[0] * numel(positions), numel(size)) @ w.astype("int64").T).astype("int32")


def _decompose(x: Any, w: Any, *, size: Ints, stride: Ints, dilation: Ints, positions: Ints) -> Any:
    """A matrix of windows, and `dot`."""
    n, reach = len(size), _reach(size, stride, dilation, positions)
    x = prim.slice(x, starts=(0,) * (n + 1), stops=(x.shape[0], *reach), steps=(1,) * (n + 1))
    rows = prim.window(x, dims=tuple(range(1, n + 1)), size=size, stride=stride, dilation=dilation)
    rows = build.reshape(rows, (x.shape[0] * numel(positions), numel(size)))
    return build.dot(rows, build.transpose(w, (1, 0)), INT32)


def _batch(batched: Sequence[bool], x: Any, w: Any, **p: Any) -> Any:
    """One matrix for all: the batch is further images; else one product for each item."""
    if not batched[1]:
        y = prim.window_dot(build.reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:])), w, **p)
        return build.reshape(y, (x.shape[0], y.shape[0] // x.shape[0] if x.shape[0] else 0, y.shape[1]))
    parts = []
    for k in range(w.shape[0]):
        item = [build.reshape(prim.slice(v, starts=(k, *(0,) * (len(v.shape) - 1)), stops=(k + 1, *v.shape[1:]),
                                         steps=(1,) * len(v.shape)), v.shape[1:]) if b else v
                for v, b in zip((x, w), batched, strict=True)]  # fmt: skip
        y = prim.window_dot(*item, **p)
        parts.append(build.reshape(y, (1, *y.shape)))
    return prim.cat(*parts, dim=0)


def _samples() -> Samples:
    def case(x: Ints, outs: int, size: Ints, positions: Ints, **given: Any) -> Any:
        ones = (1,) * len(size)
        params = {"size": size, "stride": ones, "dilation": ones, "positions": positions, **given}
        return [any_dtype(x, "uint8", 1), any_dtype((outs, numel(size)), "int8", 2)], params

    yield case((5, 8), 3, (8,), (1,))
    yield case((2, 6, 20), 4, (3, 12), (4, 3), stride=(1, 4))
    yield case((1, 9, 23), 5, (2, 7), (3, 5), stride=(2, 3), dilation=(3, 1))
    yield case((2, 4, 5, 16), 17, (2, 2, 8), (3, 4, 2), stride=(1, 1, 8))


_WHY = "integers have no derivative"
Primitive(
    "window_dot",
    "Products of a matrix w [O, K] (int8) with the windows of images x [N, *S] (uint8), in int32 [N * P, O]: rows are windows of `size` (K elements) at"
    " `positions` (P of them), `stride` apart, whose elements are `dilation` apart.",
    family="heavy", spec=_spec, reference=_reference, lower=("extern", "window_dot"), decompose=_decompose, samples=_samples,
    vjp=not_differentiable(_WHY), jvp=not_differentiable(_WHY), batch=_batch,
)  # fmt: skip
