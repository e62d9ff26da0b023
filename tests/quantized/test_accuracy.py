"""Trained models in int8: how much of what they learned is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_trained_gpt_keeps_its_loss() -> None:
    program = Path(__file__).with_name("gpt_accuracy.py")
    made = subprocess.run(
        [sys.executable, "-m", "rushlight", str(program)], capture_output=True, text=True, env=os.environ, timeout=600
    )
    assert made.returncode == 0, made.stderr
    lines = dict(line.split(": ") for line in made.stdout.strip().splitlines())
    worse = {name: float(line.split()[1]) for name, line in lines.items() if name != "float"}
    assert worse["static int8"] <= 1.0 and worse["QAT int8"] <= 0.5, made.stdout
    assert float(lines["float"].split(",")[0]) < 2.5
