"""Matrix products against NumPy, for all layouts."""

from __future__ import annotations

import ctypes
import itertools
import os

import numpy as np
import pytest

from rushlight._backends.cpu.gemm import blas
from rushlight._backends.cpu.gemm.blas_native import make_gemm
from rushlight._backends.cpu.gemm.product_spec import ProductShape
from rushlight._backends.cpu.microkernels.register_tile import register_tile
from rushlight._backends.cpu.runtime import storage, stubs, threads
from rushlight._native.target import host_target
from rushlight._native.types import i32

DTYPES = {
    "f32": "f4",
    "f64": "f8",
    "c64": "c8",
    "c128": "c16",
    "i64": "i8",
    "i32": "i4",
    "i16": "i2",
    "i8": "i1",
    "u8": "u1",
}
BLAS_KINDS = ("f32", "f64", "c64", "c128")


def held(words):
    array = np.array(words, dtype=np.int64)
    return storage.from_owner(array.ctypes.data, array.nbytes, array)


def steps(array, dims):
    return tuple(s // array.itemsize for s in array.strides[dims])


def product(kind, a, b, kernel=None, out=None, **scalars):
    """a @ b by the kernel, reading and writing the arrays where and as they lie."""
    *batch, m, k = a.shape
    n = b.shape[-1]
    operands = (a, b) if out is None else (a, b, out)
    strides = {f"{name}_strides": steps(x, slice(-2, None)) for name, x in zip("abc", operands, strict=False)}
    batches = {f"{name}_batch": steps(x, slice(None, -2)) for name, x in zip("abc", operands, strict=False)}
    shape = ProductShape(m, n, k, batch=batch, **strides, **batches)
    ints = held(blas.gemm_ints(kind, shape, allocate=out is None, **scalars))
    call = kernel or blas.gemm_kernel(kind)
    if out is not None:
        assert call(ints, out.ctypes.data, a.ctypes.data, b.ctypes.data) is None
        return out
    return np.frombuffer(call(ints, a.ctypes.data, b.ctypes.data), DTYPES[kind]).reshape(*batch, m, n)


def random(kind, shape, seed=0):
    rng = np.random.default_rng(seed)
    if kind[0] in "iu":
        return rng.integers(0 if kind[0] == "u" else -5, 5, shape).astype(DTYPES[kind])
    x = rng.standard_normal(shape)
    if kind[0] == "c":
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(DTYPES[kind])


LAYOUTS = ("contiguous", "transposed", "rows apart", "steps", "row expanded", "column expanded")


def laid_out(kind, batch, rows, columns, layout, seed=0):
    if layout == "contiguous":
        return random(kind, (*batch, rows, columns), seed)
    if layout == "transposed":
        return random(kind, (*batch, columns, rows), seed).swapaxes(-1, -2)
    if layout == "rows apart":
        return random(kind, (*batch, rows, columns + 3), seed)[..., :columns]
    if layout == "steps":
        return random(kind, (*batch, 2 * rows, 3 * columns), seed)[..., ::2, ::3]
    if layout == "row expanded":
        return np.broadcast_to(random(kind, (*batch, 1, columns), seed), (*batch, rows, columns))
    return np.broadcast_to(random(kind, (*batch, rows, 1), seed), (*batch, rows, columns))


def close(got, want):
    single = got.dtype in (np.float32, np.complex64)
    np.testing.assert_allclose(got, want, rtol=2e-4 if single else 1e-11, atol=2e-4 if single else 1e-11)


@pytest.mark.parametrize("kind", DTYPES)
def test_all_layouts(kind):
    sizes = [(1, 1, 1), (1, 7, 5), (6, 1, 4), (3, 4, 1), (9, 8, 10), (10, 30, 20), (1, 40, 50), (40, 1, 50)]
    for (m, n, k), la, lb in itertools.product(sizes, LAYOUTS, LAYOUTS):
        a, b = laid_out(kind, (), m, k, la, 1), laid_out(kind, (), k, n, lb, 2)
        with np.errstate(invalid="ignore"):  # NumPy's library multiplies what lies beyond a row too, and then drops it
            want = a @ b
        close(product(kind, a, b), want)


@pytest.mark.parametrize("kind", ["f32", "c128", "i32"])
def test_batches(kind):
    for batch in ((3,), (2, 3), (1, 2), (2, 1, 3)):
        for la, lb in itertools.product(LAYOUTS[:4], LAYOUTS[:4]):
            a, b = laid_out(kind, batch, 5, 12, la, 1), laid_out(kind, batch, 12, 11, lb, 2)
            close(product(kind, a, b), a @ b)
    a = np.broadcast_to(random(kind, (3, 1, 4, 6)), (3, 2, 4, 6))
    b = np.broadcast_to(random(kind, (2, 6, 5)), (3, 2, 6, 5))
    close(product(kind, a, b), a @ b)
    b = random(kind, (2, 3, 6, 5)).swapaxes(0, 1)
    close(product(kind, a, b), a @ b)


@pytest.mark.parametrize("kind", DTYPES)
def test_empty(kind):
    for batch, m, n, k in (
        ((), 0, 3, 4),
        ((), 3, 0, 4),
        ((), 3, 4, 0),
        ((0,), 3, 4, 5),
        ((2,), 3, 40, 0),
        ((), 0, 0, 0),
        ((2, 0), 1, 1, 1),
    ):
        got = product(kind, random(kind, (*batch, m, k)), random(kind, (*batch, k, n)))
        assert got.shape == (*batch, m, n)
        assert not got.any()


@pytest.mark.parametrize("kind", [*BLAS_KINDS, "i64"])
@pytest.mark.parametrize("size", [3, 30])
def test_alpha_beta_and_a_given_result(kind, size):
    alpha, beta = (2 - 1j, 0.5 + 2j) if kind[0] == "c" else (2.0, 3.0)
    a, b = random(kind, (size, size + 1), 1), random(kind, (size + 1, size + 2), 2)
    for layout in ("contiguous", "transposed", "rows apart", "steps"):
        c = laid_out(kind, (), size, size + 2, layout, 3)
        want = alpha * (a @ b) + beta * c
        close(product(kind, a, b, out=c, alpha=alpha, beta=beta), want.astype(c.dtype))
        if kind[0] != "i":
            c[...] = np.nan  # beta 0 overwrites what is there
            close(product(kind, a, b, out=c), a @ b)


@pytest.mark.parametrize("kind", BLAS_KINDS)
def test_alpha_and_beta_with_vectors_and_nothing_to_sum(kind):
    for m, n, k in ((1, 50, 30), (50, 1, 30), (50, 1, 0), (4, 5, 0)):
        a, b, c = random(kind, (m, k), 1), random(kind, (k, n), 2), random(kind, (m, n), 3)
        want = 0.5 * (a @ b) + 2 * c
        close(product(kind, a, b, out=c, alpha=0.5, beta=2.0), want)


def test_nan_and_inf_spread():
    a, b = np.zeros((20, 20), np.float32), np.ones((20, 20), np.float32)
    a[3, 4], b[4, 5] = np.inf, 0
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(product("f32", a, b), a @ b)
        np.testing.assert_array_equal(product("f32", a[:4, :8], b[:8, :6]), a[:4, :8] @ b[:8, :6])


@pytest.mark.parametrize(
    ("m", "n", "k"), [(300, 200, 150), (1, 5000, 600), (4000, 1, 700), (513, 129, 1000), (64, 64, 20_000)]
)
def test_large_products_have_the_same_bits_for_any_number_of_threads(m, n, k):
    a, b = random("f32", (m, k), 1), random("f32", (k, n), 2)
    before = threads.get_num_threads()
    results = []
    try:
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            results.append(product("f32", a, b).copy())
    finally:
        threads.set_num_threads(before)
    np.testing.assert_allclose(results[0], a.astype(np.float64) @ b, rtol=1e-3, atol=1e-2)
    assert all((r == results[0]).all() for r in results[1:])


def test_pieces_cover_every_size():
    rng = np.random.default_rng(0)
    for _ in range(300):
        m, n, k, total = (int(2 ** rng.uniform(0, top)) for top in (13, 13, 12, 8))
        tile_m, tile_n, chunk = blas._split(m, n, k, total)
        assert tile_m >= 1 and tile_n >= 1 and 1 <= chunk <= total
        assert -(-m // tile_m) * -(-n // tile_n) <= 256


@pytest.mark.parametrize("kind", BLAS_KINDS)
def test_without_a_library(kind):
    """Plain loops, as on a machine without BLAS."""
    function = make_gemm(kind, False, i32, False)
    plain = stubs.make_kernel_callable(stubs.native_address(function), "plain")
    for m, n, k in ((1, 1, 1), (5, 4, 3), (30, 20, 40), (1, 30, 20), (30, 1, 20), (3, 4, 0)):
        for la, lb in itertools.product(LAYOUTS[:4], LAYOUTS[:4]):
            a, b = laid_out(kind, (), m, k, la, 1), laid_out(kind, (), k, n, lb, 2)
            close(product(kind, a, b, kernel=plain), a @ b)


_NO_NUMPY = """
import sys
from rushlight._backends.cpu.gemm import blas
assert blas.gemm_address("f32")
print("numpy" in sys.modules, blas.blas().path)
"""


def test_the_library_is_found_without_numpy(run_python, monkeypatch):
    done = run_python("-c", _NO_NUMPY, check=True)
    assert done.stdout.startswith("False")
    monkeypatch.setenv("RUSHLIGHT_BLAS_LIBRARY", "none")
    assert run_python("-c", _NO_NUMPY, check=True).stdout.split() == ["False", "None"]
    monkeypatch.setenv("RUSHLIGHT_BLAS_LIBRARY", os.devnull)
    assert run_python("-c", _NO_NUMPY).returncode != 0


def test_numpys_own_threads_are_left_alone():
    library = blas.blas()
    if not library.gated:
        pytest.skip("this BLAS has no threads of its own")
    get = ctypes.CFUNCTYPE(ctypes.c_int)(library.symbols["rl_blas_get_threads"])
    before = get()
    a = random("f32", (300, 300))
    product("f32", a, a)
    assert get() == before


@pytest.mark.parametrize("kind", BLAS_KINDS)
def test_a_library_that_is_wrong_is_not_used(kind, monkeypatch):
    """Emulators and new processors have made libraries choose kernels that give wrong products; NumPy shows them as they are."""
    there = blas.blas()
    if there.path is None:
        pytest.skip("needs a BLAS library")
    assert there.multiplies(kind) and blas.library_for(kind) is there
    wrong = blas.Blas(there._library, there.path)
    silent = ctypes.CFUNCTYPE(None)(lambda: None)  # leaves what it should write as it was
    wrong.symbols[f"rl_cblas_{blas.KINDS[kind][0]}gemm"] = ctypes.cast(silent, ctypes.c_void_p).value
    for name, value in (("_BLAS", [wrong]), ("_LOADED", {}), ("_KERNELS", {})):
        monkeypatch.setattr(blas, name, value)
    with pytest.warns(RuntimeWarning, match=f"wrong results for products of {kind}"):
        assert blas.library_for(kind).path is None
    others = [k for k in BLAS_KINDS if k != kind]
    assert all(blas.library_for(k) is wrong for k in others) and blas.prefers_own(kind)
    a, b = random(kind, (64, 2), 1), random(kind, (2, 16), 2)
    with blas.GEMM.scoped("blas"):
        close(product(kind, a, b), a @ b)
    assert not wrong.multiplies(kind)  # told once


# ***** our own kernels *****

TILES = [register_tile(kind, width, registers, fma) for kind in ("f32", "f64")
         for width, registers, fma in ((64, 32, True), (32, 16, True), (16, 16, False), (16, 32, True))
         if width <= host_target().vector_bytes and (not fma or host_target().fma)]  # fmt: skip


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.kind}-{t.rows}x{t.columns}")
def test_tiles_of_every_width(tile):
    kernel = stubs.make_kernel_callable(blas.tiled_address(tile.kind, (tile,), blas.Blas(None, None)), "tiled")
    for m, n, k in ((4, 8, 40), (tile.rows, tile.columns, 30), (33, 70, 300), (200, 65, 21)):
        for la, lb in itertools.product(LAYOUTS, LAYOUTS):
            a, b = laid_out(tile.kind, (), m, k, la, 1), laid_out(tile.kind, (), k, n, lb, 2)
            close(product(tile.kind, a, b, kernel=kernel), a @ b)
    a, b = random(tile.kind, (30, 270), 1), random(tile.kind, (270, 50), 2)
    for layout in LAYOUTS[:4]:
        c = laid_out(tile.kind, (), 30, 50, layout, 3)
        want = 2 * (a @ b) + 3 * c
        close(product(tile.kind, a, b, kernel=kernel, out=c, alpha=2.0, beta=3.0), want)
        c[...] = np.nan
        close(product(tile.kind, a, b, kernel=kernel, out=c), a @ b)
    for beta in (0.0, 3.0):  # what lies beside a result is left alone
        around = np.full((32, 90), 7, a.dtype)
        want = a @ b + beta * 7
        close(product(tile.kind, a, b, kernel=kernel, out=around[:30, 20:70], beta=beta), want)
        assert (around[30:] == 7).all() and (around[:, :20] == 7).all() and (around[:, 70:] == 7).all()


@pytest.mark.parametrize("tile", TILES, ids=lambda t: f"{t.kind}-{t.rows}x{t.columns}")
def test_complex_products_by_tiles_of_every_width(tile):
    kind = {"f32": "c64", "f64": "c128"}[tile.kind]
    kernel = stubs.make_kernel_callable(blas.tiled_address(kind, (tile,), blas.Blas(None, None)), "tiled")
    for m, n, k in ((4, 8, 40), (33, 70, 150), (100, 35, 21)):
        for la, lb in itertools.product(LAYOUTS[:3], LAYOUTS[:3]):
            a, b = laid_out(kind, (), m, k, la, 1), laid_out(kind, (), k, n, lb, 2)
            close(product(kind, a, b, kernel=kernel), a @ b)


def test_own_kernels_have_the_same_bits_for_any_number_of_threads():
    kernel = blas.gemm_kernel("f32", generated=True)
    a, b = random("f32", (600, 700), 1), random("f32", (700, 530), 2)
    before = threads.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            results.append(product("f32", a, b, kernel=kernel).copy())
    finally:
        threads.set_num_threads(before)
    np.testing.assert_allclose(results[0], a.astype(np.float64) @ b, rtol=1e-3, atol=1e-3)
    assert all((r == results[0]).all() for r in results[1:])


def test_own_kernels_serve_where_there_is_no_library():
    kernel = stubs.make_kernel_callable(
        blas.tiled_address("f64", blas.host_tiles("f64"), blas.Blas(None, None)), "alone"
    )
    for m, n, k in ((1, 30, 20), (30, 1, 20), (3, 4, 0), (60, 70, 80)):
        a, b = random("f64", (m, k), 1), random("f64", (k, n), 2)
        close(product("f64", a, b, kernel=kernel), a @ b)


def test_the_choice_of_kernels_is_checked():
    with blas.GEMM.scoped("fast"), pytest.raises(ValueError, match="must be auto, fixed, blas or generated"):
        blas.gemm_address("f32")
    with blas.GEMM.scoped("generated"):
        a = random("f32", (40, 40), 1)
        close(product("f32", a, a), a @ a)


def test_tiles_compile_for_arm():
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(features="+neon", opt=2)
    text = machine.emit_assembly(llvm.parse_assembly(register_tile("f32", 16, 32, True).text))
    assert text.count("fmla") >= 24, "the tile must stay in vector registers"
