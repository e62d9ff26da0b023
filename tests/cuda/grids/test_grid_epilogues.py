"""Pointwise work on matrix products as part of their kernels, by the reference interpreter."""

from __future__ import annotations

import numpy as np
import pytest
from tests.cuda.grids.grid_harness import check

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


def convolved(groups):
    """Batch norm in inference, a residual and an activation."""

    def function(x, w, b, scale, r):
        n = len(x.shape) - 2
        params = {"stride": (1,) * n, "padding": (1,) * n, "dilation": (1,) * n, "groups": groups}
        shape = (1, w.shape[0], *(1,) * n)
        y = prim.conv(x, w, **params)
        bias, factor = (build.broadcast_to(build.reshape(v, shape), y.shape) for v in (b, scale))
        z = (y + bias) * factor + r
        return prim.maximum(z, build.full_like(z, 0.0))

    return function


def images(batch, channels, outs, groups, *size):
    return [
        (batch, channels, *size),
        (outs, channels // groups, *(3,) * len(size)),
        (outs,),
        (outs,),
        (batch, outs, *size),
    ]


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
    "a convolution": (convolved(1), images(2, 8, 20, 1, 5, 7), 1),
    "a convolution in groups": (convolved(2), images(1, 4, 24, 2, 9), 1),
    "a depthwise convolution": (convolved(3), images(2, 3, 6, 3, 5, 4), 1),
    "a convolution in parts": (convolved(1), images(1, 400, 8, 1, 3, 3), 2),
    "sums of the product": (lambda x, w: prim.sum(build.dot(x, w), dims=(1,)), [(8, 5), (5, 8)], 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_pointwise_work_is_part_of_the_product(name):
    function, shapes, steps = CASES[name]
    ran = check(function, *[floats(*s) for s in shapes], rtol=1e-4, atol=1e-4)
    assert len(ran.program.steps) == steps, [s.name for s in ran.program.steps]


@pytest.mark.parametrize("groups", [1, 8])
def test_images_that_are_channels_last(groups):
    """The result lies as the images do, and so does the residual."""
    given = [floats(*s) for s in images(2, 8, 16, groups, 3, 5)]
    last = lambda n: (n * 15, 1, 5 * n, n)
    ran = check(
        convolved(groups), *given, strides={0: last(8), 4: last(16)}, out_strides=[last(16)], rtol=1e-4, atol=1e-4
    )  # fmt: skip
    assert len(ran.program.steps) == 1


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


def test_a_batch_over_which_an_operand_repeats_is_rows():
    """Weights by channels-last images, and rows of a batch by one matrix: one product; the epilogue sees the batch."""

    def images(w, x, r):
        return prim.tanh(build.dot(build.broadcast_to(w, (3, *w.shape)), x) + r)

    def batch(x, w, r):
        return prim.tanh(build.dot(x, build.broadcast_to(w, (2, 3, *w.shape))) + r)

    w, x, r = floats(20, 24), floats(3, 24, 35), floats(3, 20, 35)
    last = {1: (24 * 35, 1, 24), 2: (20 * 35, 1, 20)}
    for strides, out in ((last, [last[2]]), (last, None), ({}, None)):
        ran = check(images, w, x, r, strides=strides, out_strides=out, rtol=1e-4, atol=1e-4)
        assert len(ran.program.steps) == 1 and ran.program.steps[0].name.startswith("product")
        assert ran.program.steps[0].grid[0] == (4 if strides else 6)  # 105 rows, or 3 times 20
    check(batch, floats(2, 3, 10, 8), floats(8, 12), floats(2, 3, 10, 12), rtol=1e-4, atol=1e-4)
