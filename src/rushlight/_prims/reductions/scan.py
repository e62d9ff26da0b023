"""Scans: every element becomes the reduction of all up to it (from it on, with `reverse`)."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.record import Aval, Primitive, Rule, prim
from rushlight._prims.samples import Samples, any_dtype
from rushlight._types.dtype import INT64

__all__: list[str] = []

NUMBERS = ("float64", "float32", "complex128", "int64")


def _check(name: str, x: Any, dim: int, kinds: str) -> None:
    require(name, x, kinds)
    if not 0 <= dim < len(x.shape):
        raise ValueError(f"prim.{name}: {dim} is not a dim of {list(x.shape)}")


def _scan(name: str, doc: str, kind: str, function: str, vjp: Rule, jvp: Rule) -> None:
    def spec(x: Any, dim: int, reverse: bool) -> Aval:
        _check(name, x, dim, "uifc")
        return x.shape, x.dtype

    def reference(x: Any, dim: int, reverse: bool) -> Any:
        doubled = {"float32": "float64", "complex64": "complex128"}.get(x.dtype.name, x.dtype.name)
        flipped = np.flip(x, dim) if reverse else x
        result = getattr(np, function)(flipped, axis=dim, dtype=doubled).astype(x.dtype)
        return np.flip(result, dim) if reverse else result

    def samples() -> Samples:
        for dtype in NUMBERS:
            for reverse in (False, True):
                yield [any_dtype((3, 5), dtype)], {"dim": 1, "reverse": reverse}
        yield [any_dtype((3, 4, 2), "float64")], {"dim": 0, "reverse": False}
        yield [any_dtype((0,), "float64")], {"dim": 0, "reverse": False}
        yield [any_dtype((2, 1), "float32")], {"dim": 1, "reverse": True}

    Primitive(
        name,
        doc,
        family="scan",
        spec=spec,
        reference=reference,
        lower=("scan", kind),
        samples=samples,
        vjp=vjp,
        jvp=jvp,
        batch=lambda batched, x, dim, reverse: getattr(prim, name)(x, dim=dim + 1, reverse=reverse),
    )


_scan(
    "cumsum",
    "Running sum along dim.",
    "add",
    "cumsum",
    lambda ct, out, x, dim, reverse: (prim.cumsum(ct, dim=dim, reverse=not reverse),),
    lambda tangents, out, x, dim, reverse: prim.cumsum(tangents[0], dim=dim, reverse=reverse),
)

# ***** the running product: its gradient is a linear recurrence, which is right where elements are 0 *****


def _shift(x: Any, dim: int, by: int, fill: float) -> Any:
    """Element i of the result is element i + by of x; `fill` beyond the ends."""
    lo, hi = [0] * len(x.shape), [0] * len(x.shape)
    lo[dim], hi[dim] = -by, by
    if abs(by) >= x.shape[dim]:
        return build.full_like(x, fill)
    return build.pad(x, lo, hi, [0] * len(x.shape), value=fill)


def _recurrence(a: Any, b: Any, dim: int, step: int) -> Any:
    """s with s[i] = b[i] + a[i] s[i + step] and 0 beyond the end, by doubling: log2(size) passes."""
    reach = 1
    while reach < a.shape[dim]:
        b = b + a * _shift(b, dim, step * reach, 0.0)
        a = a * _shift(a, dim, step * reach, 0.0)
        reach *= 2
    return b


def _cumprod_vjp(ct: Any, out: Any, x: Any, dim: int, reverse: bool) -> tuple[Any]:
    """Element i gets (product before i) * s[i], where s[i] = ct[i] + x[i+1] s[i+1]."""
    step = -1 if reverse else 1
    before = _shift(out, dim, -step, 1.0)
    x, before = build.conj(x), build.conj(before)
    return (before * _recurrence(_shift(x, dim, step, 0.0), ct, dim, step),)


def _cumprod_jvp(tangents: Any, out: Any, x: Any, dim: int, reverse: bool) -> Any:
    """The tangent of element i is t[i] (product before i) + x[i] (tangent of element i-1)."""
    step = -1 if reverse else 1
    before = _shift(out, dim, -step, 1.0)
    return _recurrence(x, tangents[0] * before, dim, -step)


_scan("cumprod", "Running product along dim.", "mul", "cumprod", _cumprod_vjp, _cumprod_jvp)

# ***** running extremes, with where they are *****


def _running(name: str, doc: str, kind: str, better: Rule) -> None:
    def spec(x: Any, dim: int) -> list[Aval]:
        _check(name, x, dim, "buif")
        return [(x.shape, x.dtype), (x.shape, INT64)]

    def reference(x: Any, dim: int) -> tuple[Any, Any]:
        rows = np.moveaxis(x, dim, -1).copy()
        indices = np.zeros(rows.shape, dtype="int64")
        for i in range(1, rows.shape[-1]):
            new, kept = rows[..., i], rows[..., i - 1]
            take = np.isnan(new) | (~np.isnan(kept) & better(new, kept)) if x.dtype.kind == "f" else better(new, kept)
            rows[..., i] = np.where(take, new, kept)
            indices[..., i] = np.where(take, i, indices[..., i - 1])
        return np.moveaxis(rows, -1, dim), np.moveaxis(indices, -1, dim)

    def samples() -> Samples:
        for dtype in ("float64", "float32", "int64"):
            yield [any_dtype((3, 6), dtype)], {"dim": 1}
        yield [any_dtype((4, 2), "float64")], {"dim": 0}
        yield [np.array([1.0, 3.0, 3.0, np.nan, 2.0, np.nan], dtype="float32")], {"dim": 0}

    def vjp(ct: Any, out: Any, x: Any, dim: int) -> tuple[Any]:
        return (None if ct[0] is None else prim.scatter(build.zeros_like(x), out[1], ct[0], dim=dim, reduce="add"),)

    Primitive(
        name,
        doc,
        family="scan",
        spec=spec,
        reference=reference,
        lower=("scan", kind),
        multiple=True,
        samples=samples,
        vjp=vjp,
        jvp=lambda tangents, out, x, dim: (prim.gather(tangents[0], out[1], dim=dim), None),
        batch=lambda batched, x, dim: getattr(prim, name)(x, dim=dim + 1),
    )


_running(
    "cummax",
    "Running maximum and its index, the last among equals; NaN stays.",
    "argmax",
    lambda new, held: new >= held,
)
_running(
    "cummin",
    "Running minimum and its index, the last among equals; NaN stays.",
    "argmin",
    lambda new, held: new <= held,
)
