"""Weight-only layers, the sensitivity of layers, and the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rushlight as torch
from rushlight.__main__ import main
from rushlight.ao.ns.fx.utils import compute_sqnr
from rushlight.ao.ns.sensitivity import layer_sensitivity, plot_sensitivity
from rushlight.ao.quantization.weight_only import WeightOnlyLinear, quantize_weights


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


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="groups of 32"):
        WeightOnlyLinear(48, 16, bits=4, group_size=32)
    assert quantize_weights(torch.nn.Sequential(torch.nn.Linear(48, 16)), 4, 32)[0].bits == 8


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
    assert all(way in printed for way in ("int8 static", "int8 dynamic", "int4 weights", "accuracy")) and out.exists()
    assert main(["quantize", f"{program}:absent", "--shape", "2,64"]) == 1
    assert "has no absent" in capsys.readouterr().err
