"""Products of quantized numbers: exact beside NumPy, packed weights beside PyTorch's formula."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch
from rushlight._interface.operators import function_of

linear, dynamic, conv = (function_of(f"quantized_{n}") for n in ("linear", "linear_dynamic", "conv"))
FLOAT, WIDE = np.float32, np.int32


def _operands(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        rng.integers(-5000, 5000, n).astype(WIDE),
        rng.uniform(1e-4, 2e-3, n).astype(FLOAT),
        rng.normal(size=n).astype(FLOAT) * 300,
    )


def _requantized(
    sums: np.ndarray, offset: np.ndarray, scale: np.ndarray, bias: np.ndarray, zero: int, low: int
) -> np.ndarray:
    steps = np.rint(((sums + offset).astype(FLOAT) + bias) * scale) + zero
    return np.clip(steps, low, 255)


# full range of both operands: 16-bit steps would saturate, with all of a column at the ends
@pytest.mark.parametrize("sizes", [(1, 64, 32), (5, 300, 33), (64, 257, 48), (130, 512, 70)])
def test_linear_is_exact(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(1)
    x, w = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (n, k)).astype(np.int8)
    x[0], w[0], w[1] = 255, 127, -128
    offset, scale, bias = _operands(rng, n)
    sums = x.astype(WIDE) @ w.astype(WIDE).T
    found = linear(*map(torch.from_numpy, (x, w, offset, scale, bias)), None, 17)
    assert np.array_equal(found.numpy(), _requantized(sums, offset, scale, bias, 17, 0))
    found = linear(*map(torch.from_numpy, (x, w, offset, scale, bias)), None, 17, relu=True)
    assert np.array_equal(found.numpy(), _requantized(sums, offset, scale, bias, 17, 17))
    assert np.array_equal(torch._int_mm(torch.from_numpy(x), torch.from_numpy(w).t()).numpy(), sums)


# of one image the result is the product's transpose: operands with and without signs must not change places
@pytest.mark.parametrize(
    "case",
    [
        (8, 9, 12, 3, 1, 1, 1, 1), (8, 9, 12, 3, 2, 0, 1, 4), (6, 8, 6, 3, 1, 2, 2, 6), (3, 15, 5, 7, 2, 3, 1, 1),
        (16, 5, 8, 1, 1, 0, 1, 1), (64, 33, 160, 1, 1, 0, 1, 1), (4, 6, 1, 3, 1, 1, 1, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("images", [1, 2])
def test_convolution_is_exact(case: tuple[int, ...], last: bool, images: int) -> None:
    channels, size, outs, k, step, pad, gap, groups = case
    rng = np.random.default_rng(2)
    x = torch.from_numpy(rng.integers(0, 256, (images, channels, size, size + 1)).astype(np.uint8))
    w = torch.from_numpy(rng.integers(-128, 128, (outs, channels // groups, k, k)).astype(np.int8))
    if last:
        x, w = (v.contiguous(memory_format=torch.channels_last) for v in (x, w))
    _, scale, bias = _operands(rng, outs)
    offset = (-9 * w.numpy().astype(WIDE).sum((1, 2, 3))).astype(WIDE)
    exact = torch.nn.functional.conv2d(x.double() - 9, w.double(), None, step, pad, gap, groups).numpy()
    parts = [torch.from_numpy(v) for v in (offset, scale, bias)]
    found = conv(x, w, *parts, None, 9, 3, (step, step), (pad, pad), (gap, gap), groups)
    columns = (v[:, None, None] for v in (np.zeros_like(offset), scale, bias))
    assert np.array_equal(found.numpy(), _requantized(exact.astype(WIDE), *columns, 3, 0))


def test_dynamic_linear_loses_what_eight_bits_lose() -> None:
    rng = np.random.default_rng(3)
    x, w, bias = (
        rng.normal(size=(40, 256)).astype(FLOAT),
        rng.integers(-127, 128, (64, 256)).astype(np.int8),
        rng.normal(size=64).astype(FLOAT),
    )
    exact = x @ (w * FLOAT(0.01)).T + bias
    parts = [torch.from_numpy(v) for v in (x, w, w.sum(1, dtype=WIDE), np.array([0.01], FLOAT), bias)]
    for reduced, least in ((False, 38), (True, 32)):
        error = dynamic(*parts, None, reduce_range=reduced).numpy() - exact
        assert 10 * np.log10((exact**2).sum() / (error**2).sum()) > least


@pytest.mark.parametrize("rows", [1, 3, 9])
def test_weights_of_eight_bits(rows: int) -> None:
    rng = np.random.default_rng(4)
    x, w8 = rng.normal(size=(rows, 256)).astype(FLOAT), rng.integers(-128, 128, (48, 256)).astype(np.int8)
    scale = rng.uniform(0.5, 1, 48).astype(FLOAT)
    found = torch._weight_int8pack_mm(*map(torch.from_numpy, (x, w8, scale)))
    exact = x.astype(float) @ (w8 * scale[:, None].astype(float)).T
    assert abs(found.numpy() - exact).max() < 1e-6 * abs(exact).max()


# 48, 96 and 128 rows: bytes of 16, 32 and 64 rows lie side by side
@pytest.mark.parametrize("outs", [48, 96, 128])
@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("size", [32, 64, 256])
def test_weights_of_four_bits(outs: int, rows: int, size: int) -> None:
    rng = np.random.default_rng(4)
    x, w4 = rng.normal(size=(rows, 256)).astype(FLOAT), rng.integers(0, 16, (outs, 256)).astype(WIDE)
    pairs = rng.normal(size=(256 // size, outs, 2)).astype(FLOAT)
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.from_numpy(w4), 1)
    assert packed.shape == (outs, 128) and packed.dtype is torch.uint8
    found = torch._weight_int4pack_mm_for_cpu(torch.from_numpy(x), packed, size, torch.from_numpy(pairs))
    numbers = (w4.reshape(outs, -1, size) - 8.0) * pairs[..., 0].T[..., None] + pairs[..., 1].T[..., None]
    exact = x.astype(float) @ numbers.reshape(outs, 256).T
    assert abs(found.numpy() - exact).max() < 1e-6 * abs(exact).max()


def test_a_packed_weight_of_odd_rows_is_refused() -> None:
    with pytest.raises(RuntimeError, match="N divisible by 16, got 17"):
        torch._weight_int4pack_mm_for_cpu(
            torch.ones(1, 64), torch.zeros(17, 32, dtype=torch.uint8), 32, torch.ones(2, 17, 2)
        )
