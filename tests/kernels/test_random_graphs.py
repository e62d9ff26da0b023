"""Random graphs of primitives on generated kernels against the reference, over layouts, in-place outputs and vector widths."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.kernels.kernel_harness import Ran, compare

from rushlight._backends.reference import run as run_reference
from rushlight._graph.core import GraphBuilder
from rushlight._prims import build, prim
from rushlight._types.dtype import BOOL, FLOAT32, FLOAT64, INT64
from rushlight._types.layout import numel

SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64)
UNARY = ("neg", "abs", "tanh", "sin", "sign", "floor")
BINARY = ("add", "sub", "mul", "maximum", "minimum")


class RandomGraph:
    """Grows a graph over a pool of values of one float dtype."""

    def __init__(self, seed: int, dtype) -> None:
        self.random, self.dtype = random.Random(seed), dtype
        self.numpy = np.random.default_rng(seed)
        self.builder = GraphBuilder()
        self.arrays: list[np.ndarray] = []
        self.pool = []
        for _ in range(self.random.randint(1, 3)):
            self.add_input(tuple(self.random.choice(SIZES) for _ in range(self.random.randint(0, 3))))

    def add_input(self, shape):
        array = self.numpy.standard_normal(shape).astype(self.dtype.numpy_name)
        if len(shape) >= 2 and self.random.random() < 0.4:
            array = np.ascontiguousarray(array.T).T
        if shape and self.random.random() < 0.2:
            wide = self.numpy.standard_normal((*shape[:-1], shape[-1] * 2)).astype(self.dtype.numpy_name)
            array = wide[..., ::2]
        self.arrays.append(array)
        value = self.builder.input(shape, self.dtype)
        self.pool.append(value)
        return value

    def grow(self, steps: int):
        with self.builder:
            for _ in range(steps):
                rule = self.random.choice(RULES)
                made = rule(self, self.random.choice(self.pool[-6:]))
                if made is not None and numel(made.shape) <= 200_000:
                    self.pool.append(made)
        count = self.random.randint(1, 3)
        outputs = [self.pool[-1], *self.random.sample(self.pool, min(count - 1, len(self.pool)))]
        return self.builder.finish(outputs)


def unary(g, x):
    return getattr(prim, g.random.choice(UNARY))(x)


def binary(g, x):
    y = g.random.choice(g.pool)
    if y.shape != x.shape:
        try:
            return build.binary(g.random.choice(BINARY), x, y)
        except RuntimeError:
            y = x
    return getattr(prim, g.random.choice(BINARY))(x, y)


def compare_select(g, x):
    return prim.select(prim.lt(x, prim.neg(x)), prim.abs(x), x)


def transpose(g, x):
    perm = list(range(len(x.shape)))
    g.random.shuffle(perm)
    return build.transpose(x, perm)


def reshape(g, x):
    total = numel(x.shape)
    factors = [f for f in (2, 3, 4, 5, 8, 16) if total % f == 0]
    if not factors:
        return build.reshape(x, (total,))
    f = g.random.choice(factors)
    return build.reshape(x, g.random.choice([(f, total // f), (total // f, f), (1, total), (total,)]))


def slices(g, x):
    if not x.shape:
        return None
    starts = [g.random.randint(0, s // 2) for s in x.shape]
    steps = [g.random.choice((1, 1, 2)) for _ in x.shape]
    return prim.slice(x, starts=tuple(starts), stops=x.shape, steps=tuple(steps))


def pad(g, x):
    if not x.shape:
        return None
    pick = lambda: tuple(g.random.choice((0, 0, 1, 2)) for _ in x.shape)
    return prim.pad(x, value=0.5, lo=pick(), hi=pick(), interior=pick())


def flip(g, x):
    return prim.flip(x, dims=(g.random.randrange(len(x.shape)),)) if x.shape else None


def cat(g, x):
    if not x.shape:
        return None
    return prim.cat(x, prim.neg(x), x, dim=g.random.randrange(len(x.shape)))


def reduce(g, x):
    if not x.shape:
        return None
    dims = tuple(sorted(g.random.sample(range(len(x.shape)), g.random.randint(1, len(x.shape)))))
    made = getattr(prim, g.random.choice(("sum", "amax", "amin")))(x, dims=dims)
    return build.keep_dims(made, x.shape, dims) if g.random.random() < 0.5 else made


def softmax(g, x):
    if not x.shape:
        return None
    dims = (g.random.randrange(len(x.shape)),)
    e = prim.exp(x - build.keep_dims(prim.amax(x, dims=dims), x.shape, dims))
    return e / build.keep_dims(prim.sum(e, dims=dims), x.shape, dims)


def scan(g, x):
    return prim.cumsum(x, dim=g.random.randrange(len(x.shape)), reverse=g.random.random() < 0.5) if x.shape else None


def arg(g, x):
    if not x.shape:
        return None
    return build.convert(
        getattr(prim, g.random.choice(("argmax", "argmin")))(x, dim=g.random.randrange(len(x.shape))), g.dtype
    )


def gather(g, x):
    if not x.shape:
        return None
    dim = g.random.randrange(len(x.shape))
    return prim.gather(x, _places(g, x, dim), dim=dim)


def _places(g, x, dim):
    size = x.shape[dim]
    return prim.sub(
        prim.iota(shape=x.shape, dim=dim, dtype=INT64), build.full(x.shape, g.random.randint(0, size - 1), INT64)
    )


def dot(g, x):
    if len(x.shape) != 2:
        return None
    return build.dot(x, prim.transpose(x, perm=(1, 0)))


def window(g, x):
    if not x.shape or x.shape[-1] < 3:
        return None
    windows = prim.window(x, dims=(len(x.shape) - 1,), size=(3,), stride=(g.random.choice((1, 2)),), dilation=(1,))
    return prim.sum(windows, dims=(len(windows.shape) - 1,)) if g.random.random() < 0.5 else windows


def unwindow(g, x):
    if len(x.shape) < 2 or x.shape[-1] > 8:
        return None
    stride = g.random.choice((1, 2))
    shape = (*x.shape[:-2], (x.shape[-2] - 1) * stride + x.shape[-1])
    return prim.unwindow(x, shape=shape, dims=(len(shape) - 1,), size=(x.shape[-1],), stride=(stride,), dilation=(1,))


RULES = (
    unary, unary, binary, binary, binary, compare_select, transpose, reshape, slices, pad, flip, cat, reduce, reduce, softmax, scan,
    arg, gather, dot, window, unwindow,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(150))
def test_random_graph(seed):
    g = RandomGraph(seed, FLOAT64)
    graph = g.grow(random.Random(seed).randint(1, 10))
    expected = run_reference(graph, g.arrays)
    ran = Ran(graph, g.arrays)
    for got, want in zip(ran.results, expected, strict=True):
        compare(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_written_into_an_input(seed):
    g = RandomGraph(1000 + seed, FLOAT32)
    graph = g.grow(random.Random(seed).randint(1, 5))
    homes = [k for k, v in enumerate(graph.inputs) if v.shape == graph.outputs[0].shape]
    if not homes or len({id(v) for v in graph.outputs}) < len(graph.outputs):
        pytest.skip("no input has the shape of the result")
    expected = run_reference(graph, g.arrays)
    arrays = [a.copy(order="K") for a in g.arrays]
    ran = Ran(graph, arrays, aliases={0: homes[0]})
    compare(arrays[homes[0]], expected[0], rtol=1e-4, atol=1e-4)
    for got, want in zip(ran.results, expected[1:], strict=True):
        compare(got, want, rtol=1e-4, atol=1e-4)


def test_boolean_graph():
    x = np.arange(40).reshape(5, 8) % 3 == 0
    builder = GraphBuilder()
    v = builder.input(x.shape, BOOL)
    with builder:
        outputs = [prim.amin(v, dims=(1,)), prim.amax(v, dims=(0,)), ~v, prim.sum(build.convert(v, INT64), dims=(0, 1))]
    graph = builder.finish(outputs)
    for got, want in zip(Ran(graph, [x]).results, run_reference(graph, [x]), strict=True):
        compare(got, want)
