"""Passes over block kernels keep what they compute, and make the forms that emitters count on."""

from __future__ import annotations

import numpy as np
import pytest
from tests.blocks.random_kernels import Case, draw

from rushlight._codegen.blocks import BlockBuilder, Pointer, Tile, Value, kernel_text, verify
from rushlight._codegen.blocks.passes import simplified
from rushlight._types.dtype import FLOAT32, INT32, INT64


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
