"""Products that are computed where their operands lie: against NumPy, bit for bit across layouts, for vectors of every width."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.gemm import blas, product_choice
from rushlight._backends.cpu.gemm.product_spec import ProductShape, ProductTypes
from rushlight._backends.cpu.gemm.small_native import is_small, small_ints
from rushlight._backends.cpu.microkernels.small_tile import SmallTile
from rushlight._backends.cpu.runtime import storage, stubs
from rushlight._native.target import host_target

DTYPES = {"f32": np.float32, "f64": np.float64}
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
LAYOUTS = ("contiguous", "transposed", "rows apart", "steps", "expanded")
TILES = [
    SmallTile(kind, nbytes // DTYPES[kind]().itemsize, fma)
    for kind in DTYPES
    for nbytes in (16, 32, 64)
    for fma in (False, True)
    if nbytes <= host_target().vector_bytes and (not fma or host_target().fma)
]


def laid_out(values, layout):
    """The same numbers with other strides; `expanded` repeats the first row."""
    rows, columns = values.shape
    if layout == "transposed":
        return values.T.copy().T
    if layout == "expanded":
        return np.broadcast_to(values[:1], values.shape)
    if layout == "contiguous":
        return values
    step = 1 if layout == "rows apart" else 3
    room = np.full((2 * rows, step * columns + 3), np.nan, values.dtype)
    room[::2, : step * columns : step] = values
    return room[::2, : step * columns : step]


def product(kernel, kind, a, b):
    """a @ b in the middle of a larger array, whose other elements must stay as they are; None where it is not small."""
    (m, k), n = a.shape, b.shape[1]
    around = np.full((m + 2, n + 5), 7, a.dtype)
    c = around[1:-1, 2:-3]
    strides = [tuple(s // x.itemsize for s in x.strides) for x in (a, b, c)]
    shape = ProductShape(m, n, k, *strides)
    if not is_small(shape, a.itemsize, blas.SMALL_WORK[kind]):
        return None
    words = np.array(small_ints(blas.gemm_ints(kind, shape, allocate=False), shape, a.itemsize), dtype=np.int64)
    held = storage.from_owner(words.ctypes.data, words.nbytes, words)
    kernel(held, c.ctypes.data, a.ctypes.data, b.ctypes.data)
    found = c.copy()
    c[...] = 7
    assert (around == 7).all()
    return found


def kernel_of(tile):
    return stubs.make_kernel_callable(blas.small_address(tile.kind, tile), "small")


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.kind}-{t.lanes}-{'fma' if t.fma else 'apart'}")
def test_all_sizes_and_layouts(tile):
    kernel, dtype = kernel_of(tile), DTYPES[tile.kind]
    rng = np.random.default_rng(0)
    pairs = list(itertools.product(LAYOUTS, LAYOUTS))
    for number, (m, n, k) in enumerate(itertools.product(SIZES, SIZES, (1, 3, 5, 8, 33))):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        a, b = (laid_out(x, layout) for x, layout in zip((a, b), pairs[number % len(pairs)], strict=True))
        wide = [x.astype(np.longdouble) for x in (a, b)]
        bound = k * np.finfo(dtype).eps * (abs(wide[0]) @ abs(wide[1]))
        found = product(kernel, tile.kind, a, b)
        assert found is None or (abs(found - wide[0] @ wide[1]) <= bound).all(), (m, n, k)


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.kind}-{t.lanes}-{'fma' if t.fma else 'apart'}")
def test_bits_depend_on_the_numbers_alone(tile):
    """Neither strides nor the sizes of the result decide in which order a sum is added."""
    kernel, dtype = kernel_of(tile), DTYPES[tile.kind]
    rng = np.random.default_rng(1)
    for m, n, k in ((6, 19, 30), (9, 5, 17), (3, 40, 32), (33, 4, 8)):
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        want = product(kernel, tile.kind, a, b)
        for la, lb in itertools.product(LAYOUTS[:4], LAYOUTS[:4]):
            assert (product(kernel, tile.kind, laid_out(a, la), laid_out(b, lb)) == want).all(), (la, lb)
        for i, j in itertools.product(range(m), range(0, n, 3)):
            assert product(kernel, tile.kind, a[i : i + 1], b[:, j : j + 1]) == want[i, j]


def test_zeros_nans_and_infinities_spread():
    a, b = torch.zeros(4, 5), torch.ones(5, 9)
    a[1, 2], a[2, 0], b[3, 7] = torch.nan, torch.inf, -torch.inf
    want = np.zeros((4, 9), np.float32)
    want[1], want[2], want[:, 7] = np.nan, np.inf, np.nan
    np.testing.assert_array_equal((a @ b).numpy(), want)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("sizes", [(1, 4, 4), (8, 32, 32), (5, 3, 10), (1, 1, 7), (3, 9, 70), (2, 6, 5)], ids=str)
def test_compiled_layers_and_their_gradients_equal_eager(dtype, sizes):
    m, k, n = sizes
    torch.manual_seed(0)
    layer = torch.nn.Linear(k, n, dtype=dtype)
    batch, weights = torch.randn(3, m, k, dtype=dtype), torch.randn(3, k, n, dtype=dtype)

    def step(x):
        y = torch.relu(layer(x)) @ weights[0].mT
        z = torch.bmm(torch.sigmoid(batch * x), weights)
        (y.sum() + z.sum()).backward()
        return y, z, x.grad, layer.weight.grad, layer.bias.grad

    found = []
    for call in (step, torch.compile(step, fullgraph=True)):
        layer.zero_grad()
        x = torch.linspace(-1, 1, m * k, dtype=dtype).reshape(m, k).requires_grad_()
        found.append([t.detach().clone() for t in call(x)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "steps", "columns"), [(10000, 16, 8), (9999, 16, 8), (4096, 30, 7), (9973, 16, 8), (20000, 2, 6)]
)
def test_many_rows_by_a_small_matrix_are_blocks(rows: int, steps: int, columns: int, kind: str) -> None:
    """Blocks of rows where they lie, with what follows the product in them; of numbers of rows that 16 does not divide there are none."""
    dtype = getattr(torch, kind)
    x, w, b = (torch.randn(*size, dtype=dtype) for size in ((rows, steps), (columns, steps), (columns,)))
    types, shape = ProductTypes(x._spec.dtype, x._spec.dtype), ProductShape(rows, columns, steps)
    blocks = product_choice._in_blocks(types, shape)
    assert (blocks is None) == (rows % 16 != 0)
    assert blocks is None or (
        blocks.m * blocks.batch[0] == rows and "where they lie" in product_choice.product_note(types, shape)
    )
    exact = x.double().numpy() @ w.double().numpy().T
    bound = steps * (2.0**-23 if kind == "float32" else 2.0**-52) * (x.abs().double() @ w.abs().double().t()).numpy()
    product = x @ w.t()
    assert (abs(product.double().numpy() - exact) <= bound).all()
    f = lambda x, w, b: torch.relu(torch.nn.functional.linear(x, w, b))
    assert torch.equal(f(x, w, b), torch.relu(product + b)) and torch.equal(torch.compile(f)(x, w, b), f(x, w, b))
    column = torch.empty(columns, rows, dtype=dtype).t()
    assert (abs(torch.mm(x, w.t(), out=column).double().numpy() - exact) <= bound).all()
