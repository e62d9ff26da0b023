"""Loss curves: with seed 0 the first 50 losses of five training programs are real PyTorch's.

`python tests/curves/test_curves.py` (with torch installed) writes losses.json anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
STORED = HERE / "losses.json"
PROGRAMS = ("mlp", "cnn", "lstm", "gpt", "vae")
STEPS = 50


def compare(ours: list[float], theirs: list[float]) -> None:
    assert len(ours) == len(theirs) >= STEPS
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        assert mine == pytest.approx(other, rel=1e-4), f"step {step}: {mine} here, {other} in PyTorch"


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_pytorchs(name: str) -> None:
    from tests.curves.plain import losses

    compare(losses(HERE / f"{name}.py", STEPS), json.loads(STORED.read_text())[name])


@pytest.mark.oracle
@pytest.mark.parametrize("name", PROGRAMS)
def test_stored_losses_are_what_pytorch_gives(name: str) -> None:
    from tests.curves.plain import losses

    compare(json.loads(STORED.read_text())[name], losses(HERE / f"{name}.py", STEPS, package="torch"))


def _store() -> None:
    from plain import losses

    found = {
        name: [float(f"{x:.8g}") for x in losses(HERE / f"{name}.py", STEPS, package="torch")] for name in PROGRAMS
    }
    rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(curve)}" for name, curve in found.items())
    STORED.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    _store()
