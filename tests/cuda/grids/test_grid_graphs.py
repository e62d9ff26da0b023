"""Graphs as block kernels by the reference interpreter: random ones, long reductions, in-place outputs, numbers."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from tests.cuda.grids.grid_harness import Ran, check, compare, dense, trace_arrays
from tests.kernels.test_random_graphs import RULES, RandomGraph, dot

from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.externs import lower as lower_call
from rushlight._backends.cuda.program.assemble import compile_graph
from rushlight._backends.reference import run as run_reference
from rushlight._codegen.blocks import kernel_text
from rushlight._codegen.blocks.memory import BlockFault
from rushlight._codegen.threads import lower, nvptx_text
from rushlight._graph.core import trace
from rushlight._native.nvidia.nvptx import ptx_of
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, FLOAT32, FLOAT64

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def softmax(x, dim=1):
    e = prim.exp(x - build.keep_dims(prim.amax(x, dims=(dim,)), x.shape, (dim,)))
    return e / build.keep_dims(prim.sum(e, dims=(dim,)), x.shape, (dim,))


def without_products(monkeypatch):
    monkeypatch.setattr("tests.kernels.test_random_graphs.RULES", tuple(r for r in RULES if r is not dot))


@pytest.mark.parametrize("seed", range(60))
def test_random_graph(seed, monkeypatch):
    without_products(monkeypatch)
    g = RandomGraph(seed, FLOAT64)
    graph = g.grow(random.Random(seed).randint(1, 10))
    strides = {k: tuple(s // a.itemsize for s in a.strides) for k, a in enumerate(g.arrays)}
    for got, want in zip(Ran(graph, g.arrays, strides).results, run_reference(graph, g.arrays), strict=True):
        compare(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_written_into_an_input(seed, monkeypatch):
    without_products(monkeypatch)
    g = RandomGraph(1000 + seed, FLOAT32)
    graph = g.grow(random.Random(seed).randint(1, 5))
    homes = [k for k, v in enumerate(graph.inputs) if v.shape == graph.outputs[0].shape]
    if not homes or len({id(v) for v in graph.outputs}) < len(graph.outputs):
        pytest.skip("no input has the shape of the result")
    strides = {k: tuple(s // a.itemsize for s in a.strides) for k, a in enumerate(g.arrays)}
    expected = run_reference(graph, g.arrays)
    ran = Ran(graph, g.arrays, strides, aliases={0: homes[0]})
    compare(ran.inputs[homes[0]], expected[0], rtol=1e-4, atol=1e-4)
    for got, want in zip(ran.results, expected[1:], strict=True):
        compare(got, want, rtol=1e-4, atol=1e-4)


CASES = {
    "a sum in parts": (lambda x: prim.sum(x, dims=(0,)), [floats(70_000)], ["partial", "rows"]),
    "few rows": (lambda x: prim.sum(x, dims=(1,)), [floats(3, 30_000)], ["partial", "rows"]),
    "columns": (lambda x: prim.amax(x, dims=(0,)), [floats(3000, 130)], ["partial", "rows"]),
    "a position in parts": (lambda x: prim.argmax(x, dim=0), [floats(50_000)], ["partial", "rows"]),
    "rows in tiles": (softmax, [floats(70, 5000)], ["rows"]),
    "rows in registers": (softmax, [floats(128, 300)], ["rows"]),
    "columns side by side": (lambda x: softmax(x, 0), [floats(200, 90)], ["rows"]),
    "a scan in tiles": (lambda x: prim.cumsum(x, dim=1, reverse=True), [floats(3, 3000)], ["scan"]),
    "a transposition": (lambda x: prim.transpose(x, perm=(1, 0)) + 1.0, [floats(100, 70)], ["pointwise"]),
    "a complex sum": (
        lambda x: prim.sum(x, dims=(0,)),
        [(floats(30_000) + 1j * floats(30_000)).astype(np.complex64)],
        ["partial", "rows"],
    ),
    "added at indices": (
        lambda x, v, i: prim.index_put(x, v, i, accumulate=True),
        [floats(100, 64), floats(50, 64), RNG.integers(-100, 100, 50)],
        ["pointwise", "scatter"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_shapes_of_kernels(name):
    function, arrays, kernels = CASES[name]
    ran = check(function, *arrays, rtol=1e-3, atol=1e-3)
    assert [step.name for step in ran.program.steps] == kernels


def test_numbers_are_arguments():
    def scaled(x, a, n):
        return x * build.broadcast_to(a, x.shape) + build.broadcast_to(build.convert(n, FLOAT32), x.shape)

    first, second = (check(scaled, floats(33, 5), a, n).program.steps for a, n in ((2.5, 3), (-1.0, 7)))
    assert kernel_text(first[0].kernel) == kernel_text(second[0].kernel)


def test_shapes_of_a_class_share_a_kernel():
    def text(rows, columns):
        graph = trace_arrays(lambda x: softmax(x), [floats(rows, columns)])
        return [kernel_text(s.kernel) for s in compile_graph(graph, [(columns, 1)]).steps]

    assert text(128, 300) == text(132, 508) != text(128, 5000)


def test_narrow_dtypes_are_rounded_once():
    x = (floats(40, 70).view(np.uint32) >> 16 << 16).view(np.float32)
    check(lambda v: build.convert(softmax(build.convert(v, FLOAT32)), BFLOAT16), x, dtypes=[BFLOAT16], rtol=1 / 128)


def test_an_index_out_of_range_stops_the_kernel():
    graph = trace_arrays(lambda w, i: prim.index(w, i), [floats(10, 4), np.array([3, 10])])
    with pytest.raises(BlockFault, match="out of bounds in dim 0"):
        Ran(graph, [floats(10, 4), np.array([3, 10])])


def test_primitives_without_a_routine_are_named():
    with pytest.raises(NotImplementedError, match=r"prim\.nothing"):
        lower_call(ExternCall("nothing", [], [], {}))


def ptx_of_steps(function, *shapes):
    graph = trace(function, [(shape, FLOAT32) for shape in shapes])
    steps = compile_graph(graph, [dense(shape) for shape in shapes]).steps
    return [ptx_of(nvptx_text(lower(step.kernel)), "sm_80") for step in steps]


VECTORS = {
    "rows": (lambda x, y: x * y, (256, 100), (256, 100)),
    "a broadcast": (lambda x, y: x + build.broadcast_to(y, x.shape), (256, 768), (768,)),
    "columns": (lambda x: prim.sum(x, dims=(0,)), (64, 4096)),
    "a transposition": (lambda x: prim.transpose(x, perm=(1, 0)) + 1.0, (128, 128)),
}


@pytest.mark.parametrize("name", VECTORS)
def test_memory_is_read_and_written_in_vectors_of_16_bytes(name):
    (text,) = ptx_of_steps(*VECTORS[name])
    accesses = re.findall(r"(?:ld|st)\.global\.(\S+)", text)
    assert accesses and {a.split(".")[0] for a in accesses} == {"v4"}, accesses
    assert ("bar.sync" in text) == (name in ("columns", "a transposition"))
