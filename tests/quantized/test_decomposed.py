"""`torch.ops.quantized_decomposed`: quantization of plain tensors of integers, against NumPy."""

from __future__ import annotations

import importlib
import itertools
from typing import Any

import numpy as np
import pytest

import rushlight as torch

importlib.import_module("rushlight.ao.quantization.fx._decomposed")
ops = torch.ops.quantized_decomposed
RNG = np.random.default_rng(0)


def test_one_scale() -> None:
    values = RNG.standard_normal((4, 6)).astype(np.float32) * 3
    wanted = np.clip(np.round(values * np.float32(1 / 0.05)) + 7, 0, 255).astype(np.uint8)
    found = ops.quantize_per_tensor(torch.from_numpy(values), 0.05, 7, 0, 255, torch.uint8)
    assert found.dtype is torch.uint8 and np.array_equal(found.numpy(), wanted)
    one = torch.tensor([0.05], dtype=torch.float64), torch.tensor([7])
    assert torch.equal(ops.quantize_per_tensor.tensor(torch.from_numpy(values), *one, 0, 255, torch.uint8), found)
    back = ops.dequantize_per_tensor(found, 0.05, 7, 0, 255, torch.uint8)
    assert np.allclose(back.numpy(), (wanted.astype(np.float32) - 7) * np.float32(0.05), atol=1e-7)
    half = ops.dequantize_per_tensor(found, 0.05, 7, 0, 255, torch.uint8, out_dtype=torch.bfloat16)
    assert half.dtype is torch.bfloat16


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_scale_for_each_channel(axis: int) -> None:
    values = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    count = values.shape[axis]
    scales, zeros = RNG.uniform(0.01, 0.1, count).astype(np.float32), RNG.integers(-3, 4, count)
    spread = [-1 if place == axis else 1 for place in range(3)]
    s, z = scales.reshape(spread), zeros.reshape(spread)
    wanted = np.clip(np.round(values * (1 / s)) + z, -127, 127).astype(np.int8)
    given = torch.from_numpy(scales), torch.from_numpy(zeros), axis, -127, 127, torch.int8
    found = ops.quantize_per_channel(torch.from_numpy(values), *given)
    assert np.array_equal(found.numpy(), wanted)
    assert np.allclose(ops.dequantize_per_channel(found, *given).numpy(), (wanted - z) * s, atol=1e-6)


def test_scales_of_the_values_at_hand() -> None:
    values = torch.tensor([[-1.0, 3.0], [0.5, 2.0]])
    scale, zero = ops.choose_qparams.tensor(values, 0, 255, 1e-8, torch.uint8)
    assert scale.dtype is torch.float64 and zero.dtype is torch.int64 and scale.shape == zero.shape == (1,)
    assert scale.item() == pytest.approx(4 / 255) and zero.item() == 64
    even = ops.choose_qparams_symmetric.tensor(values, -127, 127, 1e-8, torch.int8)
    assert even[0].item() == pytest.approx(3 / 127) and even[1].item() == 0
    rows = ops.choose_qparams_per_token_asymmetric(values, torch.int8)
    assert rows[0].shape == rows[1].shape == (2, 1) and rows[0][1].item() == pytest.approx(2 / 255)
    integers = ops.quantize_per_token(values, *rows, -128, 127, torch.int8)
    assert torch.allclose(
        ops.dequantize_per_token(integers, *rows, -128, 127, torch.int8, torch.float32), values, atol=0.02
    )


def test_what_does_not_fit_is_said() -> None:
    x = torch.ones(2, 3)
    with pytest.raises(AssertionError, match="quant_max out of bounds"):
        ops.quantize_per_tensor(x, 1.0, 0, 0, 256, torch.uint8)
    with pytest.raises(ValueError, match="Unsupported dtype"):
        ops.quantize_per_tensor(x, 1.0, 0, 0, 255, torch.int64)
    with pytest.raises(AssertionError, match="torch.float32, but got dtype: torch.int64"):
        ops.quantize_per_tensor(x.long(), 1.0, 0, 0, 255, torch.uint8)
    with pytest.raises(AssertionError, match="axis to be < 2"):
        ops.quantize_per_channel(x, torch.ones(3), torch.zeros(3), 2, 0, 255, torch.uint8)
    with pytest.raises(AssertionError, match="dtype: torch.int8"):
        ops.dequantize_per_tensor(x, 1.0, 0, 0, 255, torch.int8)


def test_programs_keep_the_operators() -> None:
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = ops.quantize_per_tensor(x, 0.1, 3, 0, 255, torch.uint8)
            return ops.dequantize_per_tensor(q, 0.1, 3, 0, 255, torch.uint8) * 2

    x = torch.randn(2, 3)
    program = torch.export.export(Net(), (x,))
    names = [node.name for node in program.graph.nodes if node.op == "call_function"]
    assert names == ["quantize_per_tensor", "dequantize_per_tensor", "mul"]
    assert torch.equal(program.module()(x), Net()(x)) and torch.equal(torch.compile(Net())(x), Net()(x))


def _everything(T: Any) -> list[tuple[str, str, Any]]:
    """(call, device, dtypes and shapes and sums of the results, or the class of the error) of right and wrong calls."""
    importlib.import_module(f"{T.__name__}.ao.quantization.fx._decomposed")
    o, found = T.ops.quantized_decomposed, []

    def run(name: str, operator: Any, *args: Any, **kwargs: Any) -> None:
        for device in ("cpu", "meta"):
            given = [a.to(device) if isinstance(a, T.Tensor) else a for a in args]
            try:
                made = operator(*given, **kwargs)
                said = [
                    (str(y.dtype), list(y.shape), y.double().sum().item() if device == "cpu" else 0)
                    for y in (made if isinstance(made, tuple) else (made,))
                ]
            except Exception as error:
                said = type(error).__name__
            found.append((name, device, said))

    x, q, ints = T.arange(12.0).reshape(3, 4) - 5, T.arange(12, dtype=T.int8).reshape(3, 4), T.int32
    one, two, zero = T.tensor([0.5]), T.tensor([0.5, 1.0]), T.tensor([1])
    ranges = (-128, 127, T.int8), (0, 255, T.uint8), (-129, 127, T.int8), (0, 256, T.uint8), (0, 3, T.int64)
    for given, (low, high, dtype) in itertools.product((x, x.half(), x.double(), q), ranges):
        at, name = (low, high, dtype), f"{given.dtype} {low} {high} {dtype}"
        run(f"quantize {name}", o.quantize_per_tensor, given, 0.5, 1, *at)
        for scale in (one, two):
            run(f"quantize tensor {name}", o.quantize_per_tensor.tensor, given, scale, zero, *at)
            run(f"dequantize tensor {name}", o.dequantize_per_tensor.tensor, given, scale, zero, *at)
        run(
            f"quantize tensor2 {name}",
            o.quantize_per_tensor.tensor2,
            given,
            one,
            zero,
            T.tensor(low),
            T.tensor(high),
            dtype,
        )
        for wanted in (None, T.float16):
            run(f"dequantize {name}", o.dequantize_per_tensor, given, 0.5, 1, *at, out_dtype=wanted)
        for axis in (0, 1, 5):
            scales = T.ones(given.shape[axis] if axis < 2 else 3)
            zeros = T.zeros(len(scales), dtype=ints)
            run(f"quantize channel {axis} {name}", o.quantize_per_channel, given, scales, zeros, axis, *at)
            for held in (zeros, None):
                run(f"dequantize channel {axis} {name}", o.dequantize_per_channel, given, scales, held, axis, *at)
        for rows in (3, 2):
            run(
                f"quantize token {name}",
                o.quantize_per_token,
                given,
                T.ones(rows, 1),
                T.zeros(rows, 1, dtype=ints),
                *at,
            )
        run(
            f"dequantize token {name}",
            o.dequantize_per_token,
            given,
            T.ones(3, 1),
            T.zeros(3, 1, dtype=ints),
            *at,
            T.float32,
        )
        for size in (2, 3, 1, 8):
            scales = T.ones(3, 2 if size != 8 else 1)
            zeros = T.zeros_like(scales, dtype=ints)
            run(f"quantize group {size} {name}", o.quantize_per_channel_group, given, scales, zeros, *at, size)
            run(
                f"dequantize group {size} {name}",
                o.dequantize_per_channel_group,
                given,
                scales,
                zeros,
                *at,
                size,
                T.half,
            )
        run(f"choose {name}", o.choose_qparams.tensor, given, low, high, 1e-5, dtype)
        run(f"choose token {name}", o.choose_qparams_per_token, given, dtype)
    return found


@pytest.mark.oracle
def test_right_and_wrong_calls_end_as_in_pytorch() -> None:
    for ours, theirs in zip(_everything(torch), _everything(pytest.importorskip("torch")), strict=True):
        assert ours == theirs
