"""Convolutions by warpgroups: tiles of windows that bulk copies bring, in the twin and by the reference interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.cuda.running import close
from tests.threads.twins import compare

import rushlight
from rushlight._backends.cuda.conv.conv import convolution_steps
from rushlight._backends.cuda.externs import ExternCall
from rushlight._backends.cuda.gemm.warpgroups import PRODUCTS
from rushlight._backends.cuda.program.steps import Launch, Memory, Operand
from rushlight._codegen.threads import lower
from rushlight._prims import PRIMITIVES
from rushlight._types.dtype import BY_NAME, FLOAT32


class Layer:
    """A convolution of float16 over arrays, whose dims lie in some order, the outermost first."""

    def __init__(self, images: Any, weights: Any, orders: Any = None, dtype: str = "float16", **given: Any) -> None:
        ones = (1,) * (len(images) - 3)
        self.params = {
            "stride": ones,
            "spread": ones,
            "dilation": ones,
            "lo": tuple(0 for _ in ones),
            "flip": False,
            **given,
        }
        channels_last = (0, 1, *range(3, len(images)), 2)
        self.orders = orders or (channels_last, channels_last)
        self.arrays: dict[Memory, Any] = {}
        self.dtype = BY_NAME[dtype]
        random = np.random.default_rng(0)
        of_result = (images[0], 1, weights[1], *self.params["size"])
        self.x, self.w = (
            self.operand(random.integers(-3, 4, [shape[d] for d in order]).astype(dtype), order)
            for shape, order in zip((images, weights), self.orders, strict=True)
        )
        self.out = self.operand(np.zeros(of_result, dtype), range(len(of_result)))
        with PRODUCTS.scoped("wgmma"):
            self.steps = convolution_steps(
                ExternCall("conv_windows", [self.x, self.w], [self.out], self.params), splits=1
            )

    def operand(self, laid: Any, order: Any) -> Operand:
        memory, places = Memory(laid.nbytes), np.argsort(order)
        self.arrays[memory] = laid
        strides = [laid.strides[d] // laid.itemsize for d in places]
        return Operand(memory, self.dtype, [laid.shape[d] for d in places], strides)

    def launch(self) -> tuple[Launch, list[Any]]:
        (step,) = self.steps
        assert isinstance(step, Launch)
        return step, [self.arrays[a.memory] if isinstance(a, Operand) else a for a in step.arguments]

    def kinds(self) -> set[str]:
        return {i.kind for i in lower(self.launch()[0].kernel, "sm_90a").body.walk()}

    def expected(self) -> Any:
        both = [
            self.arrays[v.memory].transpose(np.argsort(order))
            for v, order in zip((self.x, self.w), self.orders, strict=True)
        ]
        return PRIMITIVES["conv_windows"].reference(*(a.astype(np.float32) for a in both), **self.params, dtype=FLOAT32)


TO_WEIGHTS = ((2, 3, 4, 1, 0), (2, 3, 4, 0, 1))
CASES = {
    "padded": lambda: Layer((2, 1, 64, 9, 10), (1, 72, 64, 3, 3), lo=(1, 1), size=(9, 10)),
    "strided, channels that fill no tile": lambda: Layer((3, 1, 72, 11, 9), (1, 64, 72, 3, 3), lo=(1, 1), stride=(2, 2), size=(6, 5)),
    "dilated": lambda: Layer((2, 1, 64, 9, 9), (1, 64, 64, 3, 3), lo=(2, 2), dilation=(2, 2), size=(9, 9)),
    "gradient by images": lambda: Layer(
        (2, 1, 64, 9, 9), (1, 64, 64, 3, 3), ((0, 1, 3, 4, 2), (0, 2, 3, 4, 1)), lo=(1, 1), size=(9, 9), flip=True
    ),
    "gradient by weights": lambda: Layer((128, 1, 3, 9, 9), (1, 64, 3, 5, 5), TO_WEIGHTS, lo=(1, 1), size=(3, 3), dilation=(2, 2)),
    "one dim": lambda: Layer((2, 1, 64, 50), (1, 64, 64, 5), lo=(2,), size=(50,)),
    "three dims": lambda: Layer((2, 1, 64, 3, 4, 5), (1, 64, 64, 3, 1, 3), lo=(1, 0, 1), size=(3, 4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_twins_of_windows(name: str) -> None:
    layer = CASES[name]()
    assert {"wgmma", "tile_copy"} <= layer.kinds()
    step, arguments = layer.launch()
    places = [k for k, a in enumerate(step.arguments) if isinstance(a, Operand)]
    found = dict(zip(places, compare(step.kernel, step.grid, arguments, rtol=0, atol=0), strict=True))
    close(next(v for k, v in found.items() if step.arguments[k] is layer.out), layer.expected(), "float16")


OTHERS = {
    "channels first": lambda: Layer((2, 1, 64, 9, 9), (1, 64, 64, 3, 3), ((0, 1, 2, 3, 4),) * 2, lo=(1, 1), size=(9, 9)),
    "spread": lambda: Layer((2, 1, 64, 5, 5), (1, 64, 64, 3, 3), lo=(1, 1), spread=(2, 2), size=(9, 9)),
    "groups": lambda: Layer((2, 2, 64, 9, 9), (2, 64, 64, 3, 3), lo=(1, 1), size=(9, 9)),
    "few channels": lambda: Layer((2, 1, 32, 9, 9), (1, 64, 32, 3, 3), lo=(1, 1), size=(9, 9)),
    "far taps": lambda: Layer((1, 1, 64, 9, 400), (1, 64, 64, 1, 3), dilation=(1, 150), size=(9, 100)),
    "far padding": lambda: Layer((1, 1, 64, 9, 9), (1, 64, 64, 3, 3), lo=(0, 130), size=(7, 100)),
    "long steps": lambda: Layer((1, 1, 64, 9, 99), (1, 64, 64, 3, 3), stride=(1, 9), size=(7, 9)),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_windows_cannot_be_is_gathered(name: str) -> None:
    assert "tile_copy" not in OTHERS[name]().kinds()


@pytest.mark.cuda
def test_a_layer_on_a_device() -> None:
    """Forward, activation and both gradients, beside float32 on the CPU."""
    rl: Any = rushlight
    rl.manual_seed(8)
    x = rl.randn(2, 72, 8, 8, dtype=rl.float16).contiguous(memory_format=rl.channels_last)
    layer = rl.nn.Conv2d(72, 64, 3, 2, 1, dtype=rl.float16).to(memory_format=rl.channels_last)

    def run(device: str, dtype: Any) -> list[Any]:
        given, weights = (v.detach().to(device, dtype).requires_grad_() for v in (x, layer.weight))
        bias = layer.bias.detach().to(device, dtype)
        y = rl.relu(rl.nn.functional.conv2d(given, weights, bias, 2, 1))
        made = rl.autograd.grad(y.float().square().sum(), [given, weights])
        return [v.detach().cpu().float() for v in (y, *made)]

    with PRODUCTS.scoped("wgmma"):
        found = run("cuda", rl.float16)
    for v, expected in zip(found, run("cpu", rl.float32), strict=True):
        rl.testing.assert_close(v, expected, rtol=4e-3, atol=4e-3 * float(expected.abs().max()))
