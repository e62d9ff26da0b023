"""Pointwise work on matrix products as part of their kernels, by the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.grid_harness import check

from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, FLOAT32

RNG = np.random.default_rng(0)


def floats(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def linear(x, w, b):
    return prim.tanh(build.dot(x, w) + build.broadcast_to(b, (x.shape[0], w.shape[1])))


def two_results(x, w, b):
    y = build.dot(x, w) + build.broadcast_to(b, (x.shape[0], w.shape[1]))
    return y, prim.exp(y)


def product_too(x, w, b):
    y = build.dot(x, w)
    return y, prim.tanh(y + build.broadcast_to(b, y.shape))


CASES = {
    "a bias and an activation": (linear, [(70, 40), (40, 50), (50,)], 1),
    "parts of the inner dim": (linear, [(20, 3000), (3000, 16), (16,)], 2),
    "one row": (linear, [(1, 40), (40, 50), (50,)], 1),
    "one column": (linear, [(30, 40), (40, 1), (1,)], 1),
    "a batch": (lambda x, w, r: build.reshape(build.dot(x, w) + r, (6, 20, 33)), [(2, 3, 20, 17), (2, 3, 17, 33), (2, 3, 20, 33)], 1),
    "two results": (two_results, [(64, 64), (64, 64), (64,)], 1),
    "the product is a result": (product_too, [(33, 40), (40, 50), (50,)], 1),
    "a transposed result": (lambda x, w: prim.transpose(prim.tanh(build.dot(x, w)), perm=(1, 0)), [(40, 20), (20, 64)], 1),
    "a broadcast of the product": (lambda x, w: build.broadcast_to(build.dot(x, w), (3, 8, 8)), [(8, 5), (5, 8)], 2),
    "sums of the product": (lambda x, w: prim.sum(build.dot(x, w), dims=(1,)), [(8, 5), (5, 8)], 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_pointwise_work_is_part_of_the_product(name):
    function, shapes, steps = CASES[name]
    ran = check(function, *[floats(*s) for s in shapes], rtol=1e-4, atol=1e-4)
    assert len(ran.program.steps) == steps, [s.name for s in ran.program.steps]


def test_numbers_are_arguments_of_the_product():
    def scaled(x, w, a):
        return build.dot(x, w) * build.broadcast_to(a, (10, 30))

    assert len(check(scaled, floats(10, 20), floats(20, 30), 2.5, rtol=1e-4, atol=1e-4).program.steps) == 1


def test_the_product_is_rounded_before():
    x, w = ((a.view(np.uint32) >> 16 << 16).view(np.float32) for a in (floats(16, 32), floats(32, 16)))
    check(lambda a, b: build.convert(build.dot(a, b), FLOAT32), x, w, dtypes=[BFLOAT16, BFLOAT16], rtol=1 / 128)


def test_an_input_takes_the_result():
    x, w, r = floats(16, 8), floats(8, 32), floats(16, 32)
    ran = check(lambda *v: v[2] + build.dot(v[0], v[1]), x, w, r, rtol=1e-4, atol=1e-4, aliases={0: 2})
    assert len(ran.program.steps) == 1
