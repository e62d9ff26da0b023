"""The memory pool and `Storage`."""

from __future__ import annotations

import copy
import copyreg
import gc
import pickle
import sys
import weakref

import numpy as np
import pytest

from rushlight._backends.cpu.runtime import storage
from rushlight._backends.cpu.runtime.pool_native import RESERVE, class_bytes, memory_is_short, size_class
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._backends.cpu.runtime.stubs import bind
from rushlight._base.errors import OutOfMemoryError

MB = 1 << 20


@pytest.fixture(autouse=True)
def settings():
    """Every test starts with an empty cache, and without what others left in cycles; it leaves the limits as they were."""
    gc.collect()
    before = storage.memory_stats()
    storage.empty_cache()
    yield
    storage.set_pool_cap(before["cap"])
    storage.set_memory_limit(before["limit"])
    storage.empty_cache()


def test_size_classes_hold_the_request_and_waste_little():
    cls, nbytes = bind(size_class), bind(class_bytes)
    sizes = [*range(1, 5000), *(2**k + d for k in range(12, 46) for d in (-1, 0, 1, 2 ** (k - 2), 2 ** (k - 2) + 1))]
    for n in sizes:
        c = cls(n)
        assert nbytes(c) >= n and nbytes(c) % 64 == 0
        assert c == 1 or nbytes(c - 1) < n, "the next smaller class would do"
        assert nbytes(c) <= max(n + 63, n * 1.25)
    assert cls(1 << 47) < 170


def test_alloc():
    s = storage.alloc(1000)
    assert (s.nbytes, s.version, s.owner) == (1000, 0, None)
    assert s.ptr % 64 == 0 and s.ptr > 0
    s.version += 3
    assert s.version == 3
    for name in ("ptr", "nbytes", "owner"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(s, name, 5)
    with pytest.raises(AttributeError):
        s.other = 1


def test_nothing_is_allocated_for_nothing():
    before = storage.memory_stats()
    s = storage.alloc(0)
    assert (s.ptr, s.nbytes) == (0, 0)
    assert storage.memory_stats()["live"] == before["live"]
    assert bytes(memoryview(s)) == b""


def test_zeroed_memory_is_zero_even_when_reused():
    for nbytes in (1, 100, 5000, 3 * MB):
        s = storage.alloc(nbytes)
        np.frombuffer(s, np.uint8)[:] = 7
        where = s.ptr
        del s
        z = storage.alloc_zeroed(nbytes)
        assert z.ptr == where
        assert not np.frombuffer(z, np.uint8).any()
        del z
        storage.empty_cache()
        assert not np.frombuffer(storage.alloc_zeroed(nbytes), np.uint8).any()


def test_freed_blocks_are_used_again():
    for nbytes in (64, 1000, 100_000, 5 * MB):
        a = storage.alloc(nbytes)
        where = a.ptr
        del a
        calls = storage.memory_stats()["system_calls"]
        b = storage.alloc(nbytes - 1)
        assert b.ptr == where
        assert storage.memory_stats()["system_calls"] == calls
        c = storage.alloc(nbytes)
        assert c.ptr != b.ptr


def test_large_blocks_are_aligned_for_huge_pages():
    s = storage.alloc(5 * MB)
    assert s.ptr % (2 * MB) == 0
    view = np.frombuffer(s, np.uint8)
    view[0] = view[-1] = 1


def test_statistics():
    storage.reset_peak()
    before = storage.memory_stats()
    a, b = storage.alloc(1000), storage.alloc(MB)
    now = storage.memory_stats()
    assert now["allocated"] - before["allocated"] == 1024 + MB
    assert now["live"] - before["live"] == 2
    assert now["allocations"] - before["allocations"] == 2
    del a, b
    now = storage.memory_stats()
    assert now["allocated"] == before["allocated"]
    assert now["cached"] == 1024 + MB and now["cached_blocks"] == 2
    assert now["peak_allocated"] == before["allocated"] + 1024 + MB
    storage.empty_cache()
    now = storage.memory_stats()
    assert now["cached"] == now["cached_blocks"] == 0
    storage.reset_peak()
    assert storage.memory_stats()["peak_allocated"] == now["allocated"]


def test_the_cache_is_capped():
    storage.set_pool_cap(MB)
    first = storage.alloc(600_000)
    second = storage.alloc(700_000)
    del first
    assert storage.memory_stats()["cached_blocks"] == 1
    del second  # both would be more than the cap: what was kept goes, the newer one stays
    assert storage.memory_stats()["cached"] == 768 * 1024
    huge = storage.alloc(4 * MB)
    del huge  # more than the cap by itself: kept never
    assert storage.memory_stats()["cached"] == 768 * 1024
    storage.set_pool_cap(0)
    assert storage.memory_stats()["cached"] == 0


def test_out_of_memory_says_how_much():
    held = storage.alloc(MB)
    cached = storage.alloc(3 * MB)
    del cached
    live = storage.memory_stats()
    storage.set_memory_limit(live["allocated"] + 8 * MB)
    trims = live["trims"]
    kept = storage.alloc(6 * MB)  # fits once the cached block is given back
    assert storage.memory_stats()["trims"] == trims + 1
    with pytest.raises(
        OutOfMemoryError,
        match=r"tried to allocate 4194304 bytes; \d+ bytes are held by \d+ live storages, 0 bytes are cached",
    ):
        storage.alloc(4 * MB)
    assert issubclass(OutOfMemoryError, RuntimeError)
    del kept
    assert storage.alloc(4 * MB).nbytes == 4 * MB
    storage.set_memory_limit(0)
    with pytest.raises(OutOfMemoryError, match="more than an address space"):
        storage.alloc(1 << 60)
    assert held.nbytes == MB


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system is asked on Linux only")
def test_free_blocks_are_given_back_before_more_is_asked_of_a_short_system():
    state = runtime().state
    before = state[RESERVE]
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    short = bind(memory_is_short)
    try:
        state[RESERVE] = 0
        assert short(available // 2) == 0 and short(4 * available) == 1
        cached = storage.alloc(8 * MB)
        del cached
        trims = storage.memory_stats()["trims"]
        kept = storage.alloc(16 * MB)  # there is enough: nothing happens
        assert storage.memory_stats()["trims"] == trims and storage.memory_stats()["cached"] >= 8 * MB
        state[RESERVE] = 1 << 60
        more = storage.alloc(32 * MB)
        assert storage.memory_stats()["trims"] == trims + 1 and storage.memory_stats()["cached"] == 0
        assert kept.nbytes + more.nbytes == 48 * MB
    finally:
        state[RESERVE] = before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="large blocks are mapped on Linux only")
def test_a_larger_free_block_is_cut_to_size():
    larger = storage.alloc(16 * MB)
    where = larger.ptr
    np.frombuffer(larger, np.uint8)[:] = 1
    del larger
    cut = storage.alloc(9 * MB)  # ten, and six are left
    assert cut.ptr == where and storage.memory_stats()["cached"] == 6 * MB
    rest = storage.alloc(6 * MB)
    assert rest.ptr == where + 10 * MB and storage.memory_stats()["cached"] == 0
    np.frombuffer(cut, np.uint8)[:] = 2
    assert (np.frombuffer(rest, np.uint8) == 1)[64:].all()  # its first word was a link
    del cut, rest
    assert storage.memory_stats()["cached_blocks"] == 2
    small = storage.alloc(1 << 20)  # not of the mapped ones
    assert not where <= small.ptr < where + 16 * MB and storage.memory_stats()["cached"] == 16 * MB
    assert (np.frombuffer(storage.alloc(8 * MB), np.uint8).nbytes, storage.alloc_zeroed(10 * MB).nbytes) == (
        8 * MB,
        10 * MB,
    )
    assert not np.frombuffer(storage.alloc_zeroed(9 * MB), np.uint8).any()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="negative number of bytes"):
        storage.alloc(-1)
    with pytest.raises(TypeError):
        storage.alloc("5")
    with pytest.raises(TypeError, match="1 argument"):
        storage.alloc()
    with pytest.raises(OverflowError):
        storage.alloc(1 << 70)
    with pytest.raises(TypeError, match="3 arguments"):
        storage.from_owner(1, 2)
    with pytest.raises(ValueError, match="no memory"):
        storage.from_owner(0, 8, None)
    with pytest.raises(ValueError, match="no memory"):
        storage.from_owner(64, -8, None)


def test_python_cannot_make_one(monkeypatch):
    kind = runtime().Storage
    monkeypatch.delitem(copyreg.dispatch_table, kind, raising=False)  # what the first pickled tensor registers
    assert kind is storage.Storage
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(TypeError):
        object.__new__(kind)
    with pytest.raises(TypeError):
        type("Sub", (kind,), {})
    with pytest.raises(TypeError):
        kind.ptr = 5
    with pytest.raises(TypeError):
        copy.copy(storage.alloc(64))
    with pytest.raises((TypeError, pickle.PicklingError)):
        pickle.dumps(storage.alloc(64))


def test_an_owner_lives_as_long_as_its_storage():
    class Owner:
        pass

    owner = Owner()
    array = np.arange(10, dtype=np.float32)
    owner.array = array
    alive = weakref.ref(owner)
    s = storage.from_owner(array.ctypes.data, array.nbytes, owner)
    assert s.owner is owner
    live = storage.memory_stats()["live"]
    del owner, array
    gc.collect()
    assert alive() is not None
    np.testing.assert_array_equal(np.frombuffer(s, np.float32), np.arange(10))
    view = np.frombuffer(s, np.float32)
    del s
    assert alive() is not None, "the view holds the storage, which holds the owner"
    del view
    gc.collect()
    assert alive() is None
    assert storage.memory_stats()["live"] == live


def test_weak_references_die_with_the_storage():
    s = storage.alloc(100)
    seen = []
    w = weakref.ref(s, lambda _: seen.append(1))
    assert w() is s
    del s
    assert w() is None and seen == [1]


def test_many_blocks_at_once():
    rng = np.random.default_rng(0)
    held = {}
    for step in range(5000):
        if held and rng.random() < 0.5:
            key = list(held)[rng.integers(len(held))]
            s, stamp = held.pop(key)
            assert (np.frombuffer(s, np.uint8) == stamp).all(), "another block was given the same memory"
        n = int(rng.integers(1, 20_000))
        s, stamp = storage.alloc(n), step % 251
        np.frombuffer(s, np.uint8)[:] = stamp
        held[step] = (s, stamp)
    for s, stamp in held.values():
        assert (np.frombuffer(s, np.uint8) == stamp).all()


def test_resize():
    s = storage.alloc(100)
    np.frombuffer(s, np.uint8)[:] = np.arange(100)
    live = storage.memory_stats()["live"]
    storage.resize(s, 10_000)
    assert s.nbytes == 10_000
    np.testing.assert_array_equal(np.frombuffer(s, np.uint8)[:100], np.arange(100))
    storage.resize(s, 10)
    np.testing.assert_array_equal(np.frombuffer(s, np.uint8), np.arange(10))
    assert storage.memory_stats()["live"] == live
    storage.resize(s, 0)
    assert (s.ptr, s.nbytes, storage.memory_stats()["live"]) == (0, 0, live - 1)
    storage.resize(s, 5)
    assert s.ptr and storage.memory_stats()["live"] == live
    array = np.zeros(4)
    with pytest.raises(RuntimeError, match="not resizable"):
        storage.resize(storage.from_owner(array.ctypes.data, array.nbytes, array), 8)
    with pytest.raises(TypeError, match="a Storage and a number"):
        storage.resize(array, 8)
    with pytest.raises(ValueError, match="negative"):
        storage.resize(s, -1)
