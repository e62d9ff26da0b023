"""Weight-only layers, the sensitivity of layers, and the command."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

import rushlight as torch
from rushlight.__main__ import main
from rushlight.ao.ns.fx.utils import compute_sqnr
from rushlight.ao.ns.sensitivity import layer_sensitivity, plot_sensitivity
from rushlight.ao.quantization.kv_cache import QuantizedKVCache
from rushlight.ao.quantization.weight_only import Int8ActivationLinear, WeightOnlyLinear, quantize_weights


def _net() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)).eval()


@pytest.mark.parametrize(("bits", "least"), [(8, 40), (4, 18)])
def test_weights_of_few_bits(bits: int, least: float) -> None:
    net, x = _net(), torch.randn(5, 64)
    with torch.no_grad():
        exact = net(x)
        made = quantize_weights(net, bits, 32, skip=("2",))
        assert type(made[0]) is WeightOnlyLinear and type(made[2]) is torch.nn.Linear
        assert compute_sqnr(exact, made(x)) > least
    other = torch.nn.Sequential(WeightOnlyLinear(64, 64, True, bits, 32), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    other.load_state_dict(made.state_dict())
    assert torch.equal(other(x), made(x))


@pytest.mark.parametrize("rows", [1, 3, 9])
@pytest.mark.parametrize("bits", [8, 4])
def test_products_of_bytes_are_those_of_the_rounded_numbers(bits: int, rows: int) -> None:
    """Against NumPy: each 32 numbers of a row are rounded by their largest, each row or group of weights by its own."""
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(128, 48), torch.randn(rows, 128)
    x[0, :32] = 0.0
    made, floats = Int8ActivationLinear.from_float(layer, bits, 64), WeightOnlyLinear.from_float(layer, bits, 64)
    groups = x.numpy().reshape(rows, 4, 32)
    most = abs(groups).max(2, keepdims=True)
    steps = np.where(most > 0, np.float32(127) / np.where(most > 0, most, 1), np.float32(0))
    rounded = (np.rint(groups * steps) * (most.astype(np.float64) / 127)).reshape(rows, 128)
    weight = (floats(torch.eye(128)) - layer.bias).detach().numpy().T  # the rounded weight, as it is
    found = made(x).detach().numpy()
    np.testing.assert_allclose(found, rounded @ weight.astype(np.float64).T + layer.bias.detach().numpy(), atol=2e-5)
    assert torch.equal(torch.compile(made)(x), made(x))
    x[0, 40] = torch.nan
    assert made(x)[0].isnan().all() and not made(x)[1:].isnan().any() and made(x[:0]).shape == (0, 48)


def test_layers_that_products_of_bytes_do_not_fit() -> None:
    with pytest.raises(ValueError, match="in_features divisible by 32"):
        Int8ActivationLinear(40, 16)
    with pytest.raises(ValueError, match="'float' or 'int8', got 'int4'"):
        quantize_weights(_net(), activations="int4")
    made = quantize_weights(_net(), 4, 32, activations="int8")
    assert [type(m) for m in (made[0], made[2])] == [Int8ActivationLinear, WeightOnlyLinear]
    other = Int8ActivationLinear(64, 64, bits=4, group_size=32)
    other.load_state_dict(made[0].state_dict())
    assert torch.equal(other(torch.ones(2, 64)), made[0](torch.ones(2, 64)))
    with pytest.raises(RuntimeError, match=r"does not lie in the order \[2, 16, 32\]"):
        Int8ActivationLinear(64, 64).load_state_dict(made[0].state_dict(), strict=False)


@pytest.mark.parametrize(("bits", "name"), [(8, "_weight_int8pack_mm"), (4, "_weight_int4pack_mm_for_cpu")])
def test_products_with_weights_of_few_bits_are_aten_operators(bits: int, name: str) -> None:
    layer, x = WeightOnlyLinear.from_float(torch.nn.Linear(64, 32), bits, 32), torch.randn(3, 64)
    exported = torch.export.export(layer, (x,))
    assert getattr(torch.ops.aten, name).default in [node.target for node in exported.graph.nodes]
    assert torch.equal(exported.module()(x), layer(x))


def test_ranges_of_four_bits_are_fitted() -> None:
    """Less is lost than where the least and the largest number of a group become 0 and 15; equal numbers are kept."""
    w = np.random.default_rng(3).normal(size=(32, 256)).astype(np.float32)
    w[0, :128], w[1, :128] = 0.0, 3.0
    layer = torch.nn.Linear(256, 32, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(w))
        found = WeightOnlyLinear.from_float(layer, 4)(torch.eye(256)).numpy().T
    groups = w.reshape(32, 2, 128)
    low = groups.min(2, keepdims=True)
    step = np.maximum((groups.max(2, keepdims=True) - low) / 15, 1e-12)
    plain = (np.rint((groups - low) / step) * step + low).reshape(w.shape)
    assert ((found - w) ** 2).sum() < 0.92 * ((plain - w) ** 2).sum()
    np.testing.assert_allclose(found[:2, :128], w[:2, :128], atol=1e-6)


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="groups of 32"):
        WeightOnlyLinear(48, 16, bits=4, group_size=32)
    assert quantize_weights(torch.nn.Sequential(torch.nn.Linear(48, 16)), 4, 32)[0].bits == 8


def test_weights_of_four_bits_in_an_order_of_before_are_refused_by_name() -> None:
    """Their shape told no order: bytes of a row one behind the other, and bytes of many rows side by side, were both [N, K / 2]."""
    net = torch.nn.Sequential(WeightOnlyLinear.from_float(torch.nn.Linear(64, 48), bits=4, group_size=32))
    assert net[0].weight.shape == (3, 32, 16)
    state = dict(net.state_dict())
    state["0.weight"] = state["0.weight"].view(48, 32)
    with pytest.raises(
        RuntimeError, match=r"0.weight: the weight of four bits \[48, 32\] does not lie in the order \[3, 32, 16\]"
    ):
        net.load_state_dict(state)
    old = copy.deepcopy(net[0].__dict__)
    old["_buffers"]["weight"] = state["0.weight"]
    with pytest.raises(RuntimeError, match="an earlier version packed it"):
        WeightOnlyLinear.__new__(WeightOnlyLinear).__setstate__(old)
    again = copy.deepcopy(net)
    assert torch.equal(again[0].weight, net[0].weight)


def test_the_layer_that_loses_most_comes_first() -> None:
    net = _net()
    with torch.no_grad():
        net[2].weight[0, 0] = 40.0  # an outlier that its row's scale must hold
    rows = layer_sensitivity(net, [torch.randn(32, 64), torch.randn(32, 64)])
    assert {name for name, _ in rows} == {"0", "2"} and rows[0][1] <= rows[1][1]
    assert plot_sensitivity(rows).count("dB") == 2


@pytest.mark.slow
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "install_as_torch", lambda: None)  # PyTorch may be loaded here, for other tests
    program = tmp_path / "program.py"
    program.write_text(
        "import rushlight as torch\nnet = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))\n"
    )
    data = tmp_path / "data.npz"
    rng = np.random.default_rng(0)
    np.savez(data, x=rng.normal(size=(64, 64)).astype(np.float32), y=rng.integers(0, 4, 64))
    out = tmp_path / "small.pt"
    assert main(["quantize", f"{program}:net", "--data", str(data), "--layers", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert (
        all(way in printed for way in ("int8 static", "int8 dynamic", "int4 weights", "int4 products", "accuracy"))
        and out.exists()
    )
    assert main(["quantize", f"{program}:absent", "--shape", "2,64"]) == 1
    assert "has no absent" in capsys.readouterr().err


@pytest.mark.parametrize("bits", [8, 4])
def test_shards_hold_weights_of_few_bits(tmp_path: Path, bits: int) -> None:
    model, other = quantize_weights(_net(), bits, 32), quantize_weights(_net(), bits, 32)
    torch.serialization.sharded.save_sharded(model.state_dict(), tmp_path, max_shard_size=4000)
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    other.load_state_dict(torch.serialization.sharded.load_sharded(tmp_path))
    for name, held in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], held) and other.state_dict()[name].dtype is held.dtype


def test_a_cache_of_bytes_attends_as_one_of_floats() -> None:
    torch.manual_seed(0)
    cache = QuantizedKVCache(2, 3, 40, 16)
    q, k, v = (torch.randn(2, 3, 40, 16) * torch.rand(2, 3, 40, 1) for _ in range(3))
    cache.update(0, k[:, :, :30], v[:, :, :30])
    for at in range(30, 40):
        keys, values = cache.update(at, k[:, :, at : at + 1], v[:, :, at : at + 1])
        assert keys.shape == (2, 3, at + 1, 16)
        found = torch.nn.functional.scaled_dot_product_attention(q[:, :, at : at + 1], keys, values)
        exact = torch.nn.functional.scaled_dot_product_attention(
            q[:, :, at : at + 1], k[:, :, : at + 1], v[:, :, : at + 1]
        )
        assert compute_sqnr(exact, found) > 38
    assert sum(b.numel() * b.itemsize for b in cache.buffers()) < 0.4 * 2 * k.numel() * 4
    with pytest.raises(RuntimeError, match="room for 40"):
        cache.update(40, k[:, :, :1], v[:, :, :1])
    with pytest.raises(RuntimeError, match="must be"):
        cache.update(0, k[:, :2], v[:, :2])
