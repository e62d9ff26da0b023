"""Examples of the pages on several ranks: they print what one process prints."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.distributed.example_programs import losses


def test_two_ranks_print_the_losses_of_one(mpi: None) -> None:
    one, two = losses(1), losses(2)
    assert one[0].startswith("[") and two == one * 2


@pytest.mark.distributed
def test_the_demo_loses_a_rank_and_gives_the_losses_of_one_process(mpi: None, tmp_path) -> None:
    command = [sys.executable, "-m", "rushlight", "demo", "--distributed", "--size", "tiny", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rank 1 failed (exit code -9") == 4 and "done twice" in done.stdout
    assert done.stdout.endswith("the losses are equal, bit for bit\n") and not list(tmp_path.rglob("last.pt*"))
