"""Reductions: several elements become one, and their dims are removed."""

from __future__ import annotations

from typing import Any

from rushlight._base.lazy import numpy as np
from rushlight._prims import build
from rushlight._prims.families import require
from rushlight._prims.record import Aval, Primitive, Rule, not_differentiable, prim
from rushlight._prims.samples import Samples, any_dtype, integers
from rushlight._prims.shapes.shape import inverse
from rushlight._types.dtype import BOOL, INT64
from rushlight._types.layout import numel

__all__: list[str] = []

Ints = tuple[int, ...]


def _reduced(name: str, shape: Ints, dims: Ints) -> Ints:
    if len(set(dims)) != len(dims) or any(not 0 <= d < len(shape) for d in dims):
        raise ValueError(f"prim.{name}: {dims} are not dims of {list(shape)}")
    return tuple(s for d, s in enumerate(shape) if d not in dims)


def _samples(dtypes: tuple[str, ...], empty: bool) -> Rule:
    def samples() -> Samples:
        for dtype in dtypes:
            for shape, dims in (((3, 4, 5), (1,)), ((3, 4, 5), (0, 2)), ((6,), (0,)), ((2, 3), ()), ((0, 3), (1,))):
                yield [any_dtype(shape, dtype)], {"dims": dims}
            if empty or dtype == "bool":
                yield [any_dtype((0, 3), dtype)], {"dims": (0,)}

    return samples


def _reduction(
    name: str,
    doc: str,
    reference: Rule,
    kinds: str,
    dtypes: tuple[str, ...],
    vjp: Any,
    jvp: Any,
    kind: str,
    identity: bool = True,
) -> None:
    """`identity`: whether reducing no elements gives a value in every dtype; bool always has one."""

    def spec(x: Any, dims: Ints) -> Aval:
        require(name, x, kinds)
        shape = _reduced(name, x.shape, dims)
        if not (identity or x.dtype is BOOL) and numel(x.shape) == 0 and numel(shape) != 0:
            raise ValueError(f"prim.{name} has no value for no elements: shape {list(x.shape)}, dims {dims}")
        return shape, x.dtype

    Primitive(
        name,
        doc,
        family="reduce",
        spec=spec,
        reference=reference,
        lower=("reduce", kind),
        samples=_samples(dtypes, identity),
        vjp=vjp,
        jvp=jvp,
        batch=lambda batched, x, dims: getattr(prim, name)(x, dims=tuple(d + 1 for d in dims)),
    )


def _wide(function: str) -> Rule:
    """Reduce in double precision, round once; integers wrap in their own dtype."""

    def reference(x: Any, dims: Ints) -> Any:
        if not dims:
            return x.copy()
        doubled = {"float32": "float64", "complex64": "complex128"}.get(x.dtype.name, x.dtype.name)
        return getattr(np, function)(x, axis=dims, dtype=doubled).astype(x.dtype)

    return reference


NUMBERS = ("float64", "float32", "complex128", "int64", "int32")
ORDERED = ("float64", "float32", "int64", "uint8", "bool")

# ***** sum and product *****

_reduction(
    "sum", "Sum; 0 for no elements.", _wide("sum"), "uifc", NUMBERS, kind="add",
    vjp=lambda ct, out, x, dims: (build.keep_dims(ct, x.shape, dims),),
    jvp=lambda tangents, out, x, dims: prim.sum(tangents[0], dims=dims),
)  # fmt: skip


def others_product(x: Any) -> Any:
    """For every element along the last dim, the product of all the others; correct where elements are 0."""
    size = x.shape[-1]
    whole = (0,) * (len(x.shape) - 1)

    def shifted(start: int) -> Any:
        stops = (*x.shape[:-1], size - 1 + start)
        part = prim.slice(x, starts=(*whole, start), stops=stops, steps=(1,) * len(x.shape))
        return build.pad(part, (*whole, 1 - start), (*whole, start), (0,) * len(x.shape), value=1)

    last = len(x.shape) - 1
    return prim.cumprod(shifted(0), dim=last, reverse=False) * prim.cumprod(shifted(1), dim=last, reverse=True)


def _prod_slope(x: Any, dims: Ints) -> Any:
    """d prod / dx, shaped like x."""
    if numel(x.shape) == 0:
        return build.zeros_like(x)
    perm = (*(d for d in range(len(x.shape)) if d not in dims), *dims)
    moved = build.transpose(x, perm)
    kept = len(perm) - len(dims)
    flat = build.reshape(moved, (*moved.shape[:kept], numel(moved.shape[kept:])))
    return build.transpose(build.reshape(others_product(flat), moved.shape), inverse(perm))


_reduction(
    "prod", "Product; 1 for no elements.", _wide("prod"), "uifc", NUMBERS, kind="mul",
    vjp=lambda ct, out, x, dims: (build.keep_dims(ct, x.shape, dims) * build.conj(_prod_slope(x, dims)),),
    jvp=lambda tangents, out, x, dims: prim.sum(tangents[0] * _prod_slope(x, dims), dims=dims),
)  # fmt: skip

# ***** extremes: ties share the gradient evenly; of bool they are "any" and "all" *****


def _extreme(function: str, of_none: bool) -> Rule:
    """`of_none`: the bool result for no elements."""

    def reference(x: Any, dims: Ints) -> Any:
        return getattr(np, function)(x, axis=dims, **({"initial": of_none} if x.dtype == bool else {}))

    return reference


def _ties(out: Any, x: Any, dims: Ints) -> tuple[Any, Any]:
    """A mask of the elements equal to the extreme, and their number."""
    mask = prim.eq(x, build.keep_dims(out, x.shape, dims))
    return mask, prim.sum(build.convert(mask, x.dtype), dims=dims)


def _extreme_vjp(ct: Any, out: Any, x: Any, dims: Ints) -> tuple[Any]:
    mask, count = _ties(out, x, dims)
    # If the extreme is NaN no element equals it: 0 / count makes the gradient NaN there, as in PyTorch.
    share, rest = (build.keep_dims(part / count, x.shape, dims) for part in (ct, build.zeros_like(ct)))
    return (prim.select(mask, share, rest),)


def _extreme_jvp(tangents: Any, out: Any, x: Any, dims: Ints) -> Any:
    mask, count = _ties(out, x, dims)
    return prim.sum(build.select(mask, tangents[0], build.zeros_like(x)), dims=dims) / count


_reduction(
    "amax", "The greatest element; NaN if there is one.  Of bool: whether any is true, False for no elements.", _extreme("max", False),
    "buif", ORDERED, _extreme_vjp, _extreme_jvp, "max", identity=False,
)  # fmt: skip
_reduction(
    "amin", "The least element; NaN if there is one.  Of bool: whether all are true, True for no elements.", _extreme("min", True),
    "buif", ORDERED, _extreme_vjp, _extreme_jvp, "min", identity=False,
)  # fmt: skip

# ***** where the extreme is *****


def _position(name: str, doc: str, kind: str) -> None:
    def spec(x: Any, dim: int) -> Aval:
        require(name, x, "buif")
        shape = _reduced(name, x.shape, (dim,))
        if x.shape[dim] == 0 and numel(shape) != 0:
            raise ValueError(f"prim.{name} has no value for no elements: shape {list(x.shape)}, dim {dim}")
        return shape, INT64

    def samples() -> Samples:
        for dtype in ORDERED:
            yield [any_dtype((3, 7), dtype)], {"dim": 1}
            yield [any_dtype((3, 7), dtype)], {"dim": 0}
        yield [np.array([1.0, 3.0, 3.0, np.nan, 2.0, np.nan])], {"dim": 0}
        yield [integers((0, 3))], {"dim": 1}

    Primitive(
        name, doc, family="reduce", spec=spec, lower=("argreduce", kind), samples=samples,
        reference=lambda x, dim: getattr(np, name)(x, axis=dim).astype("int64"),
        vjp=not_differentiable("its result is an index"), jvp=not_differentiable("its result is an index"),
        batch=lambda batched, x, dim: getattr(prim, name)(x, dim=dim + 1),
    )  # fmt: skip


_position("argmax", "Index of the greatest element, the first among equals; the first NaN if there is one.", "max")
_position("argmin", "Index of the least element, the first among equals; the first NaN if there is one.", "min")
