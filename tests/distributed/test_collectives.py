"""Collectives, messages, objects and groups on four ranks; and on one."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta

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


def test_groups_that_pretend() -> None:
    """One process as rank 1 of 4: PyTorch's backend "fake" gives these values."""
    dist.init_process_group("fake", rank=1, world_size=4)
    try:
        x = torch.arange(3.0)
        dist.all_reduce(x)
        assert x.tolist() == [0.0, 1.0, 2.0] and (dist.get_backend(), dist.get_rank(), dist.get_world_size()) == (
            "fake",
            1,
            4,
        )
        rows, whole = [torch.zeros(2) for _ in range(4)], torch.arange(8.0)
        dist.all_gather(rows, torch.ones(2))
        assert torch.stack(rows).tolist() == [[1.0, 1.0]] * 4
        part = torch.empty(2)
        dist.reduce_scatter_tensor(part, whole)
        assert part.tolist() == [2.0, 3.0]
        dist.scatter(part, list(whole.flip(0).view(4, 2)), src=1)
        assert part.tolist() == [5.0, 4.0]
        got = torch.empty(8)
        assert dist.all_to_all_single(got, whole, async_op=True).wait() and torch.equal(got, whole)
        dist.send(part, 0)
        dist.irecv(part, 2).wait()
        dist.barrier()
        found = [None] * 4
        dist.all_gather_object(found, "a")
        assert found == ["a"] * 4 and part.tolist() == [5.0, 4.0]
        some = dist.new_group([0, 1])
        assert (dist.get_world_size(some), dist.get_rank(some)) == (2, 1)
        mesh = dist.init_device_mesh("cpu", (4,), mesh_dim_names=("world",))
        grid = mesh._unflatten("world", (2, 1, 2), ("pp", "dp", "tp"))
        assert grid.get_coordinate() == (0, 0, 1) and grid["tp"].size() == 2
        assert grid["pp"].mesh.tolist() == [1, 3] and grid["pp", "dp"]._flatten("both").mesh.tolist() == [1, 3]
        other = mesh._unflatten(0, (4, 1), ("fsdp", "ep"), backend_override={"fsdp": "fake", "ep": ("fake", None)})
        assert other["fsdp"].get_group().size() == 4
        joined = dist.DeviceMesh._concatenate([grid["pp"], grid["tp"]])
        assert joined.mesh.tolist() == [[0, 1], [2, 3]] and joined.mesh_dim_names == ("pp", "tp")
        with pytest.raises(RuntimeError, match="overlapping"):
            dist.DeviceMesh._concatenate([other["fsdp"], grid["tp"]])
        with pytest.raises(RuntimeError, match="cannot become"):
            mesh._unflatten(0, (3,), ("a",))
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=5), some)
        assert some._group.timeout == 5.0
    finally:
        dist.destroy_process_group()


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
