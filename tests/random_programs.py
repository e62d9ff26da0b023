"""Random programs over the primitives: for tests that compare two ways of computing the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rushlight._graph.core import Graph, GraphBuilder, Value
from rushlight._prims import build, prim
from rushlight._types.dtype import FLOAT64, INT64, DType
from rushlight._types.layout import numel

Step = Callable[["Writer"], Any]


class Writer:
    """Writes one program: `values` holds what there is to choose from, all of one float dtype."""

    def __init__(self, seed: int, dtype: DType = FLOAT64) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.builder = GraphBuilder()
        self.values: list[Value] = []

    def pick(self, fits: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """One of the values that fit, later ones more often."""
        found = [v for v in self.values if fits(v)]
        return found[min(int(self.rng.triangular(0, len(found), len(found))), len(found) - 1)] if found else None

    def below(self, n: int) -> int:
        return int(self.rng.integers(n))

    def dims(self, ndim: int) -> tuple[int, ...]:
        """Some dims, at least one."""
        chosen = [d for d in range(ndim) if self.rng.random() < 0.5]
        return tuple(chosen or [self.below(ndim)])


def unary(w: Writer) -> Any:
    name = w.rng.choice(["sin", "tanh", "erf", "neg", "abs", "atan", "exp", "sqrt", "log1p", "floor", "sign"])
    x = w.pick()
    if name == "exp":
        return prim.exp(prim.tanh(x))
    if name in ("sqrt", "log1p"):
        return getattr(prim, name)(x * x + 0.5)
    return getattr(prim, name)(x)


def binary(w: Writer) -> Any:
    a = w.pick()
    b = w.pick(lambda v: v.shape == a.shape)
    name = w.rng.choice(["add", "sub", "mul", "maximum", "minimum", "div", "select"])
    if name == "div":
        return a / (b * b + 1.0)
    if name == "select":
        return build.select(a > b, a * 0.5, b)
    return getattr(prim, name)(a, b)


def bounded(w: Writer) -> Any:
    return prim.tanh(w.pick() * 0.3)


def reduction(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim > 0 and 0 not in v.shape)
    if x is None:
        return None
    name, dims = w.rng.choice(["sum", "amax", "amin", "prod", "mean"]), w.dims(x.ndim)
    if name == "mean":
        small = prim.sum(x, dims=dims) / float(numel([x.shape[d] for d in dims]))
    else:
        small = getattr(prim, name)(prim.sin(x) if name == "prod" else x, dims=dims)
    if w.rng.random() < 0.6:
        w.values.append(small)
        return x - build.keep_dims(small, x.shape, dims)
    return small


def scan(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim > 0)
    if x is None:
        return None
    dim, kind = w.below(x.ndim), w.rng.choice(["cumsum", "cumprod", "cummax"])
    if kind == "cummax":
        return prim.cummax(x, dim=dim)[0]
    return getattr(prim, kind)(prim.sin(x), dim=dim, reverse=bool(w.below(2)))


def moved(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim > 0)
    if x is None:
        return None
    kind = w.rng.choice(["transpose", "flip", "slice", "pad", "reshape", "broadcast", "cat", "window"])
    if kind == "transpose":
        return prim.transpose(x, perm=tuple(int(d) for d in w.rng.permutation(x.ndim)))
    if kind == "flip":
        return prim.flip(x, dims=w.dims(x.ndim))
    if kind == "slice":
        starts = tuple(w.below(s) if s > 1 else 0 for s in x.shape)
        steps = tuple(1 + w.below(2) for _ in x.shape)
        return prim.slice(x, starts=starts, stops=x.shape, steps=steps)
    if kind == "pad":
        lo, hi, interior = ([w.below(2) for _ in x.shape] for _ in range(3))
        return prim.pad(x, value=float(w.below(3)), lo=tuple(lo), hi=tuple(hi), interior=tuple(interior))
    if kind == "reshape":
        cut = w.below(x.ndim + 1)
        return build.reshape(x, [numel(x.shape[:cut]), numel(x.shape[cut:])])
    if kind == "broadcast" and x.ndim < 4:
        return prim.broadcast(x, shape=(2 + w.below(2), *x.shape), dims=tuple(range(1, x.ndim + 1)))
    if kind == "cat":
        return prim.cat(x, prim.flip(x, dims=(0,)), dim=w.below(x.ndim))
    if kind == "window" and x.ndim < 4:
        dim = w.below(x.ndim)
        size = 1 + w.below(min(x.shape[dim], 3)) if x.shape[dim] else 0
        if size:
            return prim.window(x, dims=(dim,), size=(size,), stride=(1 + w.below(2),), dilation=(1,))
    return None


def indexed(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim > 0 and 0 not in v.shape)
    if x is None:
        return None
    dim = w.below(x.ndim)
    size = x.shape[dim]
    places = prim.iota(shape=x.shape, dim=dim, dtype=INT64) * (1 + w.below(3))
    places = prim.rem_trunc(places, build.full(x.shape, size, INT64))
    kind = w.rng.choice(["gather", "scatter", "index"])
    if kind == "gather":
        return prim.gather(x, places, dim=dim)
    if kind == "scatter":
        return prim.scatter(x, places, x * 0.5, dim=dim, reduce=str(w.rng.choice(["add", "amax"])))
    order = prim.rem_trunc(prim.iota(shape=(4,), dim=0, dtype=INT64) * 2, build.full((4,), x.shape[0], INT64))
    return prim.index(x, order)


def product(w: Writer) -> Any:
    x = w.pick(lambda v: v.ndim == 2 and 0 not in v.shape)
    return None if x is None else build.dot(prim.sin(x), prim.transpose(x, perm=(1, 0)))


STEPS: tuple[tuple[Step, float], ...] = (
    (unary, 3), (binary, 4), (bounded, 1), (reduction, 2), (moved, 4), (scan, 0.7), (indexed, 0.7), (product, 0.3),
)  # fmt: skip


def random_program(
    seed: int, length: int = 8, dtype: DType = FLOAT64, large: int = 2000
) -> tuple[Graph, list[np.ndarray]]:
    """A graph and arrays for its inputs.  The same seed gives the same program."""
    w = Writer(seed, dtype)
    shapes = [tuple(int(s) for s in w.rng.integers(1, 6, size=w.below(4)))]
    shapes += [shapes[0] if w.rng.random() < 0.5 else shapes[0][::-1]]
    w.values = [w.builder.input(s, dtype) for s in shapes]
    arrays = [np.asarray(w.rng.normal(size=s)).astype(dtype.name) for s in shapes]
    weights = np.array([weight for _, weight in STEPS])
    with w.builder:
        while len(w.values) < length + 2:
            step = STEPS[int(w.rng.choice(len(STEPS), p=weights / weights.sum()))][0]
            made = step(w)
            if made is not None and numel(made.shape) <= large and made.ndim <= 5:
                w.values.append(made)
        outputs = [w.values[-1], *(w.values[-2:-1] if w.below(2) else [])]
    return w.builder.finish(outputs), arrays
