"""`torch.distributed.rpc`, distributed autograd and optimizers on three and four workers, beside one process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.distributed.programs import rpc_programs as programs
from tests.distributed.programs import rpc_tutorials as tutorials
from tests.distributed.ranks import Ranks

import rushlight.distributed as dist
from rushlight.distributed import rpc
from rushlight.distributed.rpc.members import Members


@pytest.mark.parametrize("program", ["calls", "tensors", "references", "gradients", "gradient_errors"])
def test_four_workers(four: Ranks, program: str, tmp_path: Path) -> None:
    four.run(getattr(programs, program), str(tmp_path / "store"))


def test_strangers_are_refused(four: Ranks, tmp_path: Path) -> None:
    assert four.run(programs.strangers, str(tmp_path / "store")) == [8] * 4


def test_a_dead_worker_is_named(four: Ranks, tmp_path: Path) -> None:
    for texts in four.run(programs.killed, str(tmp_path / "store"))[:-1]:
        assert len(texts) == 4
        assert all("worker 'w3' (rank 3) is gone" in text for text in texts), texts


def test_an_end_waits_for_work(four: Ranks, tmp_path: Path) -> None:
    four.run(programs.ends_at_work, str(tmp_path / "store"))


def test_workers_come_and_go(four: Ranks, tmp_path: Path) -> None:
    first, second, *_ = four.run(programs.late_member, str(tmp_path / "store"))
    assert second == ["WorkerInfo(id=0, name=first)"]
    assert "second" in first[0] and ("is gone" in first[0] or "could not find" in first[0])


@pytest.mark.parametrize(
    "program", ["parameter_server", "data_parallel", "recurrent", "batched_updates", "reinforcement"]
)
def test_tutorials(four: Ranks, program: str, tmp_path: Path) -> None:
    four.run(getattr(tutorials, program), str(tmp_path / "store"))


def test_workers_that_do_not_come_are_named() -> None:
    store = dist.HashStore()
    members = Members(store, "a", 0)
    members.announce(("127.0.0.1", 1))
    with pytest.raises(RuntimeError, match=r"not there: \[1, 2\] \(of 3\)"):
        members.await_all(3, 0.05)
    with pytest.raises(RuntimeError, match="name a is not unique: rank 0 has it, and so wants rank 1"):
        Members(store, "a", 1)
    with pytest.raises(RuntimeError, match="Worker name must match"):
        Members(store, "a b", 1)
    with pytest.raises(RuntimeError, match="RPC has not been initialized"):
        rpc.get_worker_info()
    with pytest.raises(ValueError, match="rpc sends tensors of the CPU"):
        rpc.TensorPipeRpcBackendOptions(device_maps={"b": {"cuda:0": "cuda:0"}})
