"""Matrix products of the CUDA backend, by the reference interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.running import Device, close, operand, primitive

import rushlight
from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.dot import product_steps
from rushlight._backends.cuda.gemm.product import Epilogue, Place, Prologue
from rushlight._backends.cuda.gemm.tiles import TileShape, choose_tile, count_splits
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS, choose_group_tile
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._codegen.threads import lower
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT16, FLOAT32, FLOAT64, INT32, DType


@pytest.mark.parametrize("number", range(len(list(PRIMITIVES["dot"].samples()))))
def test_samples(number: int) -> None:
    arrays, params = list(PRIMITIVES["dot"].samples())[number]
    (found,) = primitive("dot", arrays, params)
    close(found, PRIMITIVES["dot"].reference(*arrays, **params))


SHAPES = ((70, 33, 50), (1, 40, 200), (150, 600, 1), (16, 2100, 16), (3, 5, 7))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "int32", "float16", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_forms(dtype: str, shape: tuple[int, int, int]) -> None:
    """Tiles with edges, vectors, long inner dims that are cut, transposed operands."""
    rows, depth, columns = shape
    a, b = any_dtype((2, rows, depth), dtype, 1), any_dtype((2, depth, columns), dtype, 2)
    params = {"dtype": BY_NAME[dtype]}
    expected = PRIMITIVES["dot"].reference(a, b, **params)
    for orders in ({}, {0: (0, 2, 1), 1: (2, 0, 1)}):
        (found,) = primitive("dot", [a, b], params, orders=orders)
        close(found, expected)


def test_bfloat16_and_bytes() -> None:
    a, b = any_dtype((40, 96), "float32", 1), any_dtype((96, 72), "float32", 2)
    a, b = (PRIMITIVES["convert"].reference(x, BFLOAT16) for x in (a, b))
    for dtype in (BFLOAT16, FLOAT32):
        (found,) = primitive("dot", [a, b], {"dtype": dtype}, dtypes=[BFLOAT16, BFLOAT16])
        close(found, PRIMITIVES["dot"].reference(a, b, dtype), "bfloat16" if dtype is BFLOAT16 else "float32")
    u, v = any_dtype((20, 70), "uint8", 1), any_dtype((70, 24), "int8", 2)
    (found,) = primitive("dot", [u, v], {"dtype": INT32})
    np.testing.assert_array_equal(found, u.astype(int) @ v.astype(int))


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_operands_that_are_repeated_along_rows_and_columns(dtype: str) -> None:
    """Strides of 0 in a matrix whose sizes are whole tiles, as the gradient of a sum has them."""
    rl: Any = rushlight
    a, b = (rl.arange(64 * 64).reshape(64, 64).remainder(n).to(getattr(rl, dtype)) for n in (5, 7))
    for x in (a[:1].expand(64, 64), a[:, :1].expand(64, 64), a[:1, :1].expand(64, 64)):
        for left, right in ((x, b), (b, x)):
            assert rl.equal((left.cuda() @ right.cuda()).cpu(), left @ right)
    leaf = a.cuda().requires_grad_()
    (leaf @ b.cuda()).sum().backward()
    assert rl.equal(leaf.grad.cpu(), b.sum(1).expand(64, 64))


def test_operands_that_are_broadcast() -> None:
    """Strides of 0 in the batch, as of `expand`."""
    a, b = any_dtype((3, 1, 20, 30), "float64", 1), any_dtype((1, 2, 30, 18), "float64", 2)

    (found,) = primitive("dot", [a, b], {"dtype": FLOAT64}, spreads={0: (3, 2, 20, 30), 1: (3, 2, 30, 18)})
    close(found, a @ b)


def test_epilogue_and_prologue() -> None:
    """relu(2 a b + bias) as float16, for a squared on the way in; with the inner dim cut, too."""
    a, b, bias = (
        any_dtype((50, 1100), "float32", 1),
        any_dtype((1100, 40), "float32", 2),
        any_dtype((40,), "float32", 3),
    )

    def declare(arguments: Arguments) -> Any:
        at, to = arguments.pointer(row, "bias"), arguments.pointer(out, "out")

        def emit(k: TermBuilder, sums: Term, place: Place) -> None:
            values = (arguments.term(k, at) + place.columns).load(place.columns < 40, 0.0)
            values = (sums * 2.0 + values).greatest(0.0)
            (arguments.term(k, to) + (place.rows * 40 + place.columns)).store(values, place.inside)

        return emit

    squared = Prologue(lambda arguments: lambda k, tile, place: tile * tile)
    tile = TileShape(32, 32, 32, 4, 2)
    expected = np.maximum(2 * (a.astype(np.float64) ** 2 @ b) + bias, 0)
    for splits in (1, 3):
        device = Device()
        x, y, row = (operand(device, v, FLOAT32, None, n) for v, n in ((a, "a"), (b, "b"), (bias, "bias")))
        out = operand(device, np.zeros((50, 40), np.float16), FLOAT16, None, "out")
        call = ExternCall("dot", [x, y], [out], {})
        device.run(
            product_steps(
                call, x, y, out, epilogue=Epilogue(declare), prologues=(squared, None), tile=tile, splits=splits
            )
        )
        close(device.data[out.memory].view(np.float16).reshape(50, 40), expected.astype(np.float16))


def _launches(way: str, dtype: DType, shape: tuple[int, int, int], orders: Any = (None, None), **options: Any) -> Any:
    """The steps of a product of arrays that begin at aligned addresses."""
    rows, depth, columns = shape
    device, holder = Device(), {1: np.uint8, 2: np.uint16, 4: np.float32}[dtype.itemsize]
    x, y, out = (
        operand(device, np.zeros(s, h), d, o, "x")
        for s, d, o, h in (
            ((rows, depth), dtype, orders[0], holder), ((depth, columns), dtype, orders[1], holder),
            ((rows, columns), FLOAT32, None, np.float32),
        )
    )  # fmt: skip
    with PRODUCTS.scoped(way):
        return product_steps(ExternCall("dot", [x, y], [out], {}), x, y, out, **options)


def _instructions(kernel: Any, architecture: str = "sm_90a") -> set[str]:
    return {i.kind for i in lower(kernel, architecture).body.walk()}


def test_operands_are_copied_ahead() -> None:
    """Addresses are known to be aligned, or loads would be of one element and no copy could be asynchronous."""
    (step,) = _launches("mma", BFLOAT16, (512, 256, 512))
    assert "copy_async" in _instructions(step.kernel, "sm_80")


def test_who_multiplies_by_warpgroups() -> None:
    e4m3 = BY_NAME["float8_e4m3fn"]
    wanted = lambda *given, **options: "wgmma" in _instructions(_launches("wgmma", *given, **options)[0].kernel)
    assert wanted(BFLOAT16, (512, 256, 512)) and wanted(BFLOAT16, (512, 256, 512), ((1, 0), (1, 0)))
    assert wanted(FLOAT32, (512, 256, 512), (None, (1, 0)), precision="tf32")
    assert wanted(e4m3, (512, 256, 512), (None, (1, 0))) and not wanted(e4m3, (512, 256, 512))
    assert not wanted(FLOAT32, (512, 256, 512), (None, (1, 0)), precision="ieee")
    assert not wanted(BFLOAT16, (512, 252, 512)) and not wanted(BFLOAT16, (48, 256, 512))


def test_tiles_of_warpgroups_by_the_model() -> None:
    """Large products take the widest tile, small ones more blocks."""

    def tile(rows: int, columns: int, depth: int) -> tuple[int, ...]:
        x = operand(Device(), np.zeros((1, 1), np.uint16), BFLOAT16, None, "x")
        return choose_group_tile(x, 1, rows, columns, depth)[:3]

    assert tile(8192, 8192, 8192) in ((128, 256, 64), (256, 128, 64))
    assert tile(1024, 1024, 4096)[0] * tile(1024, 1024, 4096)[1] <= 128 * 128
    assert tile(64, 4096, 4096)[0] == 64


def test_choices_depend_on_the_product_alone() -> None:
    assert choose_tile(BFLOAT16, FLOAT32, 1, 8192, 8192)[:3] == (128, 128, 64)
    assert choose_tile(BFLOAT16, FLOAT32, 1, 16, 4096)[:2] == (16, 64)
    tile = choose_tile(FLOAT16, FLOAT32, 1, 64, 64)
    assert count_splits(tile, 1, 64, 64, 65536) > 1 and count_splits(tile, 1, 64, 64, 256) == 1


# ***** on emulated GPUs *****

rl: Any = rushlight

E4M3, E5M2 = rl.float8_e4m3fn, rl.float8_e5m2


def _wide(x: Any) -> Any:
    return (
        x.detach().cpu().double().numpy()
        if x.dtype.is_floating_point and x.element_size() > 1
        else x.cpu().float().numpy().astype(float)
    )


def _near(found: Any, expected: Any, depth: int) -> None:
    """Float32 sums in any order, then one rounding: units of the result's dtype, and of float32 for each of `depth` sums."""
    unit = {rl.float32: 2.0**-23, rl.bfloat16: 2.0**-8, rl.float16: 2.0**-11}[found.dtype]
    bound = unit * np.abs(expected) + 2.0**-23 * depth * np.abs(expected).max()
    assert (np.abs(_wide(found) - expected) <= bound).all(), float(np.abs(_wide(found) - expected).max())


@pytest.mark.cuda
@pytest.mark.parametrize("way", ["mma", "wgmma"])
@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3)], ids=["e4m3", "e4m3-e5m2", "e5m2-e4m3"])
def test_scaled_products(way: str, dtypes: Any) -> None:
    """One scale, or one for each row and column; a bias; all in one kernel."""
    rl.manual_seed(1)
    a, b = rl.randn(96, 160).to(dtypes[0]), rl.randn(80, 160).to(dtypes[1]).t()
    scales = [(rl.tensor(0.5), rl.tensor(3.0)), (rl.rand(96, 1) + 0.5, rl.rand(1, 80) + 0.5)]
    bias = rl.randn(80, dtype=rl.bfloat16)
    with PRODUCTS.scoped(way):
        for first, second in scales:
            plain = _wide(a) @ _wide(b) * _wide(first) * _wide(second)
            given = [x.cuda() for x in (a, b, first, second)]
            _near(rl._scaled_mm(*given, out_dtype=rl.float32), plain, 160)
            _near(rl._scaled_mm(*given, bias=bias.cuda(), out_dtype=rl.bfloat16), plain + _wide(bias), 160)
            text = str(rl.explain(lambda *xs: rl._scaled_mm(*xs, out_dtype=rl.bfloat16))(*given))
            assert text.count("step ") == 1 and "product_f8" in text


@pytest.mark.cuda
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_scaled_products_of_nothing_are_zero(device: str) -> None:
    """A sum of no products times an infinite scale, and a bias."""
    a, b = (rl.ones(n, 0, device=device).to(E4M3) for n in (32, 16))
    scale, bias = rl.tensor(-rl.inf, device=device), rl.arange(16, device=device).to(rl.bfloat16)
    assert rl._scaled_mm(a, b.t(), scale, scale, out_dtype=rl.bfloat16).cpu().tolist() == [[0.0] * 16] * 32
    found = rl._scaled_mm(a, b.t(), scale, scale, bias=bias, out_dtype=rl.bfloat16)
    assert rl.equal(found, bias.expand(32, 16))


@pytest.mark.cuda
def test_scaled_products_that_gpus_do_not_have() -> None:
    a, b, one = rl.ones(16, 16).to(E4M3), rl.ones(16, 16).to(E4M3).t(), rl.tensor(1.0)
    bias = rl.ones(16, dtype=rl.bfloat16)
    for x, y, options, message in (
        (a.to(E5M2), b.to(E5M2), {}, "Multiplication of two Float8_e5m2 matrices is not supported"),
        (a, b, {"bias": bias, "out_dtype": rl.float32}, "Bias is not supported when out_dtype is set to Float32"),
        (a, b, {"bias": bias.float(), "out_dtype": rl.bfloat16}, "Bias must be either Half or BFloat16"),
        (a, b, {"bias": bias, "out_dtype": rl.float16}, "Bias must be torch.float16"),
    ):
        options = {"out_dtype": rl.bfloat16, **options}
        rl._scaled_mm(x, y, one, one, **options)  # the CPU has them all
        given = {k: v.cuda() if k == "bias" else v for k, v in options.items()}
        with pytest.raises(ValueError, match=message):
            rl._scaled_mm(x.cuda(), y.cuda(), one.cuda(), one.cuda(), **given)


@pytest.mark.cuda
@pytest.mark.parametrize("way", ["mma", "wgmma"])
def test_products_by_both_ways(way: str) -> None:
    """Edges, transposed and batched operands, unaligned ones, epilogues, integers, inner dims in parts."""
    rl.manual_seed(2)
    half = lambda *shape: rl.randn(*shape, dtype=rl.bfloat16)
    pairs = [
        (half(200, 136), half(136, 72)), (half(136, 200).t(), half(72, 136).t()), (half(3, 72, 96).transpose(1, 2), half(3, 72, 80)),
        (half(2048, 64).t(), half(2048, 64)), (half(64 * 64 + 1)[1:].view(64, 64), half(64, 64)),
    ]  # fmt: skip
    with PRODUCTS.scoped(way):
        for a, b in pairs:
            _near(a.cuda() @ b.cuda(), _wide(a) @ _wide(b), a.shape[-1])
        x, w, bias = half(128, 64), half(96, 64), half(96)
        found = rl.nn.functional.relu(rl.nn.functional.linear(*(t.cuda() for t in (x, w, bias))))
        _near(found, np.maximum(_wide(x) @ _wide(w).T + _wide(bias), 0), 64)
        images, taps = half(2, 72, 9, 8).contiguous(memory_format=rl.channels_last), half(80, 72, 1, 1)
        layer = rl.compile(lambda *given: rl.nn.functional.relu(rl.nn.functional.conv2d(*given)))
        found = layer(images.cuda(), taps.cuda())  # one tap: pixels by channels, the batch among the rows
        expected = np.einsum("nchw,oc->nohw", _wide(images), _wide(taps)[:, :, 0, 0])
        _near(found, np.maximum(expected, 0), 72)
        assert found.is_contiguous(memory_format=rl.channels_last)
        i, j = (rl.randint(-99, 99, (80, 160), dtype=rl.int8) for _ in range(2))
        np.testing.assert_array_equal(
            rl._int_mm(i.cuda(), j.cuda().t()).cpu().numpy(), i.numpy().astype(int) @ j.numpy().T.astype(int)
        )
