"""Experts that are divided among processes."""

from __future__ import annotations

import pytest
from tests.curves.plain import losses
from tests.distributed.programs import expert_programs as programs
from tests.distributed.ranks import Ranks


def test_experts_on_four_ranks_are_those_of_one(four: Ranks) -> None:
    found = four.run(programs.experts)[0]
    assert "one count for each of the experts of 4 processes" in found[0]
    assert "6 experts (weight) do not divide equally among 4 processes" in found[1]


@pytest.mark.distributed
def test_a_mixture_trains_as_on_one_process(four: Ranks) -> None:
    one = losses(programs.EXAMPLES / "moe_distributed.py", 4)
    for found in four.run(programs.losses, 4):
        assert found == pytest.approx(one, rel=1e-5)


@pytest.mark.distributed
def test_experts_of_pipelines(four: Ranks) -> None:
    assert four.run(programs.pipelined, ["DualPipeV", "ZBVZeroBubble", "Interleaved1F1B"], timeout=120) == [3] * 4
