"""Examples of the pages on several ranks: they print what one process prints."""

from __future__ import annotations

from tests.distributed.example_programs import losses


def test_two_ranks_print_the_losses_of_one(mpi: None) -> None:
    one, two = losses(1), losses(2)
    assert one[0].startswith("[") and two == one * 2
