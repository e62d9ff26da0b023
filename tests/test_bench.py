"""The benchmark's rows run with rushlight as it is; what they measure is looked at by people."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"


@pytest.fixture(scope="module")
def rows() -> dict:
    sys.path.insert(0, str(BENCH))
    try:
        return importlib.import_module("rows").ROWS
    finally:
        sys.path.remove(str(BENCH))


def test_every_row_runs(rows: dict) -> None:
    import rushlight
    import rushlight.nn.functional
    import rushlight.optim

    for name, row in rows.items():
        assert (row.claim >= 1.0 or name.startswith("new_shapes")) and row.claim > 0 and row.flops >= 0 and row.moved >= 0
        if not name.endswith(("16M", "10M")):
            call = row.make(rushlight)
            call()
            call()


def test_the_runner_prints_a_table() -> None:
    argv = ["--only", "overhead|installed", "--rounds", "1", "--budget", "0.01", "--peer", "no_such_framework"]
    done = subprocess.run([sys.executable, str(BENCH / "run.py"), *argv], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert "overhead/add_10 " in done.stdout and "failed" not in done.stdout
    assert "installed_size" in done.stdout and "without ratios" in done.stdout
