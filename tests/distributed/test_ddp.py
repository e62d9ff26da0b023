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
        "options",
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
        with pytest.raises(ValueError, match="need to be set at the same time"):
            torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1), delay_all_reduce_named_params=[])
        with pytest.warns(FutureWarning, match="use `forward_sync_buffers`"):
            model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(2), broadcast_buffers=False)
        assert not model.will_sync_module_buffers() and not model.forward_sync_buffers
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.BatchNorm1d(2), forward_sync_buffers=True)
        assert model.broadcast_buffers and model.will_sync_module_buffers()
    finally:
        dist.destroy_process_group()


def test_optimizers_step_inside_backward() -> None:
    from rushlight.distributed.optim import _apply_optimizer_in_backward, _get_in_backward_optimizers

    net = torch.nn.Linear(2, 1, bias=False)
    torch.nn.init.ones_(net.weight)
    for rate in (0.25, 0.5):  # both use each gradient
        _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": rate})
    net(torch.ones(1, 2)).sum().backward()
    assert net.weight.tolist() == [[0.25, 0.25]] and net.weight.grad is None
    assert [one.param_groups[0]["lr"] for one in _get_in_backward_optimizers(net)] == [0.25, 0.5]
    with pytest.raises(RuntimeError, match="require gradients"):
        _apply_optimizer_in_backward(torch.optim.SGD, [torch.nn.Parameter(torch.ones(1), False)], {"lr": 1.0})
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(NotImplementedError, match="optimizers in backward"):
            torch.nn.parallel.DistributedDataParallel(net)
    finally:
        dist.destroy_process_group()
