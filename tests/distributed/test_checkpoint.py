"""Checkpoints of several ranks load with another number of ranks, and in another layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.distributed.programs import checkpoint_programs as programs
from tests.distributed.ranks import Ranks


@pytest.mark.parametrize(
    "every", [pytest.param(False, marks=pytest.mark.slow), pytest.param(True, marks=pytest.mark.distributed)]
)
def test_layouts_load_as_others_in_every_world(four: Ranks, tmp_path: Path, every: bool) -> None:
    assert four.run(programs.layouts_and_worlds, str(tmp_path), every, timeout=120) == [[]] * 4


@pytest.mark.parametrize("kind", ["fsdp", "fsdp1", "tp"])
def test_training_goes_on_in_another_world_with_the_same_losses(four: Ranks, tmp_path: Path, kind: str) -> None:
    found = four.run(programs.stop_and_go_on, kind, str(tmp_path))
    wanted = found[0][0]
    assert [len(losses) for losses in found] == [3, 2, 1, 1]
    for rank in found:
        for losses in rank:
            assert losses == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("kind", ["fsdp", "fsdp1"])
def test_whole_states_and_states_of_rank_0(four: Ranks, kind: str) -> None:
    assert all(all(found) for found in four.run(programs.full_states, kind))


def test_what_all_have_is_written_once_by_ranks_in_turn(four: Ranks, tmp_path: Path) -> None:
    assert four.run(programs.written_once, str(tmp_path)) == [[2, 2, 2, 2]] * 4


def test_what_one_rank_has_and_what_each_saves_by_itself(four: Ranks, tmp_path: Path) -> None:
    for rank, found in enumerate(four.run(programs.each_its_own, str(tmp_path))):
        assert found == [[[float((rank + 1) % 4)] * 2, 0], [True, True, 8], [True] * 4]


def test_an_error_of_one_rank_is_one_on_all_and_changes_nothing(four: Ranks, tmp_path: Path) -> None:
    wanted = [[(2, "OSError")], [(1, "RuntimeError")], [(k, "ValueError") for k in range(4)], [1.0, 1.0, 1.0]]
    assert four.run(programs.failures, str(tmp_path)) == [wanted] * 4


@pytest.mark.parametrize("where", ["thread", pytest.param("process", marks=pytest.mark.distributed)])
def test_saves_beside_the_training(four: Ranks, tmp_path: Path, where: str) -> None:
    wanted = [[79600.0, [float(step)], step, 4] for step in (1, 2)]
    for found in four.run(programs.beside_training, str(tmp_path), where, timeout=150):
        assert found == [*wanted, [0, 1, 2, 3]]


def test_the_pages_program_goes_on_in_another_world(four: Ranks, tmp_path: Path) -> None:
    found = four.run(programs.page_in_worlds, str(tmp_path), timeout=120)
    half, whole, *rest = found[0]
    assert half == pytest.approx(whole[:6], abs=2e-4)
    assert [len(losses) for losses in found] == [5, 3, 1, 1]
    for losses in (*rest, *(rank[-1] for rank in found)):
        assert losses == pytest.approx(whole[6:], abs=2e-4)
