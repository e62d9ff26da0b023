"""Types of results and their numbers where Triton has rules of its own; each rule was read off real Triton 3.9."""

import numpy as np
import pytest

import rushlight as torch
from rushlight import triton
from rushlight.triton import language as tl


@triton.jit
def shifts(x, y, o):
    i = tl.arange(0, 4)
    tl.store(o + i, tl.load(x + i) >> tl.load(y + i))


def test_the_first_operand_says_whether_a_shift_repeats_the_sign() -> None:
    """Also where the common type has no sign."""
    x, y = torch.tensor([-128, 127, -1, 6], dtype=torch.int8), torch.tensor([3, 3, 7, 1], dtype=torch.uint8)
    out = torch.zeros(4, dtype=torch.int64)
    shifts[(1,)](x, y, out)
    assert out.tolist() == [240, 15, 255, 3]
    shifts[(1,)](x.view(torch.uint8), y.view(torch.int8), out)
    assert out.tolist() == [16, 15, 1, 3]


@triton.jit
def masks(o):
    i = tl.arange(0, 4)
    a, b = i > 1, i > -1
    tl.static_assert((a // b).dtype == tl.int1 and (a % b).dtype == tl.int1 and (a << b).dtype == tl.int1)
    tl.store(o + i, (a // b).to(tl.int32) + 2 * (a % b).to(tl.int32) + 4 * (a << (i < 0)).to(tl.int32))


def test_arithmetic_of_masks() -> None:
    out = torch.zeros(4, dtype=torch.int32)
    masks[(1,)](out)
    assert out.tolist() == [0, 0, 5, 5]


@triton.jit
def extremes(x, o):
    a = tl.load(x + tl.arange(0, 8))
    value, index = tl.max(a, 0, return_indices=True)
    tl.static_assert(value.dtype == a.dtype and tl.max(a, 0).dtype == tl.float32)
    tl.static_assert(tl.topk(a, 8).dtype == a.dtype and tl.topk(a, 2).dtype == tl.float32)
    tl.store(o, value.to(tl.float32) * 10 + index)


def test_the_type_of_an_extreme_of_narrow_numbers() -> None:
    out = torch.zeros(1)
    extremes[(1,)](torch.tensor([1, 5, 7, 2, 7, 0, 3, 4], dtype=torch.float16), out)
    assert out.item() == 72


@triton.jit
def to_float8(x, o, p):
    i = tl.arange(0, 8)
    a = tl.load(x + i)
    tl.store(o + i, a.to(tl.float8e5).to(tl.float32))
    tl.store(p + i, a.to(tl.float8e4nv).to(tl.float32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_float8_cannot_hold_becomes_its_largest_number(dtype) -> None:
    """As the instructions of GPUs do that Triton's casts become."""
    x = torch.tensor([1e6, -1e6, float("inf"), float("-inf"), float("nan"), 500.0, 3.0, -0.0], dtype=dtype)
    e5, e4 = torch.zeros(8), torch.zeros(8)
    to_float8[(1,)](x, e5, e4)
    nan = float("nan")
    np.testing.assert_array_equal(e5.numpy(), [57344, -57344, 57344, -57344, nan, 512, 3, 0])
    np.testing.assert_array_equal(e4.numpy(), [448, -448, 448, -448, nan, 448, 3, 0])


@triton.jit
def wrong_rounding(x):
    tl.load(x).to(tl.float32, fp_downcast_rounding="rtz")


def test_rounding_is_asked_for_where_bits_are_lost() -> None:
    with pytest.raises(triton.CompilationError, match="only for truncating fp conversions"):
        wrong_rounding[(1,)](torch.zeros(1, dtype=torch.float16))


@triton.jit
def packed_outside(a, b, s, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    left = tl.load(a + tl.arange(0, M // 2)[:, None] * K + k[None, :])
    right = tl.load(b + k[:, None] * (N // 2) + tl.arange(0, N // 2)[None, :])
    scale = tl.load(s + m[:, None] * (K // 32) + tl.arange(0, K // 32)[None, :])
    out = tl.dot_scaled(left, scale, "e2m1", right, None, "e2m1", lhs_k_pack=False, rhs_k_pack=False)
    tl.store(o + m[:, None] * N + n[None, :], out)


def test_pairs_of_four_bits_along_rows_and_columns() -> None:
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    numbers = np.concatenate([numbers, -numbers])
    draw = np.random.default_rng(0)
    a, b = draw.integers(0, 256, (16, 64)), draw.integers(0, 256, (64, 16))
    scale, out = draw.integers(124, 131, (32, 2)), torch.zeros(32, 32)
    packed_outside[(1,)](*(torch.tensor(v, dtype=torch.uint8) for v in (a, b, scale)), out, 32, 32, 64)
    left = numbers[np.stack([a & 15, a >> 4], 1).reshape(32, 64)] * np.repeat(2.0 ** (scale - 127), 32, axis=1)
    right = numbers[np.stack([b & 15, b >> 4], 2).reshape(64, 32)]
    np.testing.assert_allclose(out.numpy(), left @ right, rtol=1e-6)
