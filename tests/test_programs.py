"""Whole PyTorch programs, run unchanged by `python -m rushlight`; what PyTorch 2.13 printed for them is stored beside them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?")


@pytest.mark.parametrize("name", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_program_prints_what_pytorch_printed(name: str) -> None:
    source = str(Path(__file__).parents[1] / "src")
    run = subprocess.run(
        [sys.executable, "-m", "rushlight", str(PROGRAMS / f"{name}.py")],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": source},
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    expected = (PROGRAMS / f"{name}.expected").read_text()
    assert NUMBER.sub("#", run.stdout) == NUMBER.sub("#", expected)
    ours, theirs = ([float(word) for word in NUMBER.findall(text)] for text in (run.stdout, expected))
    assert ours == pytest.approx(theirs, rel=2e-4, abs=2e-4)
