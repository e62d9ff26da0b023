"""Sorting.  NaN counts as greater than every number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, any_dtype, floats
from rushlight._prims.shapes.selection import first, hoare
from rushlight._types.dtype import INT64

__all__: list[str] = []


def _check(name: str, x: Any, dim: int) -> None:
    require(name, x, "buif")
    if not 0 <= dim < len(x.shape):
        raise ValueError(f"prim.{name}: {dim} is not a dim of {list(x.shape)}")


def _order(x: Any, dim: int, descending: bool) -> Any:
    """Indices that sort x stably."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable").astype("int64")
    reversed_order = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return (x.shape[dim] - 1 - np.flip(reversed_order, dim)).astype("int64")


def _back(ct: Any, out: Any, x: Any, dim: int) -> tuple[Any]:
    """Scatter every value to its index before the sort."""
    return (None if ct[0] is None else prim.scatter(build.zeros_like(x), out[1], ct[0], dim=dim, reduce="set"),)


# ***** sort *****


def _sort_spec(x: Any, dim: int, descending: bool, stable: bool) -> list[Aval]:
    _check("sort", x, dim)
    return [(x.shape, x.dtype), (x.shape, INT64)]


def _sort(x: Any, dim: int, descending: bool, stable: bool) -> tuple[Any, Any]:
    order = _order(x, dim, descending)
    return np.take_along_axis(x, order, dim), order


def _sort_samples() -> Samples:
    for dtype in ("float64", "float32", "int64", "uint8", "bool"):
        for descending in (False, True):
            yield [any_dtype((3, 7), dtype)], {"dim": 1, "descending": descending, "stable": True}
    yield [floats((5, 2))], {"dim": 0, "descending": False, "stable": False}
    yield [np.array([2.0, np.nan, -np.inf, 1.0, np.nan, np.inf])], {"dim": 0, "descending": True, "stable": True}
    yield [floats((0,))], {"dim": 0, "descending": False, "stable": True}


Primitive(
    "sort", "Values in order along dim, and where they came from; `stable` keeps the order of equals.", family="heavy",
    spec=_sort_spec, reference=_sort, lower=("extern", "sort"), multiple=True, samples=_sort_samples,
    vjp=lambda ct, out, x, dim, descending, stable: _back(ct, out, x, dim),
    jvp=lambda tangents, out, x, dim, descending, stable: (prim.gather(tangents[0], out[1], dim=dim), None),
    batch=lambda batched, x, dim, **p: prim.sort(x, dim=dim + 1, **p),
)  # fmt: skip

# ***** topk *****


def _topk_spec(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> list[Aval]:
    _check("topk", x, dim)
    if not 0 <= k <= x.shape[dim]:
        raise ValueError(f"prim.topk: k={k} is out of range for dim {dim} of {list(x.shape)}")
    shape = (*x.shape[:dim], k, *x.shape[dim + 1 :])
    return [(shape, x.dtype), (shape, INT64)]


def _picked(x: Any, dim: int, largest: bool, selector: Callable[[Any], list[int]]) -> tuple[Any, Any]:
    """Values and indices along dim that `selector` selects from a row of (key, index); keys order as PyTorch does, NaN
    above all."""

    def of(row: Any) -> Any:
        rank = np.unique(row, return_inverse=True)[1].tolist()  # equal values share a rank, and so do NaNs
        return np.array(selector([(-k if largest else k, i) for i, k in enumerate(rank)]), "int64")

    indices = np.apply_along_axis(of, dim, x).astype("int64")
    return np.take_along_axis(x, indices, dim), indices


def _topk(x: Any, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Any, Any]:
    if not k or not x.size:
        none = np.zeros((*x.shape[:dim], k, *x.shape[dim + 1 :]), "int64")
        return none.astype(x.dtype), none
    return _picked(x, dim, largest, lambda row: first(row, k, sorted))


def _topk_samples() -> Samples:
    for dtype in ("float64", "float32", "int64"):
        for largest in (True, False):
            yield [any_dtype((3, 7), dtype)], {"k": 3, "dim": 1, "largest": largest, "sorted": True}
    yield [floats((5, 2))], {"k": 5, "dim": 0, "largest": True, "sorted": True}
    yield [floats((5,))], {"k": 0, "dim": 0, "largest": True, "sorted": True}
    equals = (np.arange(200) * 7919 % 31 % 5).reshape(2, 100)
    for k in (1, 3, 40):
        yield [equals], {"k": k, "dim": 1, "largest": k < 40, "sorted": k > 1}
    yield [np.array([2.0, np.nan, -np.inf, 1.0, np.nan, 1.0])], {"k": 4, "dim": 0, "largest": True, "sorted": True}


Primitive(
    "topk", "The k greatest (or least) along dim and where they are, best first if `sorted`; of equals those that the GNU library's algorithms take.",
    family="heavy", spec=_topk_spec, reference=_topk, lower=("extern", "topk"), multiple=True, samples=_topk_samples,
    vjp=lambda ct, out, x, dim, **p: _back(ct, out, x, dim),
    jvp=lambda tangents, out, x, dim, **p: (prim.gather(tangents[0], out[1], dim=dim), None),
    batch=lambda batched, x, k, dim, **p: prim.topk(x, k=k, dim=dim + 1, **p),
)  # fmt: skip

# ***** kth *****


def _kth_spec(x: Any, rank: int, dim: int, ties: str) -> list[Aval]:
    _check("kth", x, dim)
    if not 0 <= rank < x.shape[dim]:
        raise ValueError(f"prim.kth: rank={rank} is out of range for dim {dim} of {list(x.shape)}")
    if ties not in ("order", "hoare"):
        raise ValueError(f"prim.kth: ties={ties!r} is neither 'order' nor 'hoare'")
    shape = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    return [(shape, x.dtype), (shape, INT64)]


def _kth(x: Any, rank: int, dim: int, ties: str) -> tuple[Any, Any]:
    if not x.size:
        none = np.zeros((*x.shape[:dim], 1, *x.shape[dim + 1 :]), "int64")
        return none.astype(x.dtype), none
    return _picked(x, dim, False, lambda row: [hoare(row, rank) if ties == "hoare" else sorted(row)[rank][1]])


def _kth_samples() -> Samples:
    for dtype in ("float64", "float32", "int64"):
        for rank in (0, 3, 6):
            yield [any_dtype((3, 7), dtype)], {"rank": rank, "dim": 1, "ties": "hoare" if rank < 6 else "order"}
    yield [floats((5, 2))], {"rank": 4, "dim": 0, "ties": "hoare"}
    for ties in ("order", "hoare"):
        yield [(np.arange(120) * 7919 % 31 % 5).reshape(2, 60)], {"rank": 25, "dim": 1, "ties": ties}
        yield [np.array([2.0, np.nan, -np.inf, 1.0, np.nan, 1.0])], {"rank": 4, "dim": 0, "ties": ties}


Primitive(
    "kth", "The value of a rank (from 0) along dim and its index; of equal elements the one there in their order (`ties`: order), or where Hoare's selection ends.",
    family="heavy", spec=_kth_spec, reference=_kth, lower=("extern", "kth"), multiple=True, samples=_kth_samples,
    vjp=lambda ct, out, x, dim, **p: _back(ct, out, x, dim),
    jvp=lambda tangents, out, x, dim, **p: (prim.gather(tangents[0], out[1], dim=dim), None),
    batch=lambda batched, x, rank, dim, ties: prim.kth(x, rank=rank, dim=dim + 1, ties=ties),
)  # fmt: skip
