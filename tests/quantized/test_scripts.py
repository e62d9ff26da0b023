"""Quantized models in scripts: their layers stay objects of Python, which scripts call."""

from __future__ import annotations

import io

import pytest

import rushlight as torch
from rushlight.ao import quantization

X = torch.linspace(-2, 2, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)


def layers() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 5)
    )


def by_layers() -> torch.nn.Module:
    model = quantization.QuantWrapper(layers()).eval()
    model.qconfig = quantization.get_default_qconfig("onednn")
    watched = quantization.prepare(model)
    watched(X)
    return quantization.convert(watched)


class Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return torch.relu(self.conv(x) + x)


def by_graph() -> torch.nn.Module:
    from rushlight.ao.quantization.quantize_fx import convert_fx, prepare_fx

    watched = prepare_fx(Residual().eval(), quantization.get_default_qconfig_mapping("onednn"), (X,))
    watched(X)
    return convert_fx(watched)


def dynamic() -> torch.nn.Module:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4)).eval()
    return quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


@pytest.mark.parametrize("make", [by_layers, by_graph, dynamic])
def test_a_quantized_model_in_a_script_gives_its_numbers(make):
    torch.manual_seed(0)
    model = make()
    scripted = torch.jit.script(model)
    assert torch.equal(scripted(X), model(X))
    assert torch.equal(torch.jit.freeze(scripted.eval())(X), model(X))
    with pytest.raises(NotImplementedError, match="no quantized layers into TorchScript archives"):
        torch.jit.save(scripted, io.BytesIO())


def test_a_layer_alone():
    layer = torch.ao.nn.quantized.Embedding(10, 8)
    places = torch.tensor([1, 3])
    assert torch.equal(torch.jit.script(layer)(places), layer(places))
    weight, bias = torch.ao.nn.quantized.Conv2d(2, 3, 1)._weight_bias()
    assert weight.shape == (3, 2, 1, 1) and bias.shape == (3,)


def test_operators_of_quantized_tensors():
    def one(x: torch.Tensor):
        q = torch.quantize_per_tensor(x, 0.1, 3, torch.quint8)
        return q.int_repr(), q.q_scale(), q.q_zero_point(), q.dequantize(), q.is_quantized

    def each(x: torch.Tensor, scales: torch.Tensor, zeros: torch.Tensor):
        q = torch.quantize_per_channel(x, scales, zeros, 0, torch.qint8)
        return q.int_repr(), q.q_per_channel_scales(), q.q_per_channel_zero_points(), q.q_per_channel_axis()

    x = torch.tensor([[0.1, -0.2], [0.5, 0.6]])
    assert str(torch.jit.script(one)(x)) == str(one(x))
    given = (x, torch.tensor([0.1, 0.2]), torch.tensor([0, 1]))
    assert str(torch.jit.script(each)(*given)) == str(each(*given))


class Ignoring(torch.nn.Module):
    @torch.jit.ignore
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + int("2")


def test_a_module_whose_forward_is_ignored_is_called():
    assert torch.jit.script(torch.nn.Sequential(Ignoring()))(torch.ones(1)).item() == 3.0
