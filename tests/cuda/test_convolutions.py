"""Convolutions of the CUDA backend, by the reference interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.running import close, primitive

import rushlight
from rushlight._backends.cuda.conv.conv import convolution_steps
from rushlight._backends.cuda.gemm.tiles import TileShape
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype
from rushlight._types.dtype import BY_NAME

TILE = TileShape(32, 16, 16, 4, 2)


def ways() -> list[Any]:
    return [
        None,
        lambda call: convolution_steps(call, tile=TILE),
        lambda call: convolution_steps(call, tile=TILE, splits=3),
    ]


@pytest.mark.parametrize("way", range(3))
def test_samples(way: int) -> None:
    """Directly, as a product, and with the inner dim cut."""
    for arrays, params in PRIMITIVES["conv_windows"].samples():
        (found,) = primitive("conv_windows", arrays, params, build=ways()[way])
        close(found, PRIMITIVES["conv_windows"].reference(*arrays, **params))


def case(x: Any, w: Any, dtype: str, **given: Any) -> Any:
    n = len(x) - 3
    ones = (1,) * n
    params = {"stride": ones, "spread": ones, "dilation": ones, "lo": (0,) * n, "size": (), "flip": False, **given}
    return [any_dtype(x, dtype, 1), any_dtype(w, dtype, 2), any_dtype(w[:2], dtype, 3)], {
        **params,
        "dtype": BY_NAME[dtype],
    }


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("last", [False, True])
def test_images(dtype: str, last: bool) -> None:
    """A layer with padding, a strided one, a transposed one, depthwise, the gradient by weights; channels first and last."""
    cases = [
        case((2, 1, 16, 9, 10), (1, 24, 16, 3, 3), dtype, lo=(1, 1), size=(9, 10)),
        case((2, 1, 8, 9, 9), (1, 16, 8, 3, 3), dtype, lo=(1, 1), stride=(2, 2), size=(5, 5)),
        case((2, 1, 8, 5, 5), (1, 16, 8, 3, 3), dtype, lo=(1, 1), spread=(2, 2), size=(9, 9), flip=True),
        case((2, 12, 1, 9, 9), (12, 1, 1, 3, 3), dtype, lo=(1, 1), size=(9, 9)),
        case((5, 1, 4, 9, 9), (1, 16, 4, 9, 9), dtype, lo=(1, 1), size=(3, 3)),
    ]
    order = (0, 3, 4, 1, 2) if last else (0, 1, 2, 3, 4)
    for arrays, params in cases:
        (found,) = primitive("conv_windows", arrays, params, orders={0: order})
        close(found, PRIMITIVES["conv_windows"].reference(*arrays, **params))


def test_a_long_inner_dim_is_cut() -> None:
    arrays, params = case((2, 1, 16, 33, 33), (1, 16, 16, 33, 33), "float32", lo=(1, 1), size=(3, 3))
    (found,) = primitive("conv_windows", arrays, params)
    close(found, PRIMITIVES["conv_windows"].reference(*arrays, **params))
    assert np.isfinite(found).all()


rl: Any = rushlight


def _layer(x: Any, w: Any, bias: Any, mean: Any, scale: Any, r: Any, groups: int) -> Any:
    f = rl.nn.functional
    y = f.conv2d(x, w, bias, padding=1, groups=groups)
    return f.relu(f.batch_norm(y, mean, scale, scale, bias, False) + r)


@pytest.mark.cuda
@pytest.mark.parametrize("groups", [1, 16])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_compiled_layers_are_one_launch_and_have_the_bits_of_eager(dtype: str, groups: int) -> None:
    """Convolution, bias, batch norm, residual and activation, in both memory formats; depthwise, too."""
    rl.manual_seed(6)
    kind = getattr(rl, dtype)
    shapes = (2, 16, 5, 7), (16, 16 // groups, 3, 3), (16,), (16,)
    x, w, bias, mean = (rl.randn(s, dtype=kind).cuda() for s in shapes)
    scale, r = rl.rand(16, dtype=kind).cuda() + 0.5, rl.randn_like(x)
    for layout in (rl.contiguous_format, rl.channels_last):
        given = (x.contiguous(memory_format=layout), w, bias, mean, scale, r.contiguous(memory_format=layout), groups)
        made, expected = rl.compile(_layer), _layer(*given)
        found = made(*given)
        assert rl.equal(found, expected) and found.stride() == expected.stride()
        assert str(rl.explain(made)(*given)).count("step ") == 1
