"""Examples of the pages on several ranks: they print what one process prints."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.distributed.programs.example_programs import losses, machines


def test_two_ranks_print_the_losses_of_one(mpi: None) -> None:
    one, two = losses(1), losses(2)
    assert one[0].startswith("[") and two == one * 2


@pytest.mark.distributed
def test_a_pipeline_prints_the_losses_of_one(mpi: None) -> None:
    one, two = losses(1, "pipeline.md"), losses(2, "pipeline.md")
    assert one[0].startswith("[[") and two == ["[[], [], []]", one[0]]


@pytest.mark.distributed
def test_divided_sequences_print_the_losses_of_one(mpi: None) -> None:
    one, two = losses(1, "context.md"), losses(2, "context.md")
    assert two[0] == two[1] and json.loads(two[0]) == pytest.approx(json.loads(one[0]), abs=1e-4)


@pytest.mark.distributed
def test_compressed_gradients_print_the_losses_of_one(mpi: None) -> None:
    one, two = losses(1, "recipes.md"), losses(2, "recipes.md")
    assert two[0] == two[1]
    for here, there in zip(json.loads(one[0]), json.loads(two[0]), strict=True):
        assert there == pytest.approx(here, rel=2e-2)  # halves, and matrices of few columns, of other sums


@pytest.mark.distributed
def test_a_notebook_gets_the_losses_of_one(mpi: None, monkeypatch) -> None:
    (one,) = losses(1, "recipes.md", 2)
    monkeypatch.setenv("RANKS", "2")
    (two,) = losses(1, "recipes.md", 2)
    assert json.loads(two) == pytest.approx(json.loads(one), abs=2e-4)


@pytest.mark.distributed
def test_two_pretended_machines_print_the_losses_of_one(mpi: None) -> None:
    one = losses(1)
    assert machines(2, 2) == one * 4


@pytest.mark.distributed
def test_the_demo_loses_a_rank_and_gives_the_losses_of_one_process(mpi: None, tmp_path) -> None:
    command = [sys.executable, "-m", "rushlight", "demo", "--distributed", "--size", "tiny", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rank 1 failed (exit code -9") == 4 and "done twice" in done.stdout
    assert done.stdout.endswith("the losses are equal, bit for bit\n") and not list(tmp_path.rglob("step*"))
