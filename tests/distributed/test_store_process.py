"""The store process: what clients send it, hostile or not, and MPI jobs that begin in it."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

import rushlight.distributed as dist
from rushlight._distributed.errors import DistNetworkError
from rushlight._distributed.launch import rounds
from rushlight._distributed.launch.connect import connect
from rushlight._distributed.launch.pmi import process_mapping
from rushlight._distributed.stores import wire

VALIDATE = bytes([wire.Query.VALIDATE]) + wire.MAGIC.to_bytes(4, "little")


@pytest.fixture(scope="module")
def master():
    return dist.TCPStore("localhost", 0, is_master=True, timeout=timedelta(seconds=10))


def raw(store) -> socket.socket:
    return socket.create_connection(("localhost", store.port), 5)


def test_master_and_workers(master) -> None:
    workers = [dist.TCPStore("localhost", master.port, timeout=timedelta(seconds=5)) for _ in range(3)]
    got = []
    thread = threading.Thread(target=lambda: got.append(workers[0].get("later")))
    thread.start()
    workers[1].set("later", "now")
    thread.join(5)
    assert got == [b"now"] and master.is_master and not workers[0].is_master and workers[0].host == "localhost"
    prefixed = dist.PrefixStore("a", dist.PrefixStore("b", workers[2]))
    prefixed.set("k", "v")
    assert master.get("b/a/k") == b"v" and prefixed._underlying_non_prefix_store is workers[2]
    with pytest.raises(dist.DistNetworkError, match="address already in use"):
        dist.TCPStore("localhost", master.port, is_master=True)
    with pytest.raises(dist.DistStoreError, match="waiting for clients. 1/3 clients joined"):
        dist.TCPStore("localhost", 0, 3, is_master=True, timeout=timedelta(seconds=0.5))


def test_a_write_that_has_returned_is_seen_on_every_connection() -> None:
    """A large value comes in many pieces, between which the server answers others."""
    one = dist.TCPStore("localhost", 0, is_master=True, timeout=timedelta(seconds=10))
    other, large = dist.TCPStore("localhost", one.port), bytes(2 << 20)
    writes = [one.set, one.append, lambda key, value: one.multi_set([key], [value]), one.queue_push]
    for place, write in enumerate(writes):
        for key in [f"{place} {number}" for number in range(10)]:
            write(key, large)
            assert other.check([key])


def test_the_port_is_free_when_the_master_has_gone() -> None:
    store = dist.TCPStore("localhost", 0, is_master=True)
    port = store.port
    del store
    limit = time.monotonic() + 5
    while True:
        try:
            socket.create_server(("127.0.0.1", port)).close()
            return
        except OSError:
            assert time.monotonic() < limit
            time.sleep(0.02)


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(dist.DistNetworkError, match="timed out after 100ms while trying to connect"):
        dist.TCPStore("127.0.0.1", port, timeout=timedelta(milliseconds=100))


HOSTILE = [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    bytes([wire.Query.SET]) + wire.as_text(b"/k") + wire.as_text(b"v"),  # before VALIDATE
    bytes([wire.Query.VALIDATE]) + b"\0\0\0\0",
    VALIDATE + bytes([99]),
    VALIDATE + bytes([wire.Query.SET]) + wire.as_integer_field(1 << 60),
    VALIDATE + bytes([wire.Query.SET]) + wire.as_integer_field(-5),
    VALIDATE + bytes([wire.Query.WAIT]) + wire.as_integer_field(1 << 40),
    VALIDATE + bytes([wire.Query.SET]) + wire.as_text(b"\xff\xfe") + wire.as_text(b""),
    VALIDATE + bytes([wire.Query.JOIN]) + wire.as_text(b"j") + wire.as_integer_field(0) + wire.as_integer_field(1 << 50),
    VALIDATE + bytes([wire.Query.WATCH]) + wire.as_text(b"j") + wire.as_integer_field(7) + wire.as_integer_field(2),
]  # fmt: skip


def test_hostile_bytes_end_their_connection_and_nothing_else(master) -> None:
    for data in HOSTILE:
        with raw(master) as client:
            client.sendall(data)
            assert client.recv(10) == b"", data
    generator = random.Random(0)
    for _ in range(100):
        with raw(master) as client:
            client.sendall(VALIDATE * generator.randrange(2) + generator.randbytes(generator.randrange(1, 300)))
    assert not master.check(["k"])
    master.set("alive", "yes")
    assert master.get("alive") == b"yes"


def test_process_mapping_names_blocks_of_ranks() -> None:
    assert process_mapping(["a"] * 4) == "(vector,(0,1,4))"
    assert process_mapping(["a", "b", "c"]) == "(vector,(0,3,1))"
    assert process_mapping(["a", "b", "a", "b"]) == "(vector,(0,2,1),(0,2,1))"


def test_ranks_that_have_not_come_are_named(master) -> None:
    with pytest.raises(dist.DistBackendError, match=r"rank 0 waited 0 s for the other ranks; not there: 1, 2 \(of 3\)"):
        connect(dist.PrefixStore("late", master), 0, 3, timedelta(seconds=0.2))


RANK = """
import sys
from rushlight._distributed.errors import DistNetworkError
from rushlight._distributed.launch import rounds
from rushlight._distributed.launch.connect import connect
from rushlight._distributed.stores.file_store import FileStore
from rushlight._distributed.stores.tcp_store import TCPStore
rank, size, where = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
store = TCPStore("localhost", int(where)) if where.isdigit() else FileStore(where)
world = connect(store, rank, size, 30)
from mpi4py import MPI
MPI.COMM_WORLD.barrier()
world.started()
node = MPI.COMM_WORLD.Split_type(MPI.COMM_TYPE_SHARED)
print(MPI.COMM_WORLD.allreduce(rank + 1), node.size, world.nodes, flush=True)
"""


@pytest.mark.parametrize("kind", ["tcp", "file"])
def test_processes_become_ranks_of_an_mpi_world(kind, master, tmp_path) -> None:
    """Over one machine's memory, and as two pretended machines; no file of shared memory is left."""
    pytest.importorskip("mpi4py")
    before = set(os.listdir("/dev/shm"))
    size = 4 if kind == "tcp" else 2
    where = str(master.port) if kind == "tcp" else str(tmp_path / "store")
    ranks = []
    for rank in range(size):
        environment = dict(os.environ, RUSHLIGHT_NODE=f"node{rank // 2}" if kind == "tcp" else "")
        command = [sys.executable, "-c", RANK, str(rank), str(size), where]
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [rank.communicate(timeout=60)[0].split() for rank in ranks]
    assert outputs == [["10", "2", "2"] if kind == "tcp" else ["3", "2", "1"]] * size
    assert set(os.listdir("/dev/shm")) <= before


def test_agents_do_not_wait_for_a_store_that_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = rounds.Meeting(("localhost", 0), "job", (1, 1), None, {"is_host": True})
    process: Any = meeting.store._process
    assert meeting.join(2).world_size == 2
    monkeypatch.setattr(rounds, "_ANSWERS_WITHIN", 0.1)
    os.kill(process._process.pid, signal.SIGSTOP)
    try:
        for act in (lambda: meeting.join(2), meeting.count_restart):
            with pytest.raises(DistNetworkError, match="has not answered within 0.1 s"):
                act()
    finally:
        meeting.store.kill_server()
