"""Grids of processes: data parallel, tensor parallel and pipelines together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.distributed.programs import layout_programs as programs
from tests.distributed.ranks import Ranks

STORED: Any = json.loads((Path(__file__).parents[1] / "data" / "example_losses.json").read_text())


def check(rows: Any) -> None:
    for losses, one, difference in rows:
        assert losses == pytest.approx(one, rel=1e-5) and difference < 1e-5


@pytest.mark.distributed
def test_two_axes(four: Ranks) -> None:
    for rows in four.run(programs.layouts, [("dp", "1F1B"), ("tp", "ZBVZeroBubble")]):
        check(rows)


@pytest.mark.distributed
def test_more_of_two_axes(four: Ranks) -> None:
    more = [("dp", "ZBVZeroBubble"), ("fsdp", "1F1B"), ("fsdp", "ZBVZeroBubble"), ("tp", "Interleaved1F1B")]
    for rows in four.run(programs.layouts, more):
        check(rows)


def test_the_example_on_a_grid(four: Ranks) -> None:
    for found in four.run(programs.example, (1, 2, 2), 5):
        assert found == pytest.approx(STORED["trains"]["layouts_distributed"], rel=1e-4)


@pytest.mark.distributed
def test_three_axes(mpi: None) -> None:
    ranks = Ranks(8)
    try:
        for found in ranks.run(programs.example, (2, 2, 2), 5, timeout=120):
            assert found == pytest.approx(STORED["trains"]["layouts_distributed"], rel=1e-4)
    finally:
        ranks.close()
