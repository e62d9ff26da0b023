"""The examples of passes over graphs run; each checks what it has made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent.parent / "examples" / "passes"
SAYS = {
    "fuse_operators": "batch normalisations folded: 2 of 2; operators left: 7; linear and relu fused: 2",
    "quantise_graph": "accuracy 1.000, with 8-bit weights and inputs 1.000",
    "prune_graph": "96 neurons became 24; accuracy 1.000 before, 1.000 after",
}  # as with PyTorch 2.13


@pytest.mark.parametrize(
    "name", ["fuse_operators", *[pytest.param(n, marks=pytest.mark.slow) for n in SAYS if n != "fuse_operators"]]
)
def test_a_pass_does_what_it_says(name: str) -> None:
    words = [sys.executable, "-m", "rushlight", str(FOLDER / f"{name}.py")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith(SAYS[name])


def test_all_passes_are_run() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SAYS)
