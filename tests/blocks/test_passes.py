"""Passes over block kernels keep what they compute, and make the forms that emitters count on."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from tests.blocks.random_kernels import Case, draw

from rushlight._codegen.blocks import BlockBuilder, Pointer, Tile, Value, kernel_text, verify
from rushlight._codegen.blocks.passes import simplified
from rushlight._types.dtype import FLOAT32, INT8, INT32, INT64, UINT8, DType


@pytest.mark.parametrize("seed", range(15))
def test_random_kernels_compute_the_same(seed: int) -> None:
    case = draw(seed, 9)
    text = kernel_text(case.kernel)
    kernel = simplified(case.kernel)
    verify(kernel)
    assert kernel_text(case.kernel) == text, "the kernel itself stays as it is"
    for one, other in zip(case.reference(), Case(kernel, case.grid, case.arguments).reference(), strict=True):
        np.testing.assert_array_equal(one, other)


def marching() -> Case:
    """Sums 4 blocks of 8 numbers, with a tile of pointers that a loop moves."""
    b = BlockBuilder("march", [Tile(Pointer(FLOAT32)), Tile(Pointer(FLOAT32)), Tile(INT32)])
    x, out, step = b.params
    zero, one, count = (b.constant(v, INT32) for v in (0, 1, 4))

    def body(i: Value, pointer: Value, total: Value) -> list[Value]:
        unused = b.pointwise("mul", i, i)
        assert unused is not None
        moved = b.offset(pointer, b.splat(b.pointwise("mul", step, b.constant(1, INT32)), (8,)))
        return [moved, b.pointwise("add", total, b.load(pointer))]

    start = b.offset(b.splat(x, (8,)), b.arange(0, 8))
    last, total = b.for_(zero, count, one, [start, b.constant(0.0, FLOAT32, (8,))], body)
    b.store(b.offset(b.splat(out, (8,)), b.arange(0, 8)), b.pointwise("add", total, b.load(last)))
    return Case(b.finish(), (1,), [np.arange(40, dtype=np.float32), np.zeros(8, np.float32), 8])


def test_pointers_that_march_are_carried_as_a_number() -> None:
    case = marching()
    kernel = simplified(case.kernel)
    verify(kernel)
    (loop,) = (op for op in kernel.body.ops if op.kind == "for")
    assert [v.type for v in loop.results] == [Tile(INT64), Tile(FLOAT32, (8,))]
    assert not any(op.kind == "pointwise" and op.attributes["prim"] == "mul" for op in kernel.body.walk())
    result = Case(kernel, case.grid, case.arguments).reference()[1]
    np.testing.assert_array_equal(result, np.arange(40).reshape(5, 8).sum(0))


@pytest.mark.parametrize("dtype", [INT8, UINT8, INT32, INT64])
def test_numbers_are_computed_as_they_would_be_at_run_time(dtype: DType) -> None:
    """Sums that wrap around, quotients and remainders of all signs, among the least and the greatest numbers."""
    least, most = (-(1 << 8 * dtype.itemsize - 1), (1 << 8 * dtype.itemsize - 1) - 1) if dtype.is_signed else (0, 255)
    pairs = [(least, -1 if dtype.is_signed else 7), (most, most), (least, most), (7, 2), (0, 3), (most, 5)]
    pairs += [(-7, 2), (7, -2), (-7, -2)] if dtype.is_signed else []
    prims = ("add", "sub", "mul", "div_trunc", "rem_trunc", "maximum", "minimum", "lt", "le", "eq", "ne")
    b = BlockBuilder("k", [Tile(Pointer(INT64))])
    for k, (prim, (x, y)) in enumerate(product(prims, pairs)):
        made = b.convert(b.pointwise(prim, b.constant(x, dtype), b.constant(y, dtype)), INT64)
        b.store(b.offset(b.params[0], b.constant(k, INT32)), made)
    case = Case(b.finish(), (1,), [np.zeros(len(prims) * len(pairs), np.int64)])
    simple = simplified(case.kernel)
    assert not [op for op in simple.body.ops if op.kind == "pointwise" and op.attributes["prim"] != "convert"]
    np.testing.assert_array_equal(Case(simple, *case[1:]).reference()[0], case.reference()[0])
