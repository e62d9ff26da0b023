"""From URLs and the environment to a store, a rank and a size."""

from __future__ import annotations

import socket

import pytest

import rushlight.distributed as dist


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
