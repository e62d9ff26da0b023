"""Ranks that die, do not come, or do something else: the others say who, and nobody hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.distributed.programs import fault_programs as programs
from tests.distributed.programs.fault_jobs import FAULTS, run_job
from tests.distributed.ranks import Ranks

from rushlight.distributed.flight_recorder import fr_trace


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
        _, kind, text = found[rank].removeprefix("RuntimeError: ").split(" ", 2)
        assert kind == "RankFailedError" and text.startswith("rank 1 died")


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


@pytest.fixture(scope="module")
def flight(four: Ranks, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Any]]:
    """The directory with the files of four ranks of which one was late, and what they say."""
    directory = tmp_path_factory.mktemp("flight")
    return str(directory), four.run(programs.recorded, str(directory / "trace_"))


def test_a_late_rank_is_warned_of_with_its_line(flight: tuple[str, list[Any]]) -> None:
    _, found = flight
    for rank in (0, 2, 3):
        error, warnings, states = found[rank]
        assert states == ["completed", "completed", "completed", "started"]
        assert 1 <= len(warnings) <= 3, warnings  # after 0.3, 0.6 and 1.2 s, or later by what questions to others take
        for text in (error, *warnings):
            assert "all_gather_into_tensor #4 of group" in text and "(float32 [2])" in text
            assert "rank 1 has not joined: " in text
        # A rank that gets no processor in time says nothing of what it does; asked several times, it does once.
        told = next(text for text in (error, *warnings) if "rank 1 has not joined: it is at" in text)
        assert "time.sleep(3.5)" in told
        assert "its last operation was all_reduce(sum) #3 of group" in told and "async_op=True).wait()" in told
        assert "timed out after 1." in error and f"trace_{rank})" in error
    assert found[1] == ("", [], ["completed"] * 3)


def test_files_of_all_ranks_say_who_diverged(
    flight: tuple[str, list[Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    directory, _ = flight
    assert fr_trace.main([directory, "-o", str(tmp_path / "found.json")]) == 1
    text = capsys.readouterr().out
    assert "of ranks [0, 1, 2, 3]: ranks 1 have not come to collective #4" in text
    assert "ranks [0, 2, 3]: gloo:_all_gather_base float32 [2], started, at" in text and "time.sleep(3.5)" in text
    (finding,) = json.loads((tmp_path / "found.json").read_text())
    assert (finding["kind"], finding["number"], finding["ranks"]) == ("missing", 4, [1])
    assert fr_trace.main([directory, "-j", "--selected-ranks", "1", "--pg-filters", "patient"]) == 0
    text = capsys.readouterr().out
    assert text.count("gloo:all_reduce") == 3 and "rank 0" not in text
    assert fr_trace.main([str(tmp_path / "nowhere")]) == 2
    (tmp_path / "bad_0").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert fr_trace.main([str(tmp_path), "-p", "bad_"]) == 2 and "plain values" in capsys.readouterr().err


@pytest.mark.distributed
def test_pytorch_reads_the_files(flight: tuple[str, list[Any]]) -> None:
    pytest.importorskip("torch")
    command = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", flight[0], "-p", "trace_"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "missing ranks: {1}" in found.stdout + found.stderr, found


def test_ctrl_c_ends_waiting(four: Ranks) -> None:
    four.run(programs.interrupted)


def test_debug_mode_names_mismatches(mpi: None) -> None:
    ranks = Ranks(2, TORCH_DISTRIBUTED_DEBUG="DETAIL")
    try:
        for rank, found in enumerate(ranks.run(programs.mismatched)):
            assert len(found) == 4, found
            assert all(
                "Detected mismatch between collectives" in text and text.count("fault_programs.py") == 3
                for text in found
            ), rank
            assert (
                "ranks [0]: all_reduce(sum) #1: float32 [2]" in found[0]
                and "ranks [1]: all_reduce(sum) #1: float32 [3], at" in found[0]
            )
            assert (
                "ranks [1]: broadcast(from 0) #2" in found[1]
                and "float64" in found[2]
                and "all_reduce(max)" in found[3]
            )
        for rank, text in enumerate(ranks.run(programs.crossed)):
            assert f"rank {rank} waits in all_reduce(sum) #1 of group '{2 - rank}'" in text
            assert f"rank {1 - rank} waits in all_reduce(sum) #1 of group '{1 + rank}'" in text
            assert text.count("in crossed: dist.all_reduce(torch.ones(3), group=group)") == 2
    finally:
        ranks.close()


def test_a_group_with_work_on_the_way_can_be_destroyed_after_an_error(mpi: None) -> None:
    ranks = Ranks(2)
    try:
        ranks.run(programs.abandoned, timeout=30)
    finally:
        ranks.close()
    assert all(process.returncode == 0 for process in ranks.processes)


@pytest.mark.parametrize(
    "fault, times",
    [
        pytest.param("kill-backward,stop,store-kill", 3, marks=pytest.mark.slow),
        *(pytest.param(name, 3, marks=pytest.mark.distributed) for name in FAULTS),
    ],
)
def test_a_job_that_is_hit_names_the_rank_and_goes_on(mpi: None, fault: str, times: int) -> None:
    found = run_job(fault, times)
    assert (found.struck, found.named, found.equal, found.hung, found.left) == (times, times, True, False, []), (
        found,
        found.said[-2000:],
    )
    assert found.slowest < 2 * max(FAULTS[name].within for name in fault.split(",")) + 1  # machines of CI are slow
