"""Compiled functions with collectives have eager's bits."""

from __future__ import annotations

import pytest
from tests.distributed import compiled_programs as programs
from tests.distributed.ranks import Ranks


@pytest.mark.parametrize("program", ["functional", "in_place"])
def test_four_ranks(four: Ranks, program: str) -> None:
    four.run(getattr(programs, program))


def test_what_is_no_part_of_a_program_is_named(four: Ranks) -> None:
    for text in four.run(programs.broken):
        assert "barrier of torch.distributed cannot be part of a recorded program" in text
