"""A matrix times a vector, where the numbers of each sum lie side by side, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.gemm import blas
from rushlight._backends.cpu.gemm.blas_native import KINDS
from rushlight._backends.cpu.gemm.product_choice import product_note
from rushlight._backends.cpu.gemm.product_spec import ProductShape, ProductTypes
from rushlight._backends.cpu.gemm.thin_native import is_thin, make_thin
from rushlight._backends.cpu.microkernels.row_tile import RowTile
from rushlight._backends.cpu.runtime import storage, stubs
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._native import jit
from rushlight._native.compiled import compile_native
from rushlight._native.target import host_target
from rushlight._types.dtype import FLOAT32

NUMBERS = {"f32": np.float32, "f64": np.float64}
STEPS = (1, 3, 15, 16, 17, 31, 64, 65, 127, 150, 1000)


def compiled(tile):
    data = compile_native([make_thin(tile.kind, KINDS[tile.kind][1], tile)])
    image = jit.load(data, [f"rl_thin_{tile.kind}"], {**runtime().symbols, **blas.part_addresses(tile)})
    return stubs.make_kernel_callable(image[f"rl_thin_{tile.kind}"], "thin"), image


TILES = [("f32", 16, True), ("f32", 4, False), ("f64", 8, True), ("f64", 4, True), ("f64", 2, False)]


@pytest.mark.parametrize("kind, lanes, fma", [each for each in TILES if host_target().fma or not each[2]])
def test_every_width_of_vectors(kind, lanes, fma):
    kernel, kept = compiled(RowTile(kind, lanes, fma))
    rng, dtype = np.random.default_rng(0), NUMBERS[kind]
    for k in STEPS:
        for n, as_row in ((1, True), (5, True), (5, False)):
            whole = rng.standard_normal((n, k + 3)).astype(dtype)  # rows lie apart
            x, out = rng.standard_normal(k).astype(dtype), np.full(2 * n + 1, 7, dtype)
            shape = (
                ProductShape(1, n, k, (k, 1), (1, k + 3), (2 * n, 2))
                if as_row
                else ProductShape(n, 1, k, (k + 3, 1), (1, 1), (2, 1))
            )
            assert is_thin(shape)
            operands = (x, whole) if as_row else (whole, x)
            words = np.array(blas.gemm_ints(kind, shape, allocate=False), dtype=np.int64)
            held = storage.from_owner(words.ctypes.data, words.nbytes, words)
            kernel(held, out.ctypes.data, *(each.ctypes.data for each in operands))
            want = whole[:, :k].astype(np.float64) @ x
            assert np.abs(out[: 2 * n : 2] - want).max() <= 4 * np.finfo(dtype).eps * k**0.5 * np.abs(x).max()
            assert (out[1::2] == 7).all() and (n == 1 or out[-1] == 7)
    assert kept is not None


def test_which_products_are_read_where_they_lie():
    types = ProductTypes(FLOAT32, FLOAT32)
    weight = (1, 512)  # of a layer, read transposed
    assert "sums of rows" in product_note(types, ProductShape(1, 300, 512, None, weight))
    assert "sums of rows" in product_note(types, ProductShape(300, 1, 512))
    assert "sums of rows" not in product_note(types, ProductShape(1, 300, 512))
    assert "sums of rows" not in product_note(types, ProductShape(2, 300, 512, None, weight))
    assert "sums of rows" in product_note(types, ProductShape(1, 8, 24, None, (1, 24)))
    assert "sums of rows" not in product_note(types, ProductShape(1, 8, 12, None, (1, 12)))
    assert not is_thin(ProductShape(1, 300, 512, (512, 2), weight))
    assert not is_thin(ProductShape(1, 0, 512, None, weight))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bits_depend_on_the_steps_alone(dtype):
    torch.manual_seed(0)
    weight, x, bias = (torch.randn(*size, dtype=dtype) for size in ((700, 333), (1, 333), (700,)))
    linear = torch.nn.functional.linear
    whole = linear(x, weight)
    assert torch.equal(linear(x, weight[17:40]), whole[:, 17:40])
    many = torch.matmul(x.expand(3, 1, 333), weight.t().expand(3, 333, 700))
    assert torch.equal(many, whole.expand(3, 1, 700))

    def step(x):
        return torch.nn.functional.gelu(linear(x, weight, bias)) + bias

    assert torch.equal(torch.compile(step)(x), step(x))
