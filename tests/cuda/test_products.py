"""Matrix products of the CUDA backend, by the reference interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.running import Device, close, operand, primitive

from rushlight._backends.cuda.arguments import Arguments
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.dot import product_steps
from rushlight._backends.cuda.gemm.product import Epilogue, Place, Prologue
from rushlight._backends.cuda.gemm.tiles import TileShape, choose_tile, count_splits
from rushlight._codegen.blocks.expressions import Term, TermBuilder
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype
from rushlight._types.dtype import BFLOAT16, BY_NAME, FLOAT16, FLOAT32, FLOAT64, INT32


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


def test_choices_depend_on_the_product_alone() -> None:
    assert choose_tile(BFLOAT16, FLOAT32, 1, 8192, 8192)[:3] == (128, 128, 64)
    assert choose_tile(BFLOAT16, FLOAT32, 1, 16, 4096)[:2] == (16, 64)
    tile = choose_tile(FLOAT16, FLOAT32, 1, 64, 64)
    assert count_splits(tile, 1, 64, 64, 65536) > 1 and count_splits(tile, 1, 64, 64, 256) == 1
