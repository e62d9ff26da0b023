"""Stores: what every kind does alike, timeouts, and stores of one's own."""

from __future__ import annotations

from datetime import timedelta

import pytest

import rushlight.distributed as dist

SHORT = timedelta(milliseconds=30)


def hash_store(path) -> dist.Store:
    return dist.HashStore()


def tcp_store(path) -> dist.Store:
    return dist.TCPStore("localhost", 0, is_master=True)


def prefix_store(path) -> dist.Store:
    return dist.PrefixStore("prefix", dist.HashStore())


def file_store(path) -> dist.Store:
    return dist.FileStore(str(path / "store"))


MAKERS = [hash_store, tcp_store, prefix_store, file_store]


@pytest.mark.parametrize("make", MAKERS)
def test_every_store_does_the_same(make, tmp_path) -> None:
    store = make(tmp_path)
    store.set("a", "1")
    store.set("b", b"\x00\xff")
    assert store.get("a") == b"1" and store.get("b") == b"\x00\xff"
    assert store.add("a", 2) == 3 and store.add("new", -5) == -5 and store.get("new") == b"-5"
    assert store.check(["a", "b"]) and not store.check(["a", "absent"])
    # What PyTorch answers: the value afterwards, and what was expected of a key that is not set.
    assert store.compare_set("c", "", "x") == b"x" and store.compare_set("c", "y", "z") == b"x"
    assert store.compare_set("c", "x", "z") == b"z" and store.compare_set("q", "y", "z") == b"y"
    assert store.delete_key("c") and not store.delete_key("c")
    store.multi_set(["m", "n"], ["1", b"2"])
    assert store.multi_get(["n", "m"]) == [b"2", b"1"]
    store.barrier("here", 1)
    store.wait(["a", "m"], timedelta(seconds=1))
    store.set_timeout(SHORT)
    assert store.timeout == SHORT
    for late in (
        lambda: store.get("absent"),
        lambda: store.wait(["a", "absent"]),
        lambda: store.wait(["absent"], SHORT),
    ):
        with pytest.raises(dist.DistStoreError, match="(?i)wait timeout"):
            late()
    with pytest.raises(TypeError):
        store.set("a", 1)
    with pytest.raises(ValueError, match="keys and"):
        store.multi_set(["x"], [])


@pytest.mark.parametrize("make", MAKERS[:3])
def test_queues_lists_and_appended_values(make, tmp_path) -> None:
    store = make(tmp_path)
    store.set_timeout(SHORT)
    store.append("text", "x")
    store.append("text", "y")
    assert store.get("text") == b"xy" and store.has_extended_api()
    store.queue_push("queue", "1")
    store.queue_push("queue", "2")
    assert store.queue_len("queue") == 2 and store.check(["queue"]) and store.queue_pop("queue") == b"1"
    assert store.queue_pop("queue", False) == b"2" and store.queue_len("queue") == 0
    with pytest.raises(dist.QueueEmptyError, match="queue is empty"):
        store.queue_pop("queue", block=False)
    with pytest.raises(dist.DistStoreError, match="(?i)wait timeout"):
        store.queue_pop("queue")
    assert store.list_keys() == ["text"]
    store.set("text", "word")
    with pytest.raises((ValueError, dist.DistNetworkError)):
        store.add("text", 1)


def test_a_store_of_ones_own_needs_four_methods() -> None:
    class Ours(dist.Store):
        def __init__(self) -> None:
            super().__init__()
            self.values: dict[str, bytes] = {}

        def set(self, key, value):
            self.values[key] = value if isinstance(value, bytes) else value.encode()

        def get(self, key):
            return self.values[key]

        def add(self, key, value):
            self.set(key, str(int(self.values.get(key, b"0")) + value))
            return int(self.values[key])

        def check(self, keys):
            return all(key in self.values for key in keys)

    store = Ours()
    store.multi_set(["a", "b"], ["1", "2"])
    assert store.multi_get(["a", "b"]) == [b"1", b"2"]
    store.barrier("all", 1)
    with pytest.raises(dist.DistStoreError, match="absent"):
        store.wait(["absent"], SHORT)
    with pytest.raises(NotImplementedError, match=r"Ours has no queue_pop\(\)"):
        store.queue_pop("q")


def test_a_file_is_shared_and_removed_with_the_last_store(tmp_path) -> None:
    path = tmp_path / "store"
    one, other = dist.FileStore(str(path), 2), dist.FileStore(str(path), 2)
    one.set("key", "value")
    one.append("key", "s")
    assert other.get("key") == b"values" and other.add("n", 1) == 1 and one.add("n", 1) == 2
    assert one.delete_key("key") and not other.check(["key"]) and other.list_keys() == ["n"]
    # PyTorch's layout: lengths of four bytes, a slash before keys of users.
    assert b"\x04\0\0\0/key\x05\0\0\0value" in path.read_bytes()
    with pytest.raises(NotImplementedError, match="queue_push"):
        one.queue_push("queue", "1")
    del one
    assert path.exists()
    del other
    assert not path.exists()


def test_a_file_stays_while_another_store_of_it_is_open(tmp_path) -> None:
    path = tmp_path / "store"
    one, other = (dist.FileStore(str(path), 1) for _ in range(2))
    one.set("a", "1")
    del one
    assert path.exists() and other.get("a") == b"1"
    del other
    assert not path.exists()


class Bytes(dist.Store):
    """A store of a program that knows bytes alone, and has `compare_set`."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, bytes] = {}

    def set(self, key, value) -> None:
        assert type(value) is bytes
        self.held[key] = value

    def get(self, key) -> bytes:
        return self.held[key]

    def compare_set(self, key, expected, value) -> bytes:
        assert type(expected) is bytes and type(value) is bytes
        if self.held.get(key, b"") == expected:
            self.held[key] = value
        return self.held.get(key, expected)


def test_a_prefix_hands_bytes_to_stores_of_programs() -> None:
    below = Bytes()
    store = dist.PrefixStore("p", below)
    store.set("a", "text")
    store.multi_set(["b"], ["more"])
    for piece in ("po", "tato"):
        store.append("c", piece)
    assert below.held == {"p/a": b"text", "p/b": b"more", "p/c": b"potato"} and not store.has_extended_api()
    with pytest.raises(RuntimeError, match="Not implemented."):
        dist.Store().append("a", "b")
    with pytest.raises(ValueError, match="another store"):
        dist.PrefixStore("p", None)  # type: ignore[arg-type]


def test_a_place_is_said_once() -> None:
    with pytest.raises(AssertionError, match="has node-specific arguments"):
        dist.rendezvous("file://foo?rank=12&world_size=16", 12, 16)


def test_a_taken_port_has_pytorch_s_words() -> None:
    taken = dist.TCPStore("localhost", 0, is_master=True)
    with pytest.raises(dist.DistNetworkError, match="failed to listen on any local network address.*EADDRINUSE"):
        dist.TCPStore("localhost", taken.port, is_master=True)
