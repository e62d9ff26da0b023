"""The examples with their models on an emulated GPU: the losses of PyTorch, as far as no random numbers of the device are in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.curves.plain import losses

pytestmark = pytest.mark.cuda

ROOT = Path(__file__).resolve().parents[2]
STORED = json.loads((ROOT / "tests" / "data" / "example_losses.json").read_text())["trains"]
STEPS = {
    "gnn_karate": 5,
    "resnet_digits": 2,
    "seq2seq_transformer": 2,
    "lora_finetuning": 3,
    "maml_sines": 2,
    "data_pipeline": 3,
}


@pytest.mark.parametrize("name", STEPS)
def test_training_begins_as_pytorchs(name: str) -> None:
    # schedules of learning rates depend on the number of steps: as many as were stored, or as few as change nothing
    found = losses(ROOT / "examples" / f"{name}.py", STEPS[name], device="cuda")
    assert found == pytest.approx(STORED[name][: len(found)], rel=1e-3)
