"""From URLs and the environment to a store, a rank and a size."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.distributed.programs.srun import variables
from tests.distributed.ranks import ROOT

import rushlight.distributed as dist
from rushlight._distributed.launch.slurm import first_host, meeting_place


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def test_by_environment(monkeypatch) -> None:
    port = free_port()
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}.items():
        monkeypatch.setenv(name, value)
    store, rank, size = next(dist.rendezvous("env://"))
    assert (rank, size, store.port, store.is_master) == (0, 1, port, True)
    # A launcher's agent has the store: no rank starts one, and each round has keys of its own.
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    other, rank, size = next(dist.rendezvous("env://?rank=3&world_size=9"))
    assert (rank, size) == (3, 9) and not other.underlying_store.is_master
    other.set("key", "value")
    assert store.get("/worker/attempt_2/key") == b"value"
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("SLURM_PROCID", "5")
    assert next(dist.rendezvous("env://"))[1] == 5
    monkeypatch.delenv("WORLD_SIZE")
    with pytest.raises(ValueError, match="environment variable WORLD_SIZE expected, but not set"):
        next(dist.rendezvous("env://"))


def test_by_address_and_file(tmp_path) -> None:
    store, rank, size = next(dist.rendezvous(f"tcp://localhost:{free_port()}?rank=0&world_size=1"))
    assert (rank, size) == (0, 1) and store.is_master
    again, rank, size = next(dist.rendezvous(f"tcp://localhost:{store.port}", 1, 2))
    assert (rank, size) == (1, 2) and not again.is_master
    filed = next(dist.rendezvous(f"file://{tmp_path}/store", rank=0, world_size=2))
    assert isinstance(filed[0], dist.FileStore) and filed[1:] == (0, 2)
    for url, says in (
        ("tcp://localhost:1", "rank parameter missing"),
        ("file:///x?rank=0", "world_size parameter missing"),
    ):
        with pytest.raises(ValueError, match=says):
            next(dist.rendezvous(url))
    with pytest.raises(ValueError, match="port number missing"):
        next(dist.rendezvous("tcp://localhost?rank=0&world_size=1"))


def test_schemes_of_ones_own() -> None:
    def handler(url, **kwargs):
        yield dist.HashStore(), len(url), 7

    dist.register_rendezvous_handler("own", handler)
    assert next(dist.rendezvous("own://x"))[1:] == (7, 7)
    with pytest.raises(RuntimeError, match="already registered"):
        dist.register_rendezvous_handler("own", handler)
    with pytest.raises(RuntimeError, match="No rendezvous handler for none://"):
        dist.rendezvous("none://x")


# ***** Slurm *****

TASK = """
import sys
import rushlight as torch
import rushlight.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(dist.get_rank())])
dist.all_reduce(x)
sys.stdout.write(f"{dist.get_rank()} {dist.get_world_size()} {dist.get_node_local_rank()} {x.item()}\\n")
dist.destroy_process_group()
"""
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE")


@pytest.mark.parametrize("nodes", [1, 2])
def test_tasks_of_slurm_meet(mpi: None, nodes: int) -> None:
    env = {k: v for k, v in os.environ.items() if k not in LAUNCHERS}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *filter(None, [env.get("PYTHONPATH")])])
    if nodes > 1:  # the names of pretended nodes lead nowhere
        env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    command = [
        sys.executable,
        str(Path(__file__).with_name("programs") / "srun.py"),
        "2",
        str(nodes),
        sys.executable,
        "-c",
        TASK,
    ]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    second = 0 if nodes > 1 else 1
    assert sorted(ran.stdout.splitlines()) == ["0 2 0 1.0", f"1 2 {second} 1.0"]


def test_where_tasks_of_slurm_meet() -> None:
    alone, many = variables(1, 4, 1), variables(3, 4, 2)
    assert meeting_place(alone) == {"host": "localhost", "port": "27872"}
    assert meeting_place(many) == {"host": "n1", "port": "27872"}
    assert meeting_place({**many, "MASTER_ADDR": "a", "MASTER_PORT": "1"}) == {}
    assert meeting_place({**many, "SLURM_STEP_ID": "3"})["port"] == "27875"
    assert meeting_place({"SLURM_NTASKS": "2", "SLURM_JOB_ID": "1"}) == {}  # of a batch script, not of a step
    assert meeting_place({"SLURM_PROCID": "0"}) == {}
    assert [first_host(x) for x in ("a", "a1,a2", "n[1-3,9],m", "n[007,9]", "r[1-2]c[04-05]")] == [
        "a",
        "a1",
        "n1",
        "n007",
        "r1c04",
    ]
