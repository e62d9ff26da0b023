"""Collectives, messages, objects and groups on four ranks; and on one."""

from __future__ import annotations

import pytest
from tests.distributed import collective_programs as programs
from tests.distributed.ranks import Ranks


@pytest.mark.parametrize(
    "program",
    [
        "reductions",
        "moves",
        "uneven",
        "layouts",
        "asynchronous",
        "messages",
        "objects",
        "groups",
        "differentiable",
        "meshes",
        "methods",
    ],
)
def test_four_ranks(four: Ranks, program: str) -> None:
    four.run(getattr(programs, program))


def test_one_thread_communicates(four: Ranks) -> None:
    four.run(programs.asynchronous)
    assert four.run(programs.threads) == [1] * 4
