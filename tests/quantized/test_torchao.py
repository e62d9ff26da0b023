"""torchao from PyPI, unmodified, over this package: weights of integers and of float8, their states, and exported graphs."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="needs torchao")]

HERE = Path(__file__).parent
PROGRAM = """
import copy, io
import torch
import torchao.quantization as ao

base = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128)).eval()
x = torch.randn(2, 256)
group = ao.PerGroup(64)
configs = {
    "int8": ao.Int8WeightOnlyConfig(), "int8 groups": ao.Int8WeightOnlyConfig(granularity=group),
    "int8 dynamic": ao.Int8DynamicActivationInt8WeightConfig(),
    "int4": ao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=group),
    "int8 int4": ao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4, weight_granularity=group),
    "float8": ao.Float8WeightOnlyConfig(),
}
for name, config in configs.items():
    model = copy.deepcopy(base)
    ao.quantize_(model, config)
    with torch.no_grad():
        exact, found = base(x), model(x)
    error = 10 * torch.log10((exact**2).sum() / ((found - exact) ** 2).sum())
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    other = copy.deepcopy(base)
    other.load_state_dict(torch.load(file, weights_only=False), assign=True)
    print(f"{name}:{float(error):.1f}:{torch.equal(other(x), found)}")
"""
LEAST = {"int8": 40, "int8 groups": 40, "int8 dynamic": 34, "int4": 17, "int8 int4": 17, "float8": 24}


def test_weights_of_torchao() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=300,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split(":") for line in done.stdout.splitlines() if line.count(":") == 2]
    assert {name: float(error) >= LEAST[name] and same == "True" for name, error, same in rows} == dict.fromkeys(
        LEAST, True
    )


PRODUCTS = {"cnn": 3, "mlp": 2, "dynamic": 0, "trained": 3}


def test_exported_graphs_are_pytorchs(tmp_path: Path) -> None:
    """Observed, converted and trained graphs have PyTorch's operators, integers and results; compiled ones are equal."""
    out = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", str(HERE / "exported_graphs.py"), str(out)],
        capture_output=True,
        text=True,
        timeout=600,
        env=dict(os.environ),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    table, wanted = json.loads(out.read_text()), json.loads((HERE / "exported_graphs.json").read_text())
    assert table.keys() == wanted.keys()
    for name, row in table.items():
        assert row["operators"] == wanted[name]["operators"], name
        assert row["weights"] == wanted[name]["weights"], name
        assert row["results"] == pytest.approx(wanted[name]["results"], abs=1e-5), name
        assert row["decibels"] == pytest.approx(wanted[name]["decibels"], abs=0.01), name
        assert row["loss"] == pytest.approx(wanted[name]["loss"], rel=1e-5), name
        assert row["compiled"] < 1e-5, name
        decibels, count = row["bytes"]
        assert count == PRODUCTS[name] and decibels == pytest.approx(row["decibels"], abs=1.0), name
