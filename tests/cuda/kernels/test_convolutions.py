"""Convolutions of the CUDA backend, by the reference interpreter, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.running import close, primitive

import rushlight
from rushlight._backends.cuda.conv.conv import convolution_steps
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.tiles import TileShape
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._codegen.threads import lower
from rushlight._prims import PRIMITIVES
from rushlight._prims.samples import any_dtype
from rushlight._types.dtype import BFLOAT16, BY_NAME

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


@pytest.mark.parametrize("way", range(3))
def test_rows_of_images_that_are_neighbours_in_memory(way: int) -> None:
    """The gradient by weights over channels-last images: rows go tap by tap, so that tiles are copied without gathering."""
    arrays, params = case((24, 1, 4, 9, 9), (1, 16, 4, 9, 9), "float16", lo=(1, 1), size=(3, 3))
    (found,) = primitive(
        "conv_windows", arrays, params, orders={0: (2, 3, 4, 1, 0), 1: (2, 3, 4, 0, 1)}, build=ways()[way]
    )
    close(found, PRIMITIVES["conv_windows"].reference(*arrays, **params))


def test_the_gradient_by_weights_copies_ahead_of_time() -> None:
    x, w, out = (Memory(0) for _ in range(3))
    call = ExternCall(
        "conv_windows",
        [
            Operand(x, BFLOAT16, (128, 1, 32, 28, 28), (1, 0, 28 * 28 * 128, 28 * 128, 128)),
            Operand(w, BFLOAT16, (1, 256, 32, 28, 28), (0, 1, 28 * 28 * 256, 28 * 256, 256)),
        ],
        [Operand(out, BFLOAT16, (128, 1, 256, 3, 3), (1, 0, 9 * 128, 3 * 128, 128))],
        {"stride": (1, 1), "spread": (1, 1), "dilation": (1, 1), "lo": (1, 1), "size": (3, 3), "flip": False},
    )
    (step,) = convolution_steps(call)
    assert isinstance(step, Launch)
    kinds = [i.kind for i in lower(step.kernel, "sm_80").body.walk()]
    assert {"copy_async", "mma"} <= set(kinds) and "load" not in kinds


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


@pytest.mark.cuda
def test_pointwise_work_behind_a_gradient_by_weights() -> None:
    """Its epilogue finds the elements of rows that go tap by tap."""
    rl.manual_seed(7)
    x = rl.randn(3, 16, 6, 6).cuda().contiguous(memory_format=rl.channels_last)
    ct = rl.randn(3, 24, 6, 6).cuda().contiguous(memory_format=rl.channels_last)
    w = rl.randn(24, 16, 3, 3).cuda()

    def stepped(x: Any, ct: Any, w: Any) -> Any:
        made = rl.ops.aten.convolution_backward(
            ct, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False]
        )
        return w - 0.1 * made[1]

    found, expected = rl.compile(stepped)(x, ct, w), stepped(x, ct, w)
    assert rl.equal(found, expected)
    rl.testing.assert_close(expected.cpu(), stepped(x.cpu(), ct.cpu(), w.cpu()), rtol=1e-4, atol=1e-4)
    assert str(rl.explain(rl.compile(stepped))(x, ct, w)).count("step ") == 1
