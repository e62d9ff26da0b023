"""Products by matrix tiles (AMX) of sizes around every edge of a tile, on whole numbers, whose sums are exact; on
processors that have them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.gemm import blas, product_choice
from rushlight._backends.cpu.gemm.choice import amx_works
from rushlight._backends.cpu.gemm.product_spec import ProductShape
from rushlight._backends.cpu.runtime import storage, stubs
from rushlight._types.dtype import BFLOAT16, FLOAT32, INT8, INT32, UINT8

pytestmark = pytest.mark.skipif(
    not (amx_works("amx_bf16") and amx_works("amx_i8")), reason="this processor or system has no matrix tiles (AMX)"
)
SIDES = (1, 2, 8, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 70)
STEPS = (1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 34, 61, 62, 63, 64, 65, 66, 67, 70)
# beyond a block of columns, of rows, of steps
BLOCKS = ((385, 513, 33), (33, 545, 1025), (400, 40, 1057), (31, 31, 2049), (70, 1030, 64))
TYPES = ((BFLOAT16, BFLOAT16, BFLOAT16), (BFLOAT16, BFLOAT16, FLOAT32), (INT8, INT8, INT32), (UINT8, INT8, INT32))
STALE = 77  # what memory around operands and results holds
MARGIN = 64


def raw(dtype):
    return np.uint16 if dtype is BFLOAT16 else np.dtype(dtype.name).type


def stored(x, dtype):
    """Whole numbers as elements of a dtype, rounded to nearest even."""
    if dtype is not BFLOAT16:
        return x.astype(dtype.name)
    bits = x.astype(np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def laid(x, layout):
    """The same elements: by rows, by columns, or apart from each other."""
    if layout == 1:
        return np.ascontiguousarray(x.T).T
    if layout == 2:
        wide = np.full((2 * x.shape[0], 3 * x.shape[1]), STALE, x.dtype)
        wide[::2, ::3] = x
        return wide[::2, ::3]
    return x


class Product:
    """Products of two dtypes by the kernel of this machine, written into memory whose surroundings must not change."""

    def __init__(self, source, other, result):
        forms = product_choice._product_forms(source, result, None if other is source else other)
        assert [form.tile.kind for form in forms] == ["amx_bf16" if source is BFLOAT16 else "amx_i8"]
        self.types, self.group = (source, other, result), forms[0].tile.group
        self.kernel = stubs.make_kernel_callable(blas.form_address(forms), "form")
        self.rng = np.random.default_rng(len(source.name) + len(result.name))

    def numbers(self, dtype, *shape):
        low, high = {BFLOAT16: (-4, 5), INT8: (-128, 128), UINT8: (0, 256)}[dtype]
        return self.rng.integers(low, high, shape)

    def check(self, m, n, k, layouts):
        source, other, result = self.types
        x, y = self.numbers(source, m, k), self.numbers(other, k, n)
        a, b = laid(stored(x, source), layouts[0]), laid(stored(y, other), layouts[1])
        c_strides = ((n, 1), (1, m), (n + 5, 1))[layouts[2]]
        held = np.full(2 * MARGIN + (m - 1) * c_strides[0] + (n - 1) * c_strides[1] + 1, STALE, raw(result))
        wanted = held.copy()
        self(a, b, held, c_strides)
        placed(wanted, (m, n), c_strides)[...] = stored(x @ y, result)
        assert np.array_equal(held, wanted), (m, n, k, layouts)

    def __call__(self, a, b, held, c_strides):
        strides = [tuple(step // x.itemsize for step in x.strides) for x in (a, b)]
        shape = ProductShape(a.shape[0], b.shape[1], a.shape[1], *strides, c_strides)
        words = blas.gemm_ints("f32", shape, itemsize=held.itemsize, at_once=self.group, allocate=False)
        ints, at = np.array(words, np.int64), held.ctypes.data + MARGIN * held.itemsize
        self.kernel(storage.from_owner(ints.ctypes.data, ints.nbytes, ints), at, a.ctypes.data, b.ctypes.data)

    def spoil(self):
        """Leave what is not finite in the memory that products are packed into."""
        source, other, result = self.types
        a, b = (np.full((300, 300), 0x7FC0 if d is BFLOAT16 else 127, raw(d)) for d in (source, other))
        self(a, b, np.zeros(300 * 300 + 2 * MARGIN, raw(result)), (300, 1))


def placed(held, shape, strides):
    steps = tuple(step * held.itemsize for step in strides)
    return np.lib.stride_tricks.as_strided(held[MARGIN:], shape, steps)


@pytest.mark.parametrize("types", TYPES, ids=lambda types: "-".join(d.name for d in types))
def test_every_edge_of_a_tile(types):
    product, layouts = Product(*types), itertools.cycle(itertools.product(range(3), repeat=3))
    for number, sizes in enumerate((*itertools.product(SIDES, SIDES, STEPS), *BLOCKS * 27)):
        if number % 100 == 0:
            product.spoil()
        product.check(*sizes, next(layouts))


def relu_of_layer(x: Any, w: Any, bias: Any, y: Any) -> Any:
    return torch.relu(torch.nn.functional.linear(x, w.mT, bias)) + y


def scaled(x: Any, w: Any, bias: Any, y: Any) -> Any:
    return torch.addmm(y, x, w, beta=2, alpha=3)


def transposed(x: Any, w: Any, bias: Any, y: Any) -> Any:
    return (w.mT @ x.mT).mT * 2 - bias


def made(x: Any, w: Any, bias: Any, y: Any) -> Any:
    return torch.where(x > 0, x, torch.zeros_like(x)) @ (w + w) + y


def batched(x: Any, w: Any, bias: Any, y: Any) -> Any:
    return torch.baddbmm(torch.stack((y, -y)), torch.stack((x, -x)), torch.stack((w, w * 2)))


FORMS = (relu_of_layer, scaled, transposed, made, batched)
MEANT = {
    relu_of_layer: lambda x, w, bias, y: np.maximum(x @ w + bias, 0) + y,
    scaled: lambda x, w, bias, y: 2 * y + 3 * (x @ w),
    transposed: lambda x, w, bias, y: 2 * (x @ w) - bias,
    made: lambda x, w, bias, y: np.maximum(x, 0) @ (2 * w) + y,
    batched: lambda x, w, bias, y: np.stack((y + x @ w, -y - 2 * x @ w)),
}
SIZES = ((5, 3, 10), (17, 33, 31), (31, 65, 1), (197, 40, 64), (40, 64, 96), (64, 30, 33), (300, 50, 20), (1, 70, 35))


def operands(m, n, k, seed):
    """Numbers so small that bfloat16 holds every sum."""
    rng = np.random.default_rng(seed)
    sparse = rng.integers(-1, 2, (m, k)) * (rng.random((m, k)) < 32 / max(k, 32))
    return sparse, rng.integers(-1, 2, (k, n)), rng.integers(-4, 5, n), rng.integers(-4, 5, (m, n))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_work_around_a_product(form):
    for number, (m, n, k) in enumerate(SIZES):
        values = operands(m, n, k, number)
        given = [torch.from_numpy(v.astype(np.float32)).bfloat16() for v in values]
        want = MEANT[form](*values).astype(np.float32)
        for call in (form, torch.compile(form)):
            np.testing.assert_array_equal(call(*given).float().numpy(), want, str((m, n, k)))


def test_work_after_a_product_of_bytes():
    def form(a: Any, b: Any, y: Any) -> Any:
        return torch.relu(torch._int_mm(a, b) * 2 + y)

    rng = np.random.default_rng(1)
    for m, n, k in itertools.product((17, 31, 33, 64, 197), (8, 24, 40, 512), (8, 16, 56, 72)):
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((m, k), (k, n)))
        y = rng.integers(-9, 9, (m, n)).astype(np.int32)
        given, want = [torch.from_numpy(x) for x in (a, b, y)], np.maximum(a.astype(np.int32) @ b * 2 + y, 0)
        for call in (form, torch.compile(form)):
            np.testing.assert_array_equal(call(*given).numpy(), want, str((m, n, k)))
