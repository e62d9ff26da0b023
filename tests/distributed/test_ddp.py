"""`DistributedDataParallel` on two and four ranks beside one process."""

from __future__ import annotations

import pytest
from tests.distributed.programs import ddp_programs as programs
from tests.distributed.ranks import Ranks

import rushlight as torch
import rushlight.distributed as dist


def test_gradients_are_those_of_one_process(four: Ranks) -> None:
    assert four.run(programs.steps) == [54, 54, 54, 36]


@pytest.mark.parametrize(
    "program",
    [
        "accumulated",
        "buffers",
        "hooks",
        "batch_statistics",
        "divided",
        "joined",
        "joined_in_parts",
        "compiled",
        "mixed",
    ],
)
def test_four_ranks(four: Ranks, program: str) -> None:
    four.run(getattr(programs, program))


def test_unused_parameters_are_named(four: Ranks) -> None:
    for rank, text in enumerate(four.run(programs.unused)):
        assert f"On rank {rank} these parameters got no gradient: spare.weight, spare.bias." in text


def test_models_that_differ_are_refused(four: Ranks) -> None:
    for text in four.run(programs.mismatched):
        assert "rank 2 has ('weight', (4, 3)" in text


def test_errors_without_a_group_or_parameters() -> None:
    with pytest.raises(ValueError, match="has not been initialized"):
        torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(RuntimeError, match="doesn't have any parameters that require a gradient"):
            torch.nn.parallel.DistributedDataParallel(torch.nn.ReLU())
        with pytest.raises(ValueError, match="device_ids"):
            torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1), device_ids=[0])
    finally:
        dist.destroy_process_group()
