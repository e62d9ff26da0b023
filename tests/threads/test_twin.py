"""Kernels of the thread form, run by their twins on x86, against the reference interpreter of the block IR."""

from __future__ import annotations

import numpy as np
import pytest
from tests.blocks.random_kernels import draw
from tests.threads.twins import compare, run_twin

from rushlight._codegen.blocks import BlockBuilder, Kernel, Pointer, Tile, Value
from rushlight._codegen.threads import LoweringError, lower
from rushlight._types.dtype import BFLOAT16, FLOAT16, FLOAT32, INT8, INT32, DType

WARPS = (1, 4, 8)


@pytest.mark.parametrize("seed", range(8))
def test_random_kernels_give_the_interpreters_bits(seed: int) -> None:
    case = draw(seed)
    expected = case.reference()
    case.kernel.warps = WARPS[seed % 3]
    given = case.fresh()
    run_twin(case.kernel, case.grid, given)
    for a, b in zip(expected, given, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(b, a)


@pytest.mark.slow
@pytest.mark.parametrize("warps", [1, 2, 4, 8])
@pytest.mark.parametrize("start", range(0, 200, 20))
def test_many_random_kernels(start: int, warps: int) -> None:
    for seed in range(start, start + 20):
        case = draw(seed)
        case.kernel.warps = warps
        given = case.fresh()
        run_twin(case.kernel, case.grid, given)
        for a, b in zip(case.reference(), given, strict=True):
            if isinstance(a, np.ndarray):
                np.testing.assert_array_equal(b, a, err_msg=f"seed {seed}")


def softmax(columns: int, warps: int) -> Kernel:
    """One row a program."""
    b = BlockBuilder("softmax", [Tile(Pointer(FLOAT32))] * 2 + [Tile(INT32)], ["x", "y", "n"])
    x, y, n = b.params
    at = b.arange(0, columns)
    inside = b.pointwise("lt", at, b.splat(n, (columns,)))
    place = b.pointwise("add", at, b.splat(b.pointwise("mul", b.program_id(), n), (columns,)))
    row = b.load(b.offset(b.splat(x, (columns,)), place), inside, b.constant(float("-inf"), FLOAT32, (columns,)))
    (top,) = b.reduce([row], 0, lambda b, left, right: [b.pointwise("maximum", left[0], right[0])])
    powers = b.pointwise("exp", b.pointwise("sub", row, b.splat(top, (columns,))))
    (total,) = b.reduce([powers], 0, lambda b, left, right: [b.pointwise("add", left[0], right[0])])
    b.store(b.offset(b.splat(y, (columns,)), place), b.pointwise("div", powers, b.splat(total, (columns,))), inside)
    return b.finish(warps=warps, divisible={0: 16, 1: 16})


@pytest.mark.parametrize("warps", [1, 4])
def test_softmax(warps: int) -> None:
    x = np.random.default_rng(0).standard_normal((5, 300), np.float32)
    compare(softmax(512, warps), (5,), [x, np.zeros_like(x), 300], rtol=1e-5)


def matmul(sizes: tuple[int, int, int], dtype: DType, result: DType, warps: int, precision: str = "ieee") -> Kernel:
    """A tile of c a program; sizes are those of the tile, which divide the matrices."""
    m, n, k = sizes
    b = BlockBuilder(
        "matmul", [Tile(Pointer(dtype))] * 2 + [Tile(Pointer(result))] + [Tile(INT32)] * 2, ["a", "b", "c", "N", "K"]
    )
    a, bb, c, columns, depth = b.params

    def number(value: int) -> Value:
        return b.constant(value, INT32)

    def grid(rows: Value, inner: Value, stride: Value, shape: tuple[int, int]) -> Value:
        down = b.expand_dims(b.pointwise("mul", rows, b.splat(stride, rows.shape)), 1)
        return b.pointwise("add", b.broadcast(down, shape), b.broadcast(b.expand_dims(inner, 0), shape))

    rows = b.pointwise("add", b.arange(0, m), b.splat(b.pointwise("mul", b.program_id(0), number(m)), (m,)))
    across = b.pointwise("add", b.arange(0, n), b.splat(b.pointwise("mul", b.program_id(1), number(n)), (n,)))
    steps = b.arange(0, k)
    left = b.offset(b.splat(a, (m, k)), grid(rows, steps, depth, (m, k)))
    right = b.offset(b.splat(bb, (k, n)), grid(steps, across, columns, (k, n)))

    def body(index: Value, total: Value, left: Value, right: Value) -> list[Value]:
        made = b.dot(b.load(left), b.load(right), total, precision)
        down = b.splat(b.pointwise("mul", columns, number(k)), (k, n))
        return [made, b.offset(left, b.constant(k, INT32, (m, k))), b.offset(right, down)]

    zero = b.constant(0 if result is INT32 else 0.0, result, (m, n))
    total, _, _ = b.for_(number(0), depth, number(k), [zero, left, right], body)
    b.store(b.offset(b.splat(c, (m, n)), grid(rows, across, columns, (m, n))), total)
    return b.finish(warps=warps, divisible=dict.fromkeys(range(5), 16))


def operands(dtype: DType, m: int, n: int, k: int) -> list[np.ndarray]:
    """Matrices of small whole numbers, whose products are exact in every dtype."""
    random = np.random.default_rng(1)
    made = [random.integers(-4, 5, shape) for shape in ((m, k), (k, n))]
    if dtype is BFLOAT16:
        return [(x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for x in made]
    return [x.astype({FLOAT16: np.float16, FLOAT32: np.float32, INT8: np.int8}[dtype]) for x in made]


@pytest.mark.parametrize(
    ("dtype", "result", "precision", "warps"),
    [
        (FLOAT16, FLOAT32, "ieee", 4), (BFLOAT16, FLOAT32, "ieee", 2), (FLOAT32, FLOAT32, "tf32", 4), (FLOAT32, FLOAT32, "tf32x3", 1),
        (FLOAT32, FLOAT32, "ieee", 4), (INT8, INT32, "ieee", 8),
    ],
)  # fmt: skip
def test_products(dtype: DType, result: DType, precision: str, warps: int) -> None:
    m, n, k = 64, 32, 96
    c = np.zeros((m, n), np.int32 if result is INT32 else np.float32)
    compare(matmul((32, 32, 32), dtype, result, warps, precision), (2, 1), [*operands(dtype, m, n, k), c, n, k])


def test_sizes_that_are_no_powers_of_two_are_refused() -> None:
    b = BlockBuilder("odd", [Tile(Pointer(FLOAT32))], ["x"], line=("user.py", 7))
    b.load(b.offset(b.splat(b.params[0], (48,)), b.arange(0, 48)))
    with pytest.raises(LoweringError, match=r"user\.py:7: kernel odd: splat gives .*48.* powers of two"):
        lower(b.finish())
