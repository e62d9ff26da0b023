"""Ranks that die, do not come, or do something else: the others say who, and nobody hangs."""

from __future__ import annotations

import time

import pytest
from tests.distributed import fault_programs as programs
from tests.distributed.ranks import Ranks


@pytest.mark.parametrize("how", ["barrier", pytest.param("in", marks=pytest.mark.distributed), pytest.param("async", marks=pytest.mark.distributed),
                                 pytest.param("recv", marks=pytest.mark.distributed), pytest.param("group", marks=pytest.mark.distributed)])  # fmt: skip
def test_a_killed_rank_is_named_on_the_others(mpi: None, how: str) -> None:
    ranks = Ranks(3 if how != "group" else 2)
    try:
        found = ranks.run(programs.killed, how, fails=True, timeout=20)
    finally:
        ranks.close()
    assert found[1] is None
    for rank in {0, 2} - {1} & set(range(len(found))):
        seconds, kind, text = found[rank].removeprefix("RuntimeError: ").split(" ", 2)
        assert kind == "RankFailedError" and text.startswith("rank 1 died") and float(seconds) < 2.0


def test_ranks_that_do_not_come_are_named(four: Ranks) -> None:
    for rank, text in enumerate(four.run(programs.missing)):
        if rank == 0:
            assert "Ranks 1 failed to pass monitoredBarrier in 500 ms" in text
        else:
            assert "rank 0 says that not all ranks came" in text or "rank 0 has not let rank" in text
    two = four.run(programs.late)
    for rank in (0, 2, 3):
        assert (
            "timed out after 1.0 s" in two[rank]
            and "rank 1 has not joined" in two[rank]
            and "float32 [3, 2]" in two[rank]
        )


def test_ctrl_c_ends_waiting(four: Ranks) -> None:
    four.run(programs.interrupted)


def test_debug_mode_names_mismatches(mpi: None) -> None:
    ranks = Ranks(2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    try:
        for rank, found in enumerate(ranks.run(programs.mismatched)):
            assert len(found) == 4, found
            assert all(
                "Detected mismatch between collectives" in text and "fault_programs.py" in text for text in found
            ), rank
            assert (
                "ranks [0]: all_reduce(sum) #1: float32 [2]" in found[0]
                and "ranks [1]: all_reduce(sum) #1: float32 [3]" in found[0]
            )
            assert (
                "ranks [1]: broadcast(from 0) #2" in found[1]
                and "float64" in found[2]
                and "all_reduce(max)" in found[3]
            )
    finally:
        ranks.close()


def test_a_group_with_work_on_the_way_can_be_destroyed_after_an_error(mpi: None) -> None:
    ranks = Ranks(2)
    try:
        assert max(ranks.run(programs.abandoned)) < 5
        began = time.monotonic()
    finally:
        ranks.close()
    assert time.monotonic() - began < 5 and all(process.returncode == 0 for process in ranks.processes)
