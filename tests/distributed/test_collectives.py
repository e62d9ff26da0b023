"""Collectives, messages, objects and groups on four ranks; and on one."""

from __future__ import annotations

import copy
import pickle

import pytest
from tests.distributed.programs import collective_programs as programs
from tests.distributed.ranks import Ranks

import rushlight as torch
import rushlight.distributed as dist


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


def test_groups_shrink_and_split(four: Ranks) -> None:
    assert four.run(programs.shrunk) == [0, 1, 2, 3]


def test_small_records_of_groups() -> None:
    op = dist._make_nccl_premul_sum(2.0)
    for again in (copy.copy(op), copy.deepcopy(op), pickle.loads(pickle.dumps(op))):
        assert again == op == dist.ReduceOp.PREMUL_SUM and again.factor == 2.0
    assert dist.ProcessGroup.BackendType.GLOO is dist.ProcessGroup.GLOO is dist.Backend.backend_type_map["gloo"]
    assert dist.Backend.backend_capability["gloo"] == ["cpu"] and dist.GradBucket.__name__ == "GradBucket"
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(ValueError, match="exclude all"):
            dist.shrink_group([0])
        with pytest.raises(NotImplementedError, match="takes no further processes"):
            dist.group.WORLD.merge_remote_group(dist.HashStore(), 2)
        work = dist.all_reduce(torch.ones(1), async_op=True)
        work.block_current_stream()
        mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
        again = pickle.loads(pickle.dumps(mesh))
        assert again == mesh and (again.device_type, again.mesh_dim_names) == ("cpu", ("a", "b"))
        assert type(work).unbox(work.boxed()) is work
    finally:
        dist.destroy_process_group()
