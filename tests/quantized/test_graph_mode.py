"""Graph mode: calibration and training; beside PyTorch bit for bit where it is installed."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
from tests.quantized import models

import rushlight as torch
from rushlight.ao.quantization import quantize_fx as fx
from rushlight.ao.quantization.backend_config import BackendConfig, get_native_backend_config
from rushlight.fx.experimental import optimization

X = np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)


def _network(T: Any) -> Any:
    nn, F = T.nn, T.nn.functional

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c, self.b1, self.r, self.p = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)
            self.c2, self.l, self.w = nn.Conv2d(4, 4, 1), nn.Linear(4, 4), nn.Parameter(T.randn(4, 4))
            self.sub, self.hs, self.ln = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Hardswish(), nn.LayerNorm(4)

        def forward(self, x):  # type: ignore[no-untyped-def]  # annotations would be part of the code
            x = self.p(self.r(self.b1(self.c(x))))
            x = F.relu(x + self.c2(x)).mean([2, 3])
            x = self.sub(F.linear(self.l(x), self.w))
            x = T.sigmoid(self.ln(self.hs(x)))
            x = x.view(x.size(0), -1)
            return F.hardswish(T.cat([x, x], 1)) * 2

    return models.filled(T, Network(), 5)


def _run(T: Any, page: Any, trained: bool) -> tuple[Any, list[Any]]:
    """(converted model, results of the prepared, the reference and the converted model)."""
    q, model, x = T.ao.quantization, _network(T), T.from_numpy(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if trained:
            made = page.prepare_qat_fx(model.train(), q.get_default_qat_qconfig_mapping("x86"), (x,))
            optimizer = T.optim.SGD(made.parameters(), lr=0.01)
            for _ in range(2):
                loss = made(x).square().sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            made.eval()
        else:
            made = page.prepare_fx(model.eval(), q.get_default_qconfig_mapping("x86"), (x,))
            for scale in (1.0, 1.3):
                made(x * scale)
        before = made(x)
        copied = importlib.import_module("copy").deepcopy(made)
        reference, converted = page.convert_to_reference_fx(copied), page.convert_fx(made)
    return converted, [y.detach().numpy() for y in (before, reference(x), converted(x))]


@pytest.mark.parametrize("trained", [False, True])
def test_graphs_of_integers(trained: bool) -> None:
    converted, (before, reference, after) = _run(torch, fx, trained)
    assert np.array_equal(reference, after)
    # a number's factor is rounded in training, and is a scale afterwards: PyTorch's integers differ so too
    assert trained or abs(before - after).max() < 0.1
    code = converted.code
    assert code.count("quantize_per_tensor(") == 1 and code.count(".dequantize()") == 1
    assert "quantized.add_relu(p, c2" in code and type(converted.c).__name__ == "ConvReLU2d"


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("trained", [False, True])
def test_graph_mode_as_pytorch(trained: bool) -> None:
    theirs = pytest.importorskip("torch")
    importlib.import_module("torch.ao.quantization.backend_config.utils")
    page = importlib.import_module("torch.ao.quantization.quantize_fx")
    (mine, found), (other, expected) = _run(torch, fx, trained), _run(theirs, page, trained)
    for a, b in zip(found, expected, strict=True):
        assert abs(a - b).max() < 1e-5
    assert set(mine.state_dict()) == set(other.state_dict())
    assert mine.code.replace("linear_1", "linear") == other.code


def test_dynamic_weights_and_embeddings() -> None:
    q = torch.ao.quantization
    net = torch.nn.Sequential(torch.nn.Embedding(10, 8), torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    mapping = q.QConfigMapping().set_global(q.default_dynamic_qconfig)
    mapping.set_object_type(torch.nn.Embedding, q.float_qparams_weight_only_qconfig)
    x = torch.tensor([[1, 2, 3]])
    made = fx.convert_fx(fx.prepare_fx(net, mapping, (x,)))
    assert [type(made.get_submodule(n)).__name__ for n in ("0", "1")] == ["Embedding", "LinearReLU"]
    assert (made(x) - net(x)).abs().max() < 0.05


def test_names_and_patterns_choose() -> None:
    q = torch.ao.quantization
    net = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Linear(4, 4)), torch.nn.Linear(4, 4)
    ).eval()
    mapping = q.get_default_qconfig_mapping("x86").set_module_name("1", None).set_module_name_regex("2", None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        watched = fx.prepare_fx(net, mapping, (torch.randn(2, 4),))
        watched(torch.randn(2, 4))
        made = fx.convert_fx(watched)
    found = [type(made.get_submodule(n)).__module__.startswith("rushlight.ao") for n in ("0", "1.0", "2")]
    assert found == [True, False, False]
    assert q.QConfigMapping.from_dict(mapping.to_dict()).to_dict() == mapping.to_dict()
    config = get_native_backend_config()
    assert len(BackendConfig.from_dict(config.to_dict()).configs) == len(config.configs)


class Shared(torch.nn.Module):
    def __init__(self, alone: bool) -> None:
        super().__init__()
        self.conv, self.norm, self.alone = torch.nn.Conv2d(2, 2, 1), torch.nn.BatchNorm2d(2), alone
        self.norm.running_var.fill_(4.0)
        self.norm.running_mean.fill_(0.5)

    def forward(self, x):
        y = self.norm(self.conv(x))
        return self.conv(y) if self.alone else self.norm(self.conv(y))


@pytest.mark.parametrize("alone", [False, True])
def test_layers_that_are_called_twice_are_fused_in_all_calls_or_in_none(alone):
    torch.manual_seed(0)
    model, x = Shared(alone).eval(), torch.randn(2, 2, 3, 3)
    fused = fx.fuse_fx(model)
    assert torch.allclose(fused(x), model(x), atol=1e-6)
    assert any(isinstance(m, torch.nn.BatchNorm2d) for m in fused.modules()) == alone
    folded = optimization.fuse(model)  # which folds weights into a convolution that is called once
    assert torch.allclose(folded(x), model(x), atol=1e-6)
    small = prepared(model, x)
    assert torch.ao.ns.fx.utils.compute_sqnr(model(x), small(x)) > 25


def prepared(model, x):
    watched = fx.prepare_fx(model, torch.ao.quantization.get_default_qconfig_mapping("onednn"), (x,))
    watched(x)
    return fx.convert_fx(watched)
