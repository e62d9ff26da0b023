"""Reading and writing at indices that are data.  Negative indices count from the end; IndexError (at run time) out of
range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import lift, require, size_of_batch
from rushlight._prims.record import Aval, Primitive, prim
from rushlight._prims.samples import Samples, floats, integers
from rushlight._types.dtype import INT64
from rushlight._types.layout import BELOW_ALL

__all__: list[str] = []

Ints = tuple[int, ...]


# ***** shared checks *****


def _check_index(name: str, *indices: Any) -> None:
    for index in indices:
        if index.dtype is not INT64:
            raise TypeError(f"prim.{name} takes int64 indices, got {index.dtype.name}")
        if index.shape != indices[0].shape:
            raise ValueError(
                f"prim.{name} takes indices of one shape, got {list(indices[0].shape)} and {list(index.shape)}"
            )


def _check_along(name: str, x: Any, index: Any, dim: int) -> None:
    _check_index(name, index)
    if len(index.shape) != len(x.shape) or not 0 <= dim < len(x.shape):
        raise ValueError(f"prim.{name}: index {list(index.shape)} does not go with {list(x.shape)} and dim {dim}")
    if any(n > size for d, (n, size) in enumerate(zip(index.shape, x.shape, strict=True)) if d != dim):
        raise ValueError(f"prim.{name}: index {list(index.shape)} is larger than {list(x.shape)} apart from dim {dim}")


def _check_room(index: Any, size: int, dim: int) -> None:
    """IndexError for a read of an empty dim: a kernel may read an element that many indices share before it checks
    them."""
    if not size and 0 not in index.shape:
        raise IndexError(f"index 0 is out of bounds for dimension {dim} with size 0")


def _wrapped(index: Any, size: int, dim: int) -> Any:
    """The index with negatives wrapped; IndexError names the first that is out of range."""
    bad = (index < -size) | (index >= size)
    if np.any(bad):
        first = int(index[bad].flat[0])
        raise IndexError(
            f"index {first + BELOW_ALL if first < -BELOW_ALL // 2 else first} is out of bounds for dimension {dim} with size {size}"
        )
    return np.where(index < 0, index + size, index)


def _elements(x: Any, index: Any, dim: int) -> tuple[Any, ...]:
    """NumPy indices of the elements that `gather` reads and `scatter` writes."""
    where = list(np.indices(index.shape))
    where[dim] = _wrapped(index, x.shape[dim], dim)
    return tuple(where)


# ***** gather *****


def _gather_spec(x: Any, index: Any, dim: int) -> Aval:
    _check_along("gather", x, index, dim)
    _check_room(index, x.shape[dim], dim)
    return index.shape, x.dtype


def _gather_vjp(ct: Any, out: Any, x: Any, index: Any, dim: int) -> tuple[Any, None]:
    return build.in_single(
        lambda g: prim.scatter(build.full(x.shape, 0, g.dtype), index, g, dim=dim, reduce="add"), ct
    ), None


def _gather_samples() -> Samples:
    yield [floats((4, 5)), integers((3, 5), low=-4, high=4)], {"dim": 0}
    yield [floats((4, 5)), integers((2, 7), low=0, high=5)], {"dim": 1}
    yield [floats((4,), dtype="float32"), integers((6,), low=-4, high=4)], {"dim": 0}
    yield [integers((4, 5)), integers((0, 5), low=0, high=4)], {"dim": 0}


Primitive(
    "gather", "out[i, j] = x[index[i, j], j] (for dim 0); the result has the index's shape.", family="indexed", spec=_gather_spec,
    reference=lambda x, index, dim: x[_elements(x, index, dim)], lower=("gather",), samples=_gather_samples, vjp=_gather_vjp,
    jvp=lambda tangents, out, x, index, dim: prim.gather(tangents[0], index, dim=dim) if tangents[0] is not None else None,
    batch=lambda batched, x, index, dim: prim.gather(*lift(batched, (x, index)), dim=dim + 1),
)  # fmt: skip

# ***** scatter *****

REDUCES = ("set", "add", "mul", "amax", "amin")


def _scatter_spec(x: Any, index: Any, src: Any, dim: int, reduce: str) -> Aval:
    _check_along("scatter", x, index, dim)
    if reduce not in REDUCES:
        raise ValueError(f"prim.scatter: reduce is one of {', '.join(REDUCES)}, got {reduce!r}")
    require(
        "scatter",
        x,
        "buifc" if reduce == "set" else "uif" if reduce in ("amax", "amin") else "uifc",
        half=reduce == "set",
    )
    if src.dtype is not x.dtype or src.shape != index.shape:
        raise ValueError(
            f"prim.scatter: src is {src.dtype.name}{list(src.shape)}, needs {x.dtype.name}{list(index.shape)}"
        )
    return x.shape, x.dtype


def _scatter(x: Any, index: Any, src: Any, dim: int, reduce: str) -> Any:
    result = x.astype({"float32": "float64", "complex64": "complex128"}.get(x.dtype.name, x.dtype.name))
    where = _elements(x, index, dim)
    if reduce == "set":
        result[where] = src
    else:
        {"add": np.add, "mul": np.multiply, "amax": np.maximum, "amin": np.minimum}[reduce].at(result, where, src)
    return result.astype(x.dtype)


def _scatter_vjp(ct: Any, out: Any, x: Any, index: Any, src: Any, dim: int, reduce: str) -> tuple[Any, None, Any]:
    def read(values: Any) -> Any:
        return prim.gather(values, index, dim=dim)

    if reduce == "set":
        return prim.scatter(ct, index, build.zeros_like(src), dim=dim, reduce="set"), None, read(ct)
    if reduce == "add":
        return ct, None, read(ct)
    if reduce == "mul":
        return _scatter_mul_vjp(ct, x, index, src, dim)
    # extremes: the elements equal to the result share its gradient evenly, NaN counts as equal to NaN
    found = read(out)
    ones = build.convert(prim.eq(src, found) | (prim.ne(src, src) & prim.ne(found, found)), x.dtype)
    mine = build.convert(prim.eq(x, out) | (prim.ne(x, x) & prim.ne(out, out)), x.dtype)
    share = ct / prim.scatter(mine, index, ones, dim=dim, reduce="add")
    return mine * share, None, ones * read(share)


def _scatter_mul_vjp(ct: Any, x: Any, index: Any, src: Any, dim: int) -> tuple[Any, None, Any]:
    """The gradient of each factor is the product of the others at its index, from the product without zeros and the
    count of zeros."""
    ones, zeros = build.full_like(x, 1), build.zeros_like(x)
    zero = build.eq(src, 0)
    count = prim.scatter(zeros, index, build.convert(zero, x.dtype), dim=dim, reduce="add")
    rest = prim.scatter(ones, index, build.select(zero, build.full_like(src, 1), src), dim=dim, reduce="mul")
    product = build.select(build.eq(count, 0), rest, zeros)
    here, others = prim.gather(count, index, dim=dim), prim.gather(rest * x, index, dim=dim)
    nothing = build.zeros_like(src)
    alone = build.select(build.eq(here, 1), others, nothing)
    factor = build.select(zero, alone, build.select(build.eq(here, 0), others / src, nothing))
    return ct * build.conj(product), None, prim.gather(ct, index, dim=dim) * build.conj(factor)


def _scatter_jvp(tangents: Any, out: Any, x: Any, index: Any, src: Any, dim: int, reduce: str) -> Any:
    tx, _, ts = tangents
    if tx is None and ts is None:
        return None
    tx = build.zeros_like(x) if tx is None else tx
    ts = build.zeros_like(src) if ts is None else ts
    if reduce in ("set", "add"):
        return prim.scatter(tx, index, ts, dim=dim, reduce=reduce)
    # The result is a real-linear function of the tangents whose transpose is the vjp, element by element: its
    # coefficients are the slopes.
    one = build.full_like(out, 1)
    slope_x, _, slope_src = _scatter_vjp(one, out, x, index, src, dim, reduce)
    return prim.scatter(tx * build.conj(slope_x), index, ts * build.conj(slope_src), dim=dim, reduce="add")


def _scatter_samples() -> Samples:
    for reduce in REDUCES:
        index = np.array([[0, 2, 1, 0, 3], [1, -1, 3, 2, 0]])  # no index twice, so that "set" has a derivative
        yield [floats((4, 5), 1, 0.5), index, floats((2, 5), 2, 0.5)], {"dim": 0, "reduce": reduce}
        if reduce != "set":
            yield (
                [floats((3, 4), 1, 0.5), integers((3, 7), 3, -4, 4), floats((3, 7), 2, 0.5)],
                {"dim": 1, "reduce": reduce},
            )
            yield [integers((4,), 1), integers((9,), 3, 0, 4), integers((9,), 2)], {"dim": 0, "reduce": reduce}
    yield (
        [floats((4,), dtype="float32"), integers((0,), low=0), floats((0,), dtype="float32")],
        {"dim": 0, "reduce": "add"},
    )


def _scatter_batch(batched: Sequence[bool], x: Any, index: Any, src: Any, dim: int, reduce: str) -> Any:
    return prim.scatter(*lift(batched, (x, index, src)), dim=dim + 1, reduce=reduce)


Primitive(
    "scatter", "x with src written at the indices that `gather` would read: set (the last one stays), add, mul, amax or amin; in "
    "row-major order of src.",
    family="indexed", spec=_scatter_spec, reference=_scatter, lower=("scatter",), samples=_scatter_samples, vjp=_scatter_vjp,
    jvp=_scatter_jvp, batch=_scatter_batch,
)  # fmt: skip

# ***** index *****


def _index_spec(x: Any, *indices: Any) -> Aval:
    _check_index("index", *indices)
    if not 1 <= len(indices) <= len(x.shape):
        raise ValueError(f"prim.index takes 1 to {len(x.shape)} indices for {list(x.shape)}, got {len(indices)}")
    for d, index in enumerate(indices):
        _check_room(index, x.shape[d], d)
    return (*indices[0].shape, *x.shape[len(indices) :]), x.dtype


def _index(x: Any, *indices: Any) -> Any:
    return x[tuple(_wrapped(index, size, d) for d, (index, size) in enumerate(zip(indices, x.shape, strict=False)))]


def _index_vjp(ct: Any, out: Any, x: Any, *indices: Any) -> tuple[Any, ...]:
    grad = build.in_single(lambda g: prim.index_put(build.full(x.shape, 0, g.dtype), g, *indices, accumulate=True), ct)
    return (grad, *(None for _ in indices))


def _index_samples() -> Samples:
    yield [floats((4, 5)), integers((3, 2), low=-4, high=4)], {}
    yield [floats((4, 5, 2)), integers((6,), 1, -4, 4), integers((6,), 2, 0, 5)], {}
    yield [floats((4,), dtype="float32"), integers((), low=0, high=4)], {}
    yield [integers((4, 5)), integers((0,), low=0, high=4)], {}


def _leading(size: int, shape: Ints) -> Any:
    """The index of each batch item, shaped as a further index."""
    return prim.iota(shape=(size, *shape), dim=0, dtype=INT64)


def _index_batch(batched: Sequence[bool], x: Any, *indices: Any) -> Any:
    if not batched[0]:
        return prim.index(x, *lift(batched[1:], indices))
    if not any(batched[1:]):  # carry the batch behind the indexed dims and bring it back
        k, ndim = len(indices), len(x.shape)
        out = prim.index(build.transpose(x, (*range(1, k + 1), 0, *range(k + 1, ndim))), *indices)
        at = len(indices[0].shape)
        return build.transpose(out, (at, *range(at), *range(at + 1, len(out.shape))))
    size = size_of_batch(batched, (x, *indices))
    shape = next(i.shape[1:] for flag, i in zip(batched[1:], indices, strict=True) if flag)
    full = lift((True, *batched[1:]), (x, *indices))[1:]
    return prim.index(x, _leading(size, shape), *full)


Primitive(
    "index", "k indices of one shape read the k leading dims of x: out[i] = x[index_0[i], index_1[i], ...].", family="indexed",
    spec=_index_spec, reference=_index, lower=("index_read",), samples=_index_samples, vjp=_index_vjp, batch=_index_batch,
    jvp=lambda tangents, out, x, *indices: prim.index(tangents[0], *indices) if tangents[0] is not None else None,
)  # fmt: skip

# ***** index_put *****


def _index_put_spec(x: Any, values: Any, *indices: Any, accumulate: bool) -> Aval:
    shape, dtype = _index_spec(x, *indices)
    require("index_put", x, "uifc" if accumulate else "buifc", half=not accumulate)
    if values.dtype is not dtype or values.shape != shape:
        raise ValueError(
            f"prim.index_put: values are {values.dtype.name}{list(values.shape)}, need {dtype.name}{list(shape)}"
        )
    return x.shape, x.dtype


def _index_put(x: Any, values: Any, *indices: Any, accumulate: bool) -> Any:
    where = tuple(_wrapped(index, size, d) for d, (index, size) in enumerate(zip(indices, x.shape, strict=False)))
    result = x.astype(
        {"float32": "float64", "complex64": "complex128"}.get(x.dtype.name, x.dtype.name) if accumulate else x.dtype
    )
    if accumulate:
        np.add.at(result, where, values)
    else:
        result[where] = values
    return result.astype(x.dtype)


def _index_put_vjp(ct: Any, out: Any, x: Any, values: Any, *indices: Any, accumulate: bool) -> tuple[Any, ...]:
    kept = ct if accumulate else prim.index_put(ct, build.zeros_like(values), *indices, accumulate=False)
    return (kept, prim.index(ct, *indices), *(None for _ in indices))


def _index_put_jvp(tangents: Any, out: Any, x: Any, values: Any, *indices: Any, accumulate: bool) -> Any:
    tx, tv = tangents[:2]
    if tx is None and tv is None:
        return None
    tx = build.zeros_like(x) if tx is None else tx
    tv = build.zeros_like(values) if tv is None else tv
    return prim.index_put(tx, tv, *indices, accumulate=accumulate)


def _index_put_batch(batched: Sequence[bool], *operands: Any, accumulate: bool) -> Any:
    size = size_of_batch(batched, operands)
    x, values, *indices = lift(batched, operands)
    return prim.index_put(x, values, _leading(size, indices[0].shape[1:]), *indices, accumulate=accumulate)


def _index_put_samples() -> Samples:
    index = np.array([2, -4, 3])  # no index twice, so that writing without accumulation has a derivative
    yield [floats((4, 5), 1), floats((3, 5), 2), index], {"accumulate": False}
    yield [floats((4, 5), 1), floats((3,), 2), index, np.array([4, 0, 1])], {"accumulate": False}
    yield [floats((4, 5), 1), floats((9, 5), 2), integers((9,), 3, -4, 4)], {"accumulate": True}
    yield [integers((4,), 1), integers((9,), 2), integers((9,), 3, -4, 4)], {"accumulate": True}
    yield (
        [floats((4, 2), 1, dtype="float32"), floats((0, 2), 2, dtype="float32"), integers((0,), 3)],
        {"accumulate": True},
    )


Primitive(
    "index_put", "x with values written (added, where `accumulate`) at the indices that `index` would read, in row-major order; "
    "without `accumulate` the last one stays.",
    family="indexed", spec=_index_put_spec, reference=_index_put, lower=("index_write",), samples=_index_put_samples,
    vjp=_index_put_vjp, jvp=_index_put_jvp, batch=_index_put_batch,
)  # fmt: skip
