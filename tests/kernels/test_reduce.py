"""Reductions and row kernels: sizes around vectors, blocks and pieces; the same bits for any number of threads; accuracy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.kernels.kernel_harness import Ran, check, trace_arrays

from rushlight._backends.cpu.runtime.threads import get_num_threads, set_num_threads
from rushlight._codegen.loops import Reduce
from rushlight._codegen.lowering import cut_loop
from rushlight._codegen.traffic import traffic
from rushlight._prims import build, prim
from rushlight._schedule.indexing import Var
from rushlight._types.dtype import FLOAT32, FLOAT64

SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 127, 255, 1000, 4096, 16_385, 65_537, 140_000)
rng = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    return rng.standard_normal(shape).astype(dtype)


def softmax(x, dim):
    top = prim.amax(x, dims=(dim,))
    e = prim.exp(x - build.keep_dims(top, x.shape, (dim,)))
    return e / build.keep_dims(prim.sum(e, dims=(dim,)), x.shape, (dim,))


def layer_norm(x):
    dims, n = (len(x.shape) - 1,), x.shape[-1]
    mean = prim.sum(x, dims=dims) * (1 / n)
    centred = x - build.keep_dims(mean, x.shape, dims)
    scale = prim.rsqrt(prim.sum(centred * centred, dims=dims) * (1 / n) + 1e-5)
    return centred * build.keep_dims(scale, x.shape, dims), mean, scale


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bool"])
def test_full(n, dtype):
    x = (rng.integers(-100, 100, n) if dtype != "bool" else rng.integers(0, 2, n)).astype(dtype)
    names = ["amin", "amax"] if dtype == "bool" else ["sum", "amax", "amin"]
    check(lambda v: [getattr(prim, name)(v, dims=(0,)) for name in names], x, rtol=1e-6)
    check(lambda v: [prim.argmax(v, dim=0), prim.argmin(v, dim=0)], x)


@pytest.mark.parametrize(
    "shape", [(3, 70_001), (70_001, 3), (300, 300), (1, 100_000), (100_000, 1), (17, 5000), (5000, 17), (2000, 100)]
)
@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("order", "CF")
def test_two_dims(shape, dims, order):
    x = np.asarray(normal(*shape), order=order)
    check(lambda v: prim.sum(v, dims=dims), x, rtol=1e-4, atol=1e-3)
    check(lambda v: [prim.amax(v, dims=dims), prim.amin(v, dims=dims)], x)
    if len(dims) == 1:
        check(lambda v: [prim.argmax(v, dim=dims[0]), prim.argmin(v, dim=dims[0])], x)


@pytest.mark.parametrize("dims", [(0,), (1,), (2,), (3,), (0, 2, 3), (1, 3), (0, 1), (2, 3)])
def test_four_dims(dims):
    x = normal(6, 20, 33, 40)
    check(lambda v: prim.sum(v, dims=dims), x, rtol=1e-4, atol=1e-3)
    check(
        lambda v: prim.sum(v, dims=dims),
        np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2),
        rtol=1e-4,
        atol=1e-3,
    )


@pytest.mark.parametrize("where", [0, 5, 63, 64, 999])
def test_nan_wins(where):
    x = normal(1000)
    x[where] = np.nan
    ran = check(
        lambda v: [prim.amax(v, dims=(0,)), prim.amin(v, dims=(0,)), prim.argmax(v, dim=0), prim.argmin(v, dim=0)], x
    )
    assert np.isnan(ran.results[0]) and int(ran.results[2]) == int(ran.results[3]) == where


def test_first_of_equals():
    x = np.zeros(200_000, np.float32)
    x[[777, 150_000]] = 1
    ran = check(lambda v: [prim.argmax(v, dim=0), prim.argmin(v, dim=0)], x)
    assert [int(r) for r in ran.results] == [777, 0]
    ran = check(lambda v: prim.argmax(v, dim=0), np.full(200_000, -np.inf, np.float32))
    assert int(ran.results[0]) == 0


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (2, 64), (5, 65), (17, 1000), (300, 257), (3, 40_000)])
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax(shape, dim):
    ran = check(lambda v: softmax(v, dim), normal(*shape) * 5, rtol=1e-4, atol=1e-6)
    assert len(ran.program.steps) == 1 or min(shape) < 16


@pytest.mark.parametrize("shape", [(4, 7), (3, 5, 33), (64, 768), (2, 100_000)])
def test_layer_norm(shape):
    check(layer_norm, normal(*shape), rtol=1e-3, atol=1e-4)


def test_layer_norm_is_one_kernel():
    ran = check(layer_norm, normal(64, 768), rtol=1e-3, atol=1e-4)
    assert len(ran.program.steps) == 1


def test_batch_norm_statistics():
    def norm(x):
        mean = prim.sum(x, dims=(0, 2, 3)) * (1 / 600)
        centred = x - build.keep_dims(mean, x.shape, (0, 2, 3))
        var = prim.sum(centred * centred, dims=(0, 2, 3)) * (1 / 600)
        return centred * build.keep_dims(prim.rsqrt(var + 1e-5), x.shape, (0, 2, 3)), mean, var

    ran = check(norm, normal(6, 24, 10, 10), rtol=1e-3, atol=1e-4)
    assert len(ran.program.steps) == 1
    check(norm, np.ascontiguousarray(normal(6, 10, 10, 24)).transpose(0, 3, 1, 2), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("shape", [(3000, 70), (1100, 1024)])
def test_statistics_of_long_columns(shape):
    """Columns side by side are reduced in blocks of rows: nothing waits for a few stripes, and what is small between is kept."""

    def norm(x):
        mean = prim.sum(x, dims=(0,)) * (1 / 3000)
        centred = x - build.keep_dims(mean, x.shape, (0,))
        var = prim.sum(centred * centred, dims=(0,)) * (1 / 3000)
        return centred * build.keep_dims(prim.rsqrt(var + 1e-5), x.shape, (0,)), mean, var

    x = normal(*shape)
    ran = check(norm, x, rtol=1e-3, atol=1e-4)
    assert all(step.kernel.pieces > 1 for step in ran.program.steps if traffic(step.kernel)[0] > x.nbytes // 2)


@pytest.mark.parametrize("rows", [6, 8])
def test_a_few_long_rows_are_read_along(rows):
    """Sums over pieces of a row are so small that where they are stored says nothing about how the row is read."""
    ran = check(lambda x: prim.sum(x * x, dims=(1,)), normal(rows, 100_000), rtol=1e-4)
    first = ran.program.steps[0].kernel.text()
    assert len(ran.program.steps) == 2 and any(
        "reduce over" in line and line.endswith("lanes") for line in first.splitlines()
    ), first


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8"])
@pytest.mark.parametrize(("shape", "step"), [((70, 65), 2), ((70, 301), 3), ((9, 1000), 2), ((130, 40), 3)])
def test_rows_of_every_other_element_are_read_along(shape, step, dtype):
    """Lanes that share lines of memory are better than lanes with a line each."""
    x = (normal(shape[0], shape[1] * step) * 20).astype(dtype)[:, ::step]
    for reduce in (lambda x: prim.sum(x, dims=(1,)), lambda x: prim.amax(x, dims=(1,))):
        ran = check(reduce, x, rtol=1e-4, atol=1e-3)
        assert any(
            "reduce over" in line and line.endswith("lanes") for line in ran.program.steps[0].kernel.text().splitlines()
        )


@pytest.mark.parametrize("shape", [(2, 24, 33, 40), (3, 8, 60, 50), (1, 96, 5, 9, 12)])
@pytest.mark.parametrize("groups", [2, 4])
def test_groups_of_channels_that_lie_together(shape, groups):
    """Sums over a few of the channels of every place, as of group normalisation, whose result lies as the images do."""

    def norm(x, weight):
        split = (shape[0], groups, shape[1] // groups, *shape[2:])
        dims, count = tuple(range(2, len(split))), np.prod(split[2:])
        parts = build.reshape(x, split)
        mean = prim.sum(parts, dims=dims) * (1 / count)
        centred = parts - build.keep_dims(mean, split, dims)
        var = prim.sum(centred * centred, dims=dims) * (1 / count)
        scaled = build.reshape(centred * build.keep_dims(prim.rsqrt(var + 1e-5), split, dims), shape)
        return scaled * prim.broadcast(weight, shape=shape, dims=(1,)), mean, var

    last = np.ascontiguousarray(normal(shape[0], *shape[2:], shape[1]))
    x = np.moveaxis(last, -1, 1)
    ran = check(norm, x, normal(shape[1]), rtol=1e-3, atol=1e-4)
    assert not any(reduce.loops[-1].size < 16 and len(reduce.loops) > 1 for reduce in reductions(ran.program))


def reductions(program):
    """All loops that reduce."""
    todo = [s for step in program.steps for section in step.kernel.sections for s in section.body]
    while todo:
        statement = todo.pop()
        if isinstance(statement, Reduce):
            yield statement
        todo += getattr(statement, "body", ())


def test_large_sums_are_accurate():
    x = np.full(5_000_000, 0.1, np.float32)
    ran = Ran(trace_arrays(lambda v: prim.sum(v, dims=(0,)), [x]), [x])
    exact = float(np.float32(0.1)) * len(x)
    assert abs(float(ran.results[0]) - exact) <= 2e-6 * exact
    y = np.full((600_000, 3), 0.1, np.float32)
    ran = Ran(trace_arrays(lambda v: prim.sum(v, dims=(0,)), [y]), [y])
    assert np.abs(ran.results[0] / (float(np.float32(0.1)) * len(y)) - 1).max() <= 2e-6


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda v: prim.sum(v, dims=(0,)), (1_000_003,)),
        (lambda v: prim.sum(v, dims=(0,)), (30_000, 40)),
        (lambda v: prim.sum(v, dims=(1,)), (40, 30_000)),
        (lambda v: softmax(v, 1), (200, 1000)),
        (lambda v: layer_norm(v)[0], (200, 1000)),
        (lambda v: prim.cumsum(v, dim=1, reverse=False), (200, 1000)),
        (lambda v: build.convert(prim.cumsum(build.convert(v, FLOAT64), dim=0, reverse=True), FLOAT32), (100_000,)),
        (lambda v: prim.cummax(v, dim=0)[0], (100_000,)),
    ],
)
def test_same_bits_for_any_number_of_threads(function, shape):
    x = normal(*shape)
    graph = trace_arrays(function, [x])
    before = get_num_threads()
    found = []
    try:
        for threads in (1, 2, 3):
            set_num_threads(threads)
            found.append(Ran(graph, [x]).results[0].tobytes())
    finally:
        set_num_threads(before)
    assert found[0] == found[1] == found[2]


def test_new_sizes_of_a_class_compile_nothing():
    keys = set()
    for n in (1000, 2000, 70_001):
        x = normal(n, 48)
        ran = Ran(trace_arrays(lambda v: softmax(v, 1), [x]), [x])
        keys.update(step.key for step in ran.program.steps)
    assert len(keys) == 1
    keys = set()
    for n in (100, 4096, 100_000):
        x = normal(n)
        keys.add(Ran(trace_arrays(lambda v: v + 1.0, [x]), [x]).program.steps[0].key)
    assert len(keys) == 1


def test_scalar_arguments():
    x = normal(100)
    graph = trace_arrays(lambda v, s: v * build.broadcast_to(build.convert(s, FLOAT32), v.shape), [x, 2.5])
    np.testing.assert_array_equal(Ran(graph, [x, 2.5]).results[0], x * np.float32(2.5))


@pytest.mark.parametrize("size", [100, 192, 300])
def test_rows_and_columns_of_a_square(size):
    """As many rows as columns: what goes along the rows must not be taken for what goes along the columns."""
    x, g = normal(size, size), normal(size, size)

    def both(v, w):
        return [prim.sum(v, dims=(1,)), prim.sum(v * w, dims=(0,)), prim.sum(w, dims=(0,)), prim.amax(v, dims=(1,))]

    ran = check(both, x, g, rtol=1e-4, atol=1e-3)
    wide = size * size > 1 << 15
    assert any("columns" in note for note in ran.program.notes) == wide
    assert len(ran.program.steps) == 1 + wide


@pytest.mark.parametrize(
    "sizes", [(2, 16, 49), (2, 2), (64,), (1, 63), (3, 65), (7, 7, 7, 7), (1, 100_000), (100_000, 1)]
)
def test_what_is_cut_is_cut_into_several_pieces(sizes):
    for wanted in (2, 18, 40, 512):
        var, chunk = cut_loop([Var(n, "v") for n in sizes], wanted)
        assert 1 <= chunk < var.size
