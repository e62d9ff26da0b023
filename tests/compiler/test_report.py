"""`python -m rushlight compile-report`, and what it collects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rushlight._cli.compile_report import main, text_of

SCRIPT = """
import sys
import torch

@torch.compile
def step(x):
    y = x.relu() + 1
    if y.sum() > 2:
        y = y * 2
    return y

@torch.compile
def never(x):
    return x

for n in (3, 3, 4, 3):
    step(torch.ones(n))
print("the program's own words", sys.argv[1:])
"""


def test_a_report_lists_graphs_breaks_and_times(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script, found = tmp_path / "program.py", tmp_path / "found.json"
    script.write_text(SCRIPT)
    assert main(["--json", str(found), str(script), "--flag", "3"]) == 0
    printed = capfd.readouterr().out
    assert printed.count("the program's own words ['--flag', '3']") == 1
    assert "2 compiled functions, " in printed and f"never ({script}:12): never called" in printed
    assert f"step ({script}:5): 4 calls, the first " in printed and "times as long" in printed
    assert f"breaks:\n  {script}:8: " in printed and "compiled again:\n  step: recompiled" in printed
    assert "not compiled: none" in printed
    data = json.loads(found.read_text())
    assert data["compiled"]["graphs"] > 2 and data["eager"]["graphs"] == 0 and len(data["eager"]["times"]) == 2


def test_a_report_of_a_program_that_fails(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text("import torch\ntorch.compile(lambda x: x + 1)(torch.ones(2))\nraise SystemExit(3)\n")
    assert main([str(script)]) == 3
    printed = capfd.readouterr().out
    assert "1 compiled functions, 1 graphs" in printed and "breaks: none" in printed


def test_the_text_of_a_report() -> None:
    found = {
        "times": {"f (a.py:1)": [0.1, 1e-5, 1e-5]},
        "graphs": 1,
        "breaks": [],
        "recompilations": {},
        "failures": {"f runs as it is": 1},
    }
    eager = {"times": {"f (a.py:1)": [2e-5, 2e-5, 2e-5]}}
    assert (
        text_of(found, eager).splitlines()[2]
        == "  f (a.py:1): 3 calls, the first 100.0 ms, then 10.0 us; eager 20.0 us, 2.00 times as long"
    )
    assert text_of(found, None).endswith("not compiled:\n  f runs as it is (1 times)")
