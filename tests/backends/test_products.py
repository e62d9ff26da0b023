"""Tiles and packing of narrow dtypes, and products made of them, against NumPy."""

from __future__ import annotations

import ctypes
import itertools
import math

import numpy as np
import pytest

import rushlight as torch
from rushlight._backends.cpu.compile import build
from rushlight._backends.cpu.gemm import blas, product_choice
from rushlight._backends.cpu.gemm import prepare as product_rules
from rushlight._backends.cpu.gemm.gemm_form import Form
from rushlight._backends.cpu.gemm.product_spec import ProductShape, ProductTypes
from rushlight._backends.cpu.kernels import host
from rushlight._backends.cpu.launches import joined
from rushlight._backends.cpu.microkernels.amx_tile import AmxTile
from rushlight._backends.cpu.microkernels.panels import Pairs, Panels
from rushlight._backends.cpu.microkernels.register_tile import RegisterTile, register_tile
from rushlight._backends.cpu.program.assemble import compile_graph
from rushlight._backends.cpu.program.steps import ExternStep, KernelStep
from rushlight._backends.cpu.runtime import storage, stubs, threads
from rushlight._backends.null import compile_graph as null_compile
from rushlight._graph.core import trace
from rushlight._native import bitcast, f32, i32, load, native, store, u32
from rushlight._native.compiler import compile_unit
from rushlight._native.target import host_target
from rushlight._prims import build as build_values
from rushlight._prims.record import PRIMITIVES
from rushlight._schedule import scheduling
from rushlight._types.dtype import (
    BFLOAT16,
    COMPLEX64,
    COMPLEX128,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
)

WIDTHS = [w for w in (64, 32, 16) if w <= host_target().vector_bytes]
TOLERANCE = {"bfloat16": 5e-3, "float16": 6e-4, "float32": 1e-5, "float64": 1e-12}


def to_bits(x):
    """float32 as bfloat16, in 16 bits."""
    bits = x.astype(np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def from_bits(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


def encoded(x, dtype):
    return to_bits(x) if dtype is BFLOAT16 else x.astype(dtype.name)


def decoded(x, dtype):
    return from_bits(x) if dtype is BFLOAT16 else x.astype(np.float64)


def laid(x, layout):
    if layout == "transposed":
        return np.ascontiguousarray(x.T).T
    if layout == "apart":
        wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
        wide[::2, ::3] = x
        return wide[::2, ::3]
    return x


def aligned(shape, dtype):
    """An array that begins at a multiple of 64 bytes."""
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes].view(dtype).reshape(shape)


def run_tile(tile, a, b, c, add=0):
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3)(blas.part_addresses(tile)[tile.symbol])
    call(a.ctypes.data, b.ctypes.data, c.ctypes.data, tile.columns, a.shape[0], add)
    return c


def pair_tiles():
    own = [t for t in blas.host_tiles("bf16") if t.instruction]
    return own + [
        register_tile("bf16", w, r, f) for w, r, f in ((64, 32, True), (32, 16, True), (16, 16, False)) if w in WIDTHS
    ]


@pytest.mark.parametrize("tile", pair_tiles(), ids=lambda t: f"{t.rows}x{t.columns}{t.instruction}")
def test_a_tile_of_pairs_adds_the_second_product_first(tile):
    rng = np.random.default_rng(0)
    a, b = aligned((5, tile.rows, 2), np.uint16), aligned((5, tile.columns, 2), np.uint16)
    a[...], b[...] = to_bits(rng.standard_normal(a.shape)), to_bits(rng.standard_normal(b.shape))
    x, y = from_bits(a), from_bits(b)
    want = np.zeros((tile.rows, tile.columns), np.float32)
    for k, g in itertools.product(range(5), (1, 0)):
        want = want + x[k, :, None, g] * y[k, None, :, g]  # products of bfloat16 are exact in float32
    c = run_tile(tile, a, b, aligned(want.shape, np.float32))
    if tile.instruction == "bfdot":  # rounds to odd in between
        np.testing.assert_allclose(c, want, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(c, want)
    once = c.copy()
    np.testing.assert_allclose(run_tile(tile, a, b, c, add=1), 2 * once, rtol=1e-5, atol=1e-5)


def test_the_instruction_takes_subnormal_numbers_for_zero():
    tile = blas.host_tiles("bf16")[0]
    if tile.instruction != "vdpbf16ps":
        pytest.skip("needs AVX512-BF16")
    a, b = aligned((1, tile.rows, 2), np.uint16), aligned((1, tile.columns, 2), np.uint16)
    for left, right in ((0x0001, 0x7F00), (0x0080, 0x3F00)):  # 2**-133 * 2**127; 2**-126 * 0.5
        a[..., 0], b[..., 0] = left, right
        assert not run_tile(tile, a, b, aligned((tile.rows, tile.columns), np.float32)).any()


def product(forms, a, b, out_dtype):
    m, k = a.shape
    n = b.shape[1]
    strides = [tuple(s // x.itemsize for s in x.strides) for x in (a, b)]
    ints = np.array(blas.gemm_ints("f32", ProductShape(m, n, k, *strides)), np.int64)
    ints[3] = m * n * out_dtype.itemsize
    kernel = stubs.make_kernel_callable(blas.form_address(forms), "form")
    made = kernel(storage.from_owner(ints.ctypes.data, ints.nbytes, ints), a.ctypes.data, b.ctypes.data)
    return np.frombuffer(made, np.uint16 if out_dtype is BFLOAT16 else out_dtype.name).reshape(m, n)


def check(forms, m, n, k, layouts):
    source, result = forms[0].source, forms[0].result
    rng = np.random.default_rng(m * n + k)
    a, b = (encoded(rng.standard_normal(shape), source) for shape in ((m, k), (k, n)))
    got = product(forms, laid(a, layouts[0]), laid(b, layouts[1]), result)
    x, y = decoded(a, source).astype(np.float64), decoded(b, source).astype(np.float64)
    size = np.abs(x) @ np.abs(y)
    assert (np.abs(decoded(got, result) - x @ y) <= TOLERANCE[result.name] * np.maximum(size, 1e-3)).all()


SHAPES = (
    (1, 1, 1),
    (5, 3, 2),
    (14, 32, 30),
    (33, 70, 301),
    (8, 8, 64),
    (15, 600, 530),
    (500, 40, 7),
    (430, 10, 64),
    (401, 24, 600),
)
LAYOUTS = ("row-major", "transposed", "apart")
PAIRS = ((BFLOAT16, FLOAT32), (BFLOAT16, BFLOAT16), (FLOAT16, FLOAT32), (FLOAT16, FLOAT16), (FLOAT64, FLOAT64))


@pytest.mark.parametrize(("source", "result"), PAIRS, ids=lambda d: d.name)
def test_products_of_this_machine(source, result):
    forms = blas.host_forms(source, result)
    for shape, la, lb in itertools.product(SHAPES, LAYOUTS, LAYOUTS):
        check(forms, *shape, (la, lb))


@pytest.mark.parametrize("n", [1, 3, 8, 10, 16, 24, 33, 100])
def test_what_is_not_finite_stays_in_its_row(n):
    """Rows of few columns follow each other in the memory of the sums, closer than tiles are wide."""
    rng = np.random.default_rng(n)
    for m, k in ((45, 20), (45, 700)):
        a, b = encoded(rng.standard_normal((m, k)), BFLOAT16), encoded(rng.standard_normal((k, n)), BFLOAT16)
        a = np.array(a)
        a[3, 2], a[40, 0] = 0x7F80, 0x7FC0  # inf, NaN
        got = decoded(product(blas.host_forms(BFLOAT16, BFLOAT16), a, b, BFLOAT16), BFLOAT16)
        finite = np.isfinite(got).all(axis=1)
        assert not np.isfinite(got[[3, 40]]).any() and finite.sum() == m - 2


def test_short_sums_are_rounded_once():
    """Where all of k is one block the tile may write elements of the result itself."""
    rng = np.random.default_rng(12)
    for (m, n, k), la, lb in itertools.product(
        ((512, 70, 2), (33, 100, 3), (130, 64, 512), (64, 70, 100), (20, 40, 513)), LAYOUTS, LAYOUTS
    ):
        a, b = (laid(to_bits(rng.standard_normal(shape)), layout) for shape, layout in (((m, k), la), ((k, n), lb)))
        wide, narrow = (product(blas.host_forms(BFLOAT16, result), a, b, result) for result in (FLOAT32, BFLOAT16))
        np.testing.assert_array_equal(narrow, to_bits(wide))


@pytest.mark.parametrize("width", WIDTHS)
def test_products_of_other_machines(width):
    fma = host_target().fma and width > 16
    registers = 32 if width == 64 else 16
    for source, result, kind in ((BFLOAT16, BFLOAT16, "bf16"), (BFLOAT16, FLOAT32, "f32"), (FLOAT16, FLOAT16, "f32")):
        forms = (Form(source, result, register_tile(kind, width, registers, fma)),)
        for shape, layouts in itertools.product(
            SHAPES[2:5], (("row-major", "row-major"), ("transposed", "apart"), ("apart", "transposed"))
        ):
            check(forms, *shape, layouts)


def called(source, result, a, b, **strides):
    """The product by `product_call`, as programs run it."""
    shape = ProductShape(
        a.shape[-2], b.shape[-1], a.shape[-1], batch=a.shape[:-2],
        **{f"{x}_strides": tuple(s // v.itemsize for s in v.strides[-2:]) for x, v in (("a", a), ("b", b))},
        **{f"{x}_batch": tuple(s // v.itemsize for s in v.strides[:-2]) for x, v in (("a", a), ("b", b))},
        **strides,
    )  # fmt: skip
    multiply = joined(product_choice.product_call(ProductTypes(source, result), shape))
    made = multiply(a.ctypes.data, b.ctypes.data)
    return (
        np.frombuffer(made, np.uint16 if result is BFLOAT16 else result.name).reshape(*a.shape[:-1], b.shape[-1]).copy()
    )


@pytest.mark.parametrize(("source", "result"), [*PAIRS, (FLOAT32, FLOAT32)], ids=lambda d: d.name)
@pytest.mark.parametrize("way", ["generated", "auto"])
def test_large_products_and_batches(source, result, way, monkeypatch):
    monkeypatch.setattr(product_choice, "SHARED_WORK", 1 << 23)
    rng = np.random.default_rng(3)
    with blas.GEMM.scoped(way):
        for shape, k, columns in (((300,), 515, 281), ((37,), 1000, 640), ((3, 40), 30, 50), ((2, 1, 5), 9, 3)):
            for la, lb in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 2)):
                a = encoded(rng.standard_normal((*shape, k)), source)
                b = encoded(rng.standard_normal((*shape[:-1], k, columns)), source)
                if len(shape) == 1:
                    a, b = laid(a, LAYOUTS[la]), laid(b, LAYOUTS[lb])
                x, y = decoded(a, source).astype(np.float64), decoded(b, source).astype(np.float64)
                got = decoded(called(source, result, a, b), result)
                assert (np.abs(got - x @ y) <= TOLERANCE[result.name] * np.maximum(np.abs(x) @ np.abs(y), 1e-3)).all()


def test_a_large_product_has_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(4)
    a, b = (encoded(rng.standard_normal((700, 700)), BFLOAT16) for _ in range(2))
    before, results = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            results.append(called(BFLOAT16, BFLOAT16, a, b))
    finally:
        threads.set_num_threads(before)
    assert all((r == results[0]).all() for r in results[1:])


def test_a_result_that_lies_the_other_way_round(monkeypatch):
    monkeypatch.setattr(product_choice, "SHARED_WORK", 1 << 23)
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal((300, 300)).astype(np.float32) for _ in range(2))
    with blas.GEMM.scoped("generated"):
        got = called(FLOAT32, FLOAT32, a, b, c_strides=(1, 300))
    np.testing.assert_allclose(got.T, a @ b, rtol=1e-4, atol=1e-3)


def integer_forms(source):
    """All ways to multiply bytes that run here."""
    ways = [blas.host_forms(source, INT32, INT8)]
    for width in WIDTHS:
        ways.append((Form(source, INT32, register_tile("i16", width, 16, False), INT8),))
        if host_target().arch == "x86_64" and (width < 64 or host_target().has("avx512bw")):
            ways.append((Form(source, INT32, register_tile("i16", width, 16, False, "vpmaddwd"), INT8),))
    return ways


@pytest.mark.parametrize("source", [INT8, UINT8], ids=lambda d: d.name)
def test_bytes_give_exact_sums(source):
    rng = np.random.default_rng(6)
    low, high = (-128, 128) if source is INT8 else (0, 256)
    for m, n, k in ((1, 1, 1), (5, 9, 7), (30, 70, 301), (64, 33, 1100), (3, 40, 2500), (200, 8, 16)):
        a, b = rng.integers(low, high, (m, k)).astype(source.name), rng.integers(-128, 128, (k, n)).astype(np.int8)
        a[0], b[:, 0] = low, -128  # the largest sums
        for forms, la, lb in zip(
            integer_forms(source), itertools.cycle(LAYOUTS), itertools.cycle(LAYOUTS[::-1]), strict=False
        ):
            x, y = laid(a, la), laid(b, lb)
            multiply = joined(product_choice._shared(forms, ProductShape(m, n, k, x.strides, y.strides)))
            got = np.frombuffer(multiply(x.ctypes.data, y.ctypes.data), np.int32).reshape(m, n)
            np.testing.assert_array_equal(got, a.astype(np.int32) @ b.astype(np.int32))
            np.testing.assert_array_equal(product(forms, x, y, INT32), got)  # a rectangle at a time


@pytest.mark.parametrize("dtype", [INT8, UINT8, INT16, INT32, INT64], ids=lambda d: d.name)
def test_whole_numbers_wrap_as_they_should(dtype):
    rng = np.random.default_rng(7)
    info = np.iinfo(dtype.name)
    for m, n, k in ((3, 4, 5), (40, 50, 60), (210, 240, 230)):
        a, b = (rng.integers(info.min, info.max, shape, dtype=dtype.name) for shape in ((m, k), (k, n)))
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(called(dtype, dtype, a, laid(b, "transposed")), a @ b)


@native("f32(u16)", inline=True)
def as_float(x):
    return bitcast(f32, u32(x) << 16)


def _nothing(symbol):
    @native("void()", name=symbol)
    def nothing():
        """No tile registers are configured."""

    return nothing


def emulated(kind, instruction):
    """A matrix tile whose kernel is a plain loop: what is packed for the real one, and how it is called, can be tested anywhere."""
    tile = AmxTile(kind, instruction, held=True)
    signed, wide = instruction != "tdpbusd", kind == "amx_bf16"
    number = f32 if wide else i32

    @native("void(ptr, ptr, ptr, i64, i64, i64)", name=tile.symbol)
    def kernel(a, b, c, row, k, add):
        for i in range(32):
            for j in range(32):
                s = load(number, c, i * row + j) if add != 0 else number(0)
                for w in range(k):
                    for e in range(64 // (2 if wide else 1)):
                        if wide:
                            s += as_float(a.u16[w * 1024 + i * 32 + e]) * as_float(
                                b.u16[w * 1024 + e // 2 * 64 + j * 2 + e % 2]
                            )
                        elif signed:
                            s += i32(a.i8[w * 2048 + i * 64 + e]) * i32(b.i8[w * 2048 + e // 4 * 128 + j * 4 + e % 4])
                        else:
                            s += i32(a.u8[w * 2048 + i * 64 + e]) * i32(b.i8[w * 2048 + e // 4 * 128 + j * 4 + e % 4])
                store(number, c, i * row + j, s)

    begin, end = (_nothing(symbol) for symbol in tile.bounds)

    class Emulated(AmxTile):
        __slots__ = ()

        @property
        def key(self):
            return f"emulated {self.symbol}"

        @property
        def text(self):
            return "\n".join(
                [compile_unit([kernel, begin, end], host_target().arch), self.panels.text, self.transposer.text]
            )

    return Emulated(kind, instruction, held=True)


@pytest.mark.parametrize("instruction", ["tdpbf16ps", "tdpbssd", "tdpbusd"])
def test_operands_are_packed_for_matrix_tiles(instruction):
    kind = "amx_bf16" if instruction == "tdpbf16ps" else "amx_i8"
    source = {"tdpbf16ps": BFLOAT16, "tdpbssd": INT8, "tdpbusd": UINT8}[instruction]
    rng = np.random.default_rng(8)
    results = (FLOAT32, BFLOAT16) if source is BFLOAT16 else (INT32,)
    for result, (m, n, k) in itertools.product(results, ((1, 1, 1), (70, 40, 33), (33, 65, 1100), (64, 64, 64))):
        form = Form(source, result, emulated(kind, instruction), None if source is BFLOAT16 else INT8)
        if source is BFLOAT16:
            a, b = (to_bits(rng.integers(-8, 8, shape)) for shape in ((m, k), (k, n)))
            want = from_bits(a) @ from_bits(b)
        else:
            a = rng.integers(*((0, 256) if source is UINT8 else (-128, 128)), (m, k)).astype(source.name)
            b = rng.integers(-128, 128, (k, n)).astype(np.int8)
            want = a.astype(np.int32) @ b.astype(np.int32)
        for la, lb in zip(LAYOUTS, LAYOUTS[::-1], strict=True):
            x, y = laid(a, la), laid(b, lb)
            strides = [tuple(s // v.itemsize for s in v.strides) for v in (x, y)]
            multiply = joined(product_choice._shared([form], ProductShape(m, n, k, *strides)))
            made = np.frombuffer(
                multiply(x.ctypes.data, y.ctypes.data), np.uint16 if result is BFLOAT16 else result.name
            )
            np.testing.assert_array_equal(made, (to_bits(want) if result is BFLOAT16 else want).reshape(-1))
            if source is BFLOAT16:
                np.testing.assert_array_equal(product((form,), x, y, result).reshape(-1), made)


@pytest.mark.parametrize(
    ("kind", "instruction"), [("amx_bf16", "tdpbf16ps"), ("amx_i8", "tdpbssd"), ("amx_i8", "tdpbusd")]
)
def test_matrix_tiles_compile(kind, instruction):
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
    text = target.create_target_machine(
        cpu="sapphirerapids", features="+amx-tile,+amx-bf16,+amx-int8", opt=2
    ).emit_assembly(llvm.parse_assembly(AmxTile(kind, instruction).text))
    assert text.count(f"\t{instruction}\t") == 4 and text.count("tilestored") == 4 and text.count("tileloadd") == 8
    for word in ("ldtilecfg", "tilerelease"):
        assert text.count(word) == 1


def test_bfloat16_results_narrower_than_a_tile():
    """Matrix tiles write the right half of a tile's rows after the left half of the rows that follow."""
    rng = np.random.default_rng(10)
    for m, n, k in itertools.product((31, 32, 64, 100), (1, 3, 8, 17, 24, 31, 33, 40), (16, 33, 100)):
        a, b = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((m, k), (k, n)))
        found = torch.from_numpy(a).bfloat16() @ torch.from_numpy(b).bfloat16()
        assert torch.equal(found, torch.from_numpy(a @ b).bfloat16()), (m, n, k)


def test_nothing_to_sum_is_zero():
    forms = blas.host_forms(BFLOAT16, BFLOAT16)
    assert not product(forms, np.zeros((3, 0), np.uint16), np.zeros((0, 40), np.uint16), BFLOAT16).any()


MACHINES = (
    ("aarch64-unknown-linux-gnu", "+neon", RegisterTile("bf16", 4, 8, 3, True), "fmla"),
    ("aarch64-unknown-linux-gnu", "+neon,+bf16", RegisterTile("bf16", 4, 8, 3, True, "bfdot"), "bfdot"),
    (
        "x86_64-unknown-linux-gnu",
        "+avx512f,+avx512bw,+avx512bf16",
        RegisterTile("bf16", 16, 14, 2, True, "vdpbf16ps"),
        "vdpbf16ps",
    ),
    ("x86_64-unknown-linux-gnu", "+avx2,+fma", register_tile("bf16", 32, 16, True), "vfmadd"),
    (
        "x86_64-unknown-linux-gnu",
        "+avx512f,+avx512bw,+avx512vnni",
        RegisterTile("i8", 16, 14, 2, True, "vpdpbusd"),
        "vpdpbusd",
    ),
    ("aarch64-unknown-linux-gnu", "+neon,+dotprod", RegisterTile("i8", 4, 8, 3, True, "sdot"), "sdot"),
    ("aarch64-unknown-linux-gnu", "+neon", RegisterTile("i16", 4, 8, 3, True), "mla"),
)


@pytest.mark.parametrize(("triple", "features", "tile", "word"), MACHINES)
def test_tiles_of_pairs_compile_for_other_machines(triple, features, tile, word):
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(features=features, opt=2)
    text = machine.emit_assembly(llvm.parse_assembly(tile.text))
    both = tile.kind == "bf16" and not tile.instruction  # a step for each half of a word
    assert text.count(word) >= tile.rows * tile.vectors * (1 + both)


# ***** epilogues *****


def graph_of(body, *operands):
    """A graph over float operands; `body` gets values."""
    return trace(body, [(x.shape, dtype) for x, dtype in operands])


def run_graph(graph, operands, **given):
    program = compile_graph(
        graph, [tuple(s // x.itemsize for s in x.strides) for x, _ in operands], target=host(), **given
    )
    made = build(program)(*[x.ctypes.data for x, _ in operands])
    return program, made


def erf_of(x):
    return np.array([math.erf(v) for v in x.reshape(-1)]).reshape(x.shape)


def with_bias(p, row):
    return p + build_values.broadcast_to(row, p.shape)


EPILOGUES = {
    "bias": (with_bias, lambda p, row, full: p + row, False),
    "relu": (
        lambda p, row: PRIMITIVES["maximum"](with_bias(p, row), build_values.full_like(p, 0.0)), lambda p, row, full: np.maximum(p + row, 0), False,
    ),
    "gelu": (
        lambda p, row: 0.5 * p * (1 + PRIMITIVES["erf"](p * 0.5**0.5)) + build_values.broadcast_to(row, p.shape),
        lambda p, row, full: 0.5 * p * (1 + erf_of(p * 0.5**0.5)) + row, False,
    ),
    "silu and residual": (
        lambda p, full: 0.5 * full + p / (1 + PRIMITIVES["exp"](-p)),
        lambda p, row, full: 0.5 * full + p / (1 + np.exp(-p)), True,
    ),
    "tanh, scaled": (lambda p, row: 2.0 * PRIMITIVES["tanh"](with_bias(p, row)), lambda p, row, full: 2 * np.tanh(p + row), False),
}  # fmt: skip


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("way", ["generated", "blas"])
def test_pointwise_work_after_a_product_is_done_where_it_is_made(name, way):
    body, want, residual = EPILOGUES[name]
    rng = np.random.default_rng(11)
    for dtype, (batch, m, k, n) in itertools.product(
        (FLOAT32, FLOAT64), (((), 1, 7, 30), ((), 50, 40, 1), ((), 33, 300, 70), ((3, 2), 5, 9, 17))
    ):
        a, b = (rng.standard_normal((*batch, *s)).astype(dtype.name) for s in ((m, k), (k, n)))
        third = rng.standard_normal((*batch, m, n) if residual else (n,)).astype(dtype.name)
        operands = [(x, dtype) for x in (a, b, third)]
        with blas.GEMM.scoped(way):
            program, made = run_graph(graph_of(lambda x, y, z: body(build_values.dot(x, y), z), *operands), operands)
        assert [type(step) for step in program.steps] == [ExternStep] and program.steps[0].epilogue is not None
        expected = want(a.astype(np.float64) @ b, third, third)
        np.testing.assert_allclose(
            np.frombuffer(made, dtype.name).reshape(expected.shape), expected, rtol=2e-5, atol=2e-5
        )


def test_an_epilogue_rounds_as_if_the_product_had_been_stored(monkeypatch):
    rng = np.random.default_rng(12)
    a, b, row = (to_bits(rng.standard_normal(shape)) for shape in ((70, 300), (300, 90), (90,)))
    operands = [(x, BFLOAT16) for x in (a, b, row)]

    def body(x, y, z):
        total = build_values.convert(build_values.dot(x, y), FLOAT32) + build_values.broadcast_to(
            build_values.convert(z, FLOAT32), (70, 90)
        )
        return build_values.convert(total, BFLOAT16)

    program, made = run_graph(graph_of(body, *operands), operands)
    assert len(program.steps) == 1
    fused = np.frombuffer(made, np.uint16).copy()
    monkeypatch.setattr(scheduling, "fuse_epilogues", lambda found: None)
    program, made = run_graph(graph_of(body, *operands), operands)
    assert len(program.steps) == 2
    np.testing.assert_array_equal(fused, np.frombuffer(made, np.uint16))


def test_a_product_that_others_read_is_stored_by_its_epilogue():
    rng = np.random.default_rng(13)
    a, b = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    operands = [(a, FLOAT32), (b, FLOAT32)]

    def body(x, y):
        p = build_values.dot(x, y)
        return p + x, PRIMITIVES["sum"](p, dims=(0, 1))

    program, (total, added) = run_graph(graph_of(body, *operands), operands)
    assert program.steps[0].epilogue is not None and len(program.steps) == 2
    np.testing.assert_allclose(np.frombuffer(total, np.float32).reshape(40, 40), a @ b + a, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.frombuffer(added, np.float32), (a @ b).sum(), rtol=1e-3, atol=1e-2)


def test_a_product_that_is_repeated_along_another_dim_is_stored():
    rng = np.random.default_rng(14)
    a, b, c = (rng.standard_normal(shape).astype("float32") for shape in ((2, 1, 1, 3), (2, 1, 3, 1), (2, 1, 1, 5)))
    operands = [(x, FLOAT32) for x in (a, b, c)]
    _, made = run_graph(
        graph_of(lambda x, y, z: build_values.broadcast_to(build_values.dot(x, y), (2, 1, 1, 5)) * z, *operands),
        operands,
    )
    np.testing.assert_allclose(np.frombuffer(made, "float32").reshape(2, 1, 1, 5), (a @ b) * c, rtol=1e-6)


def test_memory_that_a_product_reads_is_not_overwritten_by_its_epilogue():
    rng = np.random.default_rng(14)
    a, b = (rng.standard_normal((40, 40)).astype(np.float32) for _ in range(2))
    want = a @ b + a
    operands = [(a, FLOAT32), (b, FLOAT32)]
    program, _ = run_graph(graph_of(lambda x, y: build_values.dot(x, y) + x, *operands), operands, aliases={0: 0})
    assert program.steps[0].epilogue is None
    np.testing.assert_allclose(a, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("source", [FLOAT32, BFLOAT16], ids=lambda d: d.name)
def test_a_large_product_with_an_epilogue_has_the_same_bits_for_any_number_of_threads(source, monkeypatch):
    monkeypatch.setattr(product_choice, "SHARED_WORK", 1 << 23)
    rng = np.random.default_rng(15)
    operands = [(encoded(rng.standard_normal(s), source), source) for s in ((350, 290), (290, 340), (350, 340))]
    before, results = threads.get_num_threads(), []
    wide = source.wide

    def body(x, y, z):
        total = build_values.dot(*(build_values.convert(v, wide) for v in (x, y)))
        return build_values.convert(total + 0.5 * build_values.convert(z, wide), source)

    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            program, made = run_graph(graph_of(body, *operands), operands)
            assert len(program.steps) == 1
            results.append(np.frombuffer(made, operands[0][0].dtype).copy())
    finally:
        threads.set_num_threads(before)
    assert all((r == results[0]).all() for r in results[1:])
    x, y, z = (decoded(v, source).astype(np.float64) for v, _ in operands)
    np.testing.assert_allclose(
        decoded(results[0], source).reshape(350, 340),
        x @ y + 0.5 * z,
        rtol=1e-2,
        atol=5e-4 if source is FLOAT32 else 0.2,
    )


@pytest.mark.parametrize("machine", ["x86-64-v3", "aarch64"])
def test_epilogues_compile_for_other_machines(machine):
    inputs = [((64, 64), FLOAT32), ((64, 64), FLOAT32), ((64,), FLOAT32)]
    graph = trace(lambda x, y, z: PRIMITIVES["tanh"](with_bias(build_values.dot(x, y), z)), inputs)
    compiled = null_compile(graph, machine=machine)
    assert compiled.calls == ["dot"] and len(compiled.kernels) == 1
    assert ("fmla" if machine == "aarch64" else "vfmadd") in compiled.kernels[0].assembly()


# ***** prologues *****


def turned(x):
    return build_values.transpose(x, (1, 0))


def along(row, x):
    return build_values.broadcast_to(row, x.shape)


def converted(x, dtype=BFLOAT16):
    return build_values.convert(x, dtype)


# body over two matrices and a vector of k, dtypes of the matrices, which operands have a prologue
PROLOGUES = {
    "casts": (lambda a, b, c: build_values.dot(converted(a), converted(b)), (FLOAT32, FLOAT32), [True, True]),
    "a cast": (lambda a, b, c: build_values.dot(a, converted(b)), (BFLOAT16, FLOAT32), [False, True]),
    "quantised weights": (
        lambda a, b, c: build_values.dot(a, converted(converted(b, FLOAT32) * along(build_values.reshape(c, (1100, 1)), b))),
        (BFLOAT16, INT8), [False, True],
    ),
    "a mask": (lambda a, b, c: build_values.dot(build_values.select(a > 0.0, a, 0.0), b), (FLOAT32, FLOAT32), [True, False]),
    "a scale, widened sums": (
        lambda a, b, c: PRIMITIVES["tanh"](0.01 * build_values.dot(converted(a * along(c, a)), b, FLOAT32)), (FLOAT32, BFLOAT16), [True, False],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROLOGUES)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_an_operand_of_a_large_product_is_made_while_it_is_packed(name, layout, monkeypatch):
    body, dtypes, made_here = PROLOGUES[name]
    monkeypatch.setattr(product_rules, "LARGE_WORK", 1 << 20)
    monkeypatch.setattr(product_choice, "SHARED_WORK", 1 << 20)  # a product that is not large may use other tiles
    rng = np.random.default_rng(16)
    m, k, n = 261, 1100, 270
    operands = []
    for dtype, way, shape in zip(dtypes, layout, ((m, k), (k, n)), strict=True):
        x = (
            rng.integers(-128, 127, shape).astype(np.int8)
            if dtype is INT8
            else encoded(rng.standard_normal(shape), dtype)
        )
        operands.append((np.ascontiguousarray(x.T) if way == "t" else x, dtype))
    operands.append((rng.standard_normal(k).astype(np.float32), FLOAT32))

    def laid_out(a, b, c):
        return body(turned(a) if layout[0] == "t" else a, turned(b) if layout[1] == "t" else b, c)

    # where vectors are short a library may multiply float32, and it reads operands from memory
    packed = name != "a mask" or host_target().vector_bytes == 64
    results, before = [], threads.get_num_threads()
    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            program, made = run_graph(graph_of(laid_out, *operands), operands)
            assert [type(step) for step in program.steps] == ([ExternStep] if packed else [KernelStep, ExternStep])
            assert [p is not None for p in program.steps[-1].prologues] == (made_here if packed else [])
            results.append(bytes(memoryview(made)))
    finally:
        threads.set_num_threads(before)
    assert len(set(results)) == 1
    if not packed:
        return
    monkeypatch.setattr(scheduling, "fuse_prologues", lambda found: None)
    with blas.GEMM.scoped("generated"):  # the library's sums have other bits
        program, made = run_graph(graph_of(laid_out, *operands), operands)
    assert len(program.steps) > 1 and bytes(memoryview(made)) == results[0]


def test_a_prologue_gives_the_product_of_what_it_makes(monkeypatch):
    monkeypatch.setattr(product_rules, "LARGE_WORK", 1 << 20)
    rng = np.random.default_rng(17)
    x, w, scale = (
        rng.standard_normal((300, 400)),
        rng.integers(-128, 127, (280, 400)).astype(np.int8),
        rng.random(280) / 100,
    )
    operands = [(x.astype(np.float32), FLOAT32), (w, INT8), (scale.astype(np.float32), FLOAT32)]

    def body(a, b, c):
        return build_values.dot(a, turned(converted(b, FLOAT32) * along(build_values.reshape(c, (280, 1)), b)))

    program, made = run_graph(graph_of(body, *operands), operands)
    assert [p is not None for p in program.steps[-1].prologues] == (
        [False, True] if host_target().vector_bytes == 64 else []
    )
    np.testing.assert_allclose(
        np.frombuffer(made, np.float32).reshape(300, 280), x @ (w * scale[:, None]).T, rtol=1e-4, atol=1e-3
    )


def test_what_others_read_or_a_product_overwrites_is_made_before_it(monkeypatch):
    monkeypatch.setattr(product_rules, "LARGE_WORK", 1 << 20)
    rng = np.random.default_rng(18)
    a, b = (rng.standard_normal((300, 300)).astype(np.float32) for _ in range(2))
    want = np.exp(a.astype(np.float64)) @ b
    operands = [(a, FLOAT32), (b, FLOAT32)]

    def both(x, y):
        e = PRIMITIVES["exp"](x)
        return build_values.dot(e, y), e

    program, (made, e) = run_graph(graph_of(both, *operands), operands)
    assert not any(p for step in program.steps if isinstance(step, ExternStep) for p in step.prologues)
    np.testing.assert_allclose(np.frombuffer(made, np.float32).reshape(300, 300), want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(np.frombuffer(e, np.float32).reshape(300, 300), np.exp(a), rtol=1e-6)
    want = want + a
    program, _ = run_graph(
        graph_of(lambda x, y: build_values.dot(PRIMITIVES["exp"](x), y) + x, *operands), operands, aliases={0: 0}
    )
    assert not any(p for step in program.steps if isinstance(step, ExternStep) for p in step.prologues)
    np.testing.assert_allclose(a, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("machine", ["x86-64-v3", "aarch64"])
def test_prologues_compile_for_other_machines(machine):
    graph = trace(
        lambda x, w: build_values.dot(converted(x), converted(turned(w))),
        [((1024, 1024), FLOAT32), ((1024, 1024), INT8)],
    )
    compiled = null_compile(graph, machine=machine)
    assert compiled.calls == ["dot"] and len(compiled.kernels) == 2
    assert all(kernel.assembly() for kernel in compiled.kernels)


# ***** complex numbers, small results of long sums *****


def drawn(rng, shape, dtype):
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape)).astype(dtype.name) if dtype.kind == "c" else encoded(x, dtype)


@pytest.mark.parametrize("dtype", [COMPLEX64, COMPLEX128], ids=lambda d: d.name)
@pytest.mark.parametrize("shared", [False, True], ids=["blocks", "packed once"])
def test_complex_products_by_tiles_of_real_numbers(dtype, shared, monkeypatch):
    if shared:
        monkeypatch.setattr(product_choice, "SHARED_WORK", 1)
        monkeypatch.setattr(product_choice, "SHARED_SIDE", 1)
    rng = np.random.default_rng(21)
    with blas.GEMM.scoped("generated"):
        for shape, k, n in (((1,), 1, 1), ((33,), 70, 51), ((130,), 515, 281), ((40,), 300, 9), ((3, 40), 30, 50)):
            for la, lb in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 2)):
                a, b = drawn(rng, (*shape, k), dtype), drawn(rng, (*shape[:-1], k, n), dtype)
                if len(shape) == 1:
                    a, b = laid(a, LAYOUTS[la]), laid(b, LAYOUTS[lb])
                want = a.astype(np.complex128) @ b
                np.testing.assert_allclose(
                    called(dtype, dtype, a, b), want, rtol=0, atol=TOLERANCE[dtype.to_real().name] * np.abs(want).max()
                )


@pytest.mark.parametrize("dtype", [COMPLEX64, COMPLEX128], ids=lambda d: d.name)
@pytest.mark.parametrize("size", [(8, 9, 8), (33, 40, 50), (400, 450, 340)])
def test_conjugated_operands_are_read_where_they_lie(dtype, size):
    rng = np.random.default_rng(22)
    m, k, n = size
    a, b = drawn(rng, (m, k), dtype), drawn(rng, (n, k), dtype)
    operands = [(a, dtype), (b, dtype)]
    conj, dot = PRIMITIVES["conj"], build_values.dot
    turned = lambda x: build_values.transpose(x, (1, 0))
    for body, want in (
        (lambda x, y: dot(conj(x), turned(y)), a.conj() @ b.T), (lambda x, y: dot(x, turned(conj(y))), a @ b.conj().T),
        (lambda x, y: dot(conj(x), conj(turned(y))) * 0.5, (a @ b.T).conj() / 2),
    ):  # fmt: skip
        program, made = run_graph(graph_of(body, *operands), operands)
        assert [step.params["conjugated"] != (False, False) for step in program.steps] == [True]
        got, tolerance = np.frombuffer(made, dtype.name).reshape(m, n), TOLERANCE[dtype.to_real().name]
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16, FLOAT16, COMPLEX64, INT64], ids=lambda d: d.name)
@pytest.mark.parametrize("size", [(4, 100000, 4), (16, 16384, 30), (7, 50021, 9)])
def test_long_sums_of_a_small_result_are_made_in_pieces(dtype, size):
    rng = np.random.default_rng(23)
    m, k, n = size
    if dtype is INT64:
        a, b = rng.integers(-1000, 1000, (m, k)), rng.integers(-1000, 1000, (k, n))
    else:
        a, b = drawn(rng, (m, k), dtype), drawn(rng, (k, n), dtype)
    operands = [(a, dtype), (b, dtype)]
    before, results = threads.get_num_threads(), []
    try:
        for count in (1, 2, 3, 8):
            threads.set_num_threads(count)
            program, made = run_graph(graph_of(build_values.dot, *operands), operands)
            results.append(np.frombuffer(made, a.dtype).copy().reshape(m, n))
    finally:
        threads.set_num_threads(before)
    assert any(isinstance(step, ExternStep) and step.inputs[0].shape[0] > 1 for step in program.steps)
    assert all((r == results[0]).all() for r in results[1:])
    x, y = (v if v.dtype.kind in "ic" else decoded(v, dtype).astype(np.float64) for v in (a, b))
    want = x.astype(np.complex128) @ y if dtype.kind == "c" else x @ y
    tolerance = {"bfloat16": 4e-3, "float16": 1e-3}.get(dtype.name, 1e-5)
    got = results[0] if dtype.kind in "ic" else decoded(results[0], dtype)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize(
    ("triple", "features"), [("aarch64-unknown-linux-gnu", "+neon"), ("x86_64-unknown-linux-gnu", "+avx2,+fma")]
)
def test_complex_packing_compiles_for_other_machines(triple, features):
    llvm = pytest.importorskip("llvmlite.binding")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(features=features, opt=2)
    for dtype, side, conjugated in itertools.product((COMPLEX64, COMPLEX128), "ab", (False, True)):
        lanes = (16 if "aarch64" in triple else 32) // dtype.to_real().itemsize
        pairs = Pairs(dtype, side, 6 if side == "a" else lanes, lanes, conjugated)
        assert pairs.symbol in machine.emit_assembly(llvm.parse_assembly(pairs.text))
        machine.emit_assembly(llvm.parse_assembly(Panels(dtype.itemsize, 1, 4).text))


def test_results_of_few_columns_fill_a_narrow_tile():
    rng = np.random.default_rng(24)
    for source, result in PAIRS:
        forms = blas.with_narrow(blas.host_forms(source, result))
        assert forms[-1].tile.vectors == 1
        for shape in ((16, 16, 16), (1000, 16, 16), (5, 3, 20), (50, 9, 300)):
            check(forms, *shape, ("row-major", rng.choice(LAYOUTS)))


@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64, BFLOAT16, COMPLEX64], ids=lambda d: d.name)
def test_many_tiny_products_are_one_loop_nest(dtype):
    rng = np.random.default_rng(25)
    for m, k, n in ((2, 2, 2), (3, 5, 1), (4, 4, 4), (8, 7, 9)):
        a, b = drawn(rng, (5, 30, m, k), dtype), drawn(rng, (5, 30, k, n), dtype)
        operands = [(a, dtype), (b, dtype)]
        program, made = run_graph(graph_of(build_values.dot, *operands), operands)
        assert [type(step) for step in program.steps] == [KernelStep]
        got, (x, y) = np.frombuffer(made, a.dtype).reshape(5, 30, m, n), (a, b)
        if dtype is BFLOAT16:
            got, x, y = from_bits(got), from_bits(a), from_bits(b)
        wide = np.complex128 if dtype.kind == "c" else np.float64
        np.testing.assert_allclose(got, x.astype(wide) @ y, rtol=0, atol=10 * TOLERANCE[dtype.to_real().name])


@pytest.mark.parametrize(("m", "n", "k"), [(127, 600, 768), (128, 300, 1030), (20, 500, 40), (500, 20, 64)])
def test_either_way_round_writes_the_same_product(run_python, monkeypatch, m, n, k):
    """Sizes that fill tiles of 6 x 16 badly in one direction, over one block of k and over several."""
    code = (
        "import numpy as np, rushlight as torch\n"
        f"r = np.random.default_rng(0); a = r.integers(-3, 4, ({m}, {k})).astype(np.float32); b = r.integers(-3, 4, ({k}, {n})).astype(np.float32)\n"
        "assert np.array_equal((torch.from_numpy(a) @ torch.from_numpy(b)).numpy(), a @ b)\n"
    )
    monkeypatch.setenv("RUSHLIGHT_VECTOR_BYTES", "32")
    monkeypatch.setenv("RUSHLIGHT_GEMM", "generated")
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
