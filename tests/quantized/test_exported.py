"""Products of bytes in exported graphs, against the same graphs in floats."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import rushlight as torch
from rushlight.ao.quantization.exported import IntegerProduct, with_integer_products

importlib.import_module("rushlight.ao.quantization.fx._decomposed")
ops, F = torch.ops.quantized_decomposed, torch.nn.functional


class Net(torch.nn.Module):
    """A convolution, and a linear layer, of rounded values."""

    def __init__(self, bias: bool, groups: int, channels: bool) -> None:
        super().__init__()
        self.bias, self.groups, self.channels = bias, groups, channels
        for name, shape in (("w", (8, 4 // groups, 3, 3)), ("v", (5, 8 * 16))):
            self.register_buffer(name, torch.randint(-128, 128, shape, dtype=torch.int8))
            self.register_buffer(f"{name}_scale", torch.rand(shape[0]) * 0.01 + 0.001)
            self.register_buffer(f"{name}_zero", torch.zeros(shape[0], dtype=torch.int64))
            self.register_buffer(f"{name}_bias", torch.randn(shape[0]) if bias else None)

    def weight(self, name: str) -> Any:
        ints, scale, zero = (getattr(self, f"{name}{end}") for end in ("", "_scale", "_zero"))
        if self.channels:
            return ops.dequantize_per_channel(ints, scale, zero, 0, -128, 127, torch.int8)
        return ops.dequantize_per_tensor(ints, 0.004, 0, -128, 127, torch.int8)

    def forward(self, x: torch.Tensor) -> Any:
        q = ops.quantize_per_tensor(x, 0.02, 120, 0, 255, torch.uint8)
        y = ops.dequantize_per_tensor(q, 0.02, 120, 0, 255, torch.uint8)
        y = torch.relu(F.conv2d(y, self.weight("w"), self.w_bias, 2, 1, 1, self.groups))
        q = ops.quantize_per_tensor(y, 0.03, 3, 0, 255, torch.uint8)
        y = ops.dequantize_per_tensor(q, 0.03, 3, 0, 255, torch.uint8)
        return q, F.linear(y.flatten(1), torch.ones(5, 128)), self.second(q)

    def second(self, q: torch.Tensor) -> torch.Tensor:
        y = ops.dequantize_per_tensor(q.flatten(1), 0.03, 3, 0, 255, torch.uint8)
        return F.linear(y, self.weight("v"), self.v_bias)


@pytest.mark.parametrize(("bias", "groups", "channels"), [(True, 1, True), (False, 4, True), (True, 1, False)])
def test_products_are_of_bytes(bias: bool, groups: int, channels: bool) -> None:
    torch.manual_seed(0)
    net, x = Net(bias, groups, channels), torch.randn(2, 4, 8, 8)
    wanted = net(x)
    module = with_integer_products(torch.export.export(net, (x,)).module())
    made = [m for m in module.modules() if isinstance(m, IntegerProduct)]
    assert [m.result for m in made] == ["uint8", "float32"] and [m.relu for m in made] == [True, False]
    assert "aten.conv2d" not in module.code and module.code.count("aten.linear") == 1
    found = module(x)
    steps = (found[0].int() - wanted[0].int()).abs()
    assert found[0].dtype is torch.uint8 and steps.max() <= 1 and steps.float().mean() < 0.01
    exact = net.second(found[0])
    assert (found[2] - exact).abs().max() <= 1e-5 * exact.abs().max()
    assert torch.equal(torch.compile(module)(x)[0], found[0])


def test_what_is_not_of_bytes_stays() -> None:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = ops.quantize_per_tensor(x, 0.02, 120, 0, 255, torch.uint8)
            return self.linear(ops.dequantize_per_tensor(q, 0.02, 120, 0, 255, torch.uint8))

    net, x = Half(), torch.randn(2, 4)
    module = with_integer_products(torch.export.export(net, (x,)).module())
    assert "aten.linear" in module.code and torch.equal(module(x), net(x))


class Rows(torch.nn.Module):
    """Two linear layers over the last dim of [B, T, K], the first with a ReLU and rounded to bytes."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("w", (12, 16)), ("v", (5, 12))):
            self.register_buffer(name, torch.randint(-128, 128, shape, dtype=torch.int8))
            self.register_buffer(f"{name}_scale", torch.rand(shape[0]) * 0.01 + 0.001)
            self.register_buffer(f"{name}_zero", torch.zeros(shape[0], dtype=torch.int64))
        self.bias = torch.nn.Parameter(torch.randn(12))

    def forward(self, x: torch.Tensor) -> Any:
        x = ops.quantize_per_tensor(x, 0.02, 120, 0, 255, torch.uint8)
        x = ops.dequantize_per_tensor(x, 0.02, 120, 0, 255, torch.uint8)
        w = ops.dequantize_per_channel(self.w, self.w_scale, self.w_zero, 0, -128, 127, torch.int8)
        q = ops.quantize_per_tensor(torch.relu(F.linear(x, w, self.bias)), 0.05, 0, 0, 255, torch.uint8)
        y = ops.dequantize_per_tensor(q, 0.05, 0, 0, 255, torch.uint8)
        v = ops.dequantize_per_channel(self.v, self.v_scale, self.v_zero, 0, -128, 127, torch.int8)
        return q, F.linear(y, v)


@pytest.mark.parametrize("shape", [(3, 16), (2, 3, 16)])
def test_passes_for_frozen_graphs_find_decomposed_products(shape: tuple[int, ...]) -> None:
    """As `lower_pt2e_quantized_to_x86` of torchao calls them: layers are products of matrices between views there."""
    torch.manual_seed(0)
    net, x = Rows(), torch.randn(shape)
    wanted = net(x)
    module = torch.export.export(net, (x,)).run_decompositions().module()
    freezing = importlib.import_module("rushlight._inductor.fx_passes.freezing_patterns")
    folding = importlib.import_module("rushlight._inductor.constant_folding")
    freezing.freezing_passes(module, (x,))
    folding.constant_fold(module)
    made = [m for m in module.modules() if isinstance(m, IntegerProduct)]
    assert [m.result for m in made] == ["uint8", "float32"] and [m.relu for m in made] == [True, False]
    assert not any(word in module.code for word in ("mm.default", "view", "dequantize"))
    found = module(x)
    steps = (found[0].int() - wanted[0].int()).abs()
    assert found[0].dtype is torch.uint8 and found[0].shape == wanted[0].shape
    assert steps.max() <= 1 and steps.float().mean() < 0.01
    assert (found[1] - wanted[1]).abs().max() <= 0.02 * wanted[1].abs().max()


def test_constants_are_folded_and_bytes_stay_bytes() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("ints", torch.ones(4, dtype=torch.int8))

        def forward(self, x: torch.Tensor) -> Any:
            numbers = ops.dequantize_per_tensor(self.ints, 0.5, 0, -128, 127, torch.int8)
            return x * (self.scale * 2 + 1) + numbers + torch.bernoulli(self.scale)

    module = torch.export.export(Net(), (torch.ones(4),)).module()
    fold = importlib.import_module("rushlight._inductor.constant_folding").constant_fold
    fold(module, lambda node: "add" not in str(node.target))
    assert module.code.count("aten.mul") == 1 and module.code.count("aten.add") == 3
    fold(module)
    assert module.code.count("aten.mul") == 1 and module.code.count("aten.add") == 2
    assert "dequantize_per_tensor" in module.code and "bernoulli" in module.code
    assert module(torch.ones(4)).tolist() == [4.5] * 4 and not module._frozen_param0.requires_grad
