"""Records kept on disk: what must be found, and what must not be believed."""

from __future__ import annotations

import multiprocessing
import os
import stat
import time
from pathlib import Path

import pytest

from rushlight._base.digest import digest
from rushlight._native.cache import ObjectCache
from rushlight._native.record_store import RecordStore

MB = 1 << 20


def store(tmp_path: Path, edition: bytes = b"one", limit: int = MB) -> RecordStore:
    return RecordStore(ObjectCache(str(tmp_path / "cache"), "machine"), edition, limit)


def key(k: int) -> bytes:
    return digest(str(k).encode())


def files(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").glob("*/records-*"))


def written(tmp_path: Path, records: dict[int, bytes]) -> None:
    one = store(tmp_path)
    for k, body in records.items():
        one.put(key(k), body)
    one.flush()


def test_records_are_found_by_another_process(tmp_path):
    one = store(tmp_path)
    assert one.get(key(1)) is None
    one.put(key(1), b"one")
    assert one.get(key(1)) == b"one"
    assert store(tmp_path).get(key(1)) is None  # not before it is written
    one.flush()
    assert store(tmp_path).get(key(1)) == b"one" == one.get(key(1))
    assert stat.S_IMODE(files(tmp_path)[0].stat().st_mode) == 0o600


def test_many_records(tmp_path):
    written(tmp_path, {k: str(k).encode() * (k % 7) for k in range(1000)})
    other = store(tmp_path)
    assert all(other.get(key(k)) == str(k).encode() * (k % 7) for k in range(1000))
    assert all(other.get(key(k)) is None for k in range(1000, 1100))


def test_editions_do_not_see_each_other(tmp_path):
    written(tmp_path, {1: b"one"})
    assert store(tmp_path, b"two").get(key(1)) is None
    renamed = files(tmp_path)[0]
    two = store(tmp_path, b"two")
    os.rename(renamed, renamed.with_name(f"records-{two.edition.hex()[:16]}-1.log"))
    assert store(tmp_path, b"two").get(key(1)) is None


@pytest.mark.parametrize(
    "damage",
    [lambda d: d[:-1], lambda d: b"", lambda d: d[:30], lambda d: d[:-3] + b"abc", lambda d: b"x" + d[1:],
     lambda d: d[:52] + b"\xff" * 8 + d[60:], lambda d: d[:60] + b"\xff" * 48 + d[108:], lambda d: d[:20] + bytes(32) + d[52:],
     lambda d: d[:92] + b"\xff" * 16 + d[108:], lambda d: d[:52] + (1).to_bytes(8, "little") + d[60:100]],
)  # fmt: skip
def test_damaged_segments_are_not_believed(tmp_path, damage):
    written(tmp_path, {1: b"a record"})
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert store(tmp_path).get(key(1)) is None
    written(tmp_path, {1: b"a record"})  # and are replaced
    assert store(tmp_path).get(key(1)) == b"a record"


def test_no_byte_of_a_segment_can_be_changed_unseen(tmp_path):
    records = {k: bytes([k]) * 5 for k in range(3)}
    written(tmp_path, records)
    (path,) = files(tmp_path)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        other = store(tmp_path)
        for k, body in records.items():
            assert other.get(key(k)) in (body, None)


def test_a_file_cut_off_while_it_is_read(tmp_path):
    written(tmp_path, dict.fromkeys(range(20), b"x" * 10000))
    other = store(tmp_path)
    assert other.get(key(0)) is not None
    os.truncate(files(tmp_path)[0], 3000)
    assert all(other.get(key(k)) in (None, b"x" * 10_000) for k in range(20))


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_may_write_is_not_read(tmp_path, mode):
    written(tmp_path, {1: b"one"})
    os.chmod(files(tmp_path)[0], mode)
    assert store(tmp_path).get(key(1)) is None


def test_links_and_pipes_are_not_read(tmp_path):
    written(tmp_path, {1: b"one"})
    (path,) = files(tmp_path)
    moved = tmp_path / "elsewhere"
    os.rename(path, moved)
    os.symlink(moved, path)
    assert store(tmp_path).get(key(1)) is None
    os.unlink(path)
    os.mkfifo(path)
    assert store(tmp_path).get(key(1)) is None


def test_segments_are_joined(tmp_path):
    for k in range(30):
        written(tmp_path, {k: b"x" * k})
        assert len(files(tmp_path)) <= 9
    other = store(tmp_path)
    assert all(other.get(key(k)) == b"x" * k for k in range(30))


def test_sizes_stay_under_the_limit(tmp_path):
    for turn in range(12):
        one = store(tmp_path, limit=20_000)
        for k in range(10):
            one.put(key(turn * 10 + k), bytes(500))
        one.flush()
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 27_000
    other = store(tmp_path, b"two", limit=4_000)
    other.put(key(1), bytes(1000))
    other.flush()
    assert [path.name.split("-")[1] for path in files(tmp_path)] == [other.edition.hex()[:16]]  # old editions go first
    assert store(tmp_path, b"two").get(key(1)) == bytes(1000)


def test_left_over_files_are_deleted(tmp_path):
    written(tmp_path, {1: b"one"})
    left = files(tmp_path)[0].with_suffix(".tmp")
    left.write_bytes(b"half")
    os.utime(left, (time.time() - 7200,) * 2)
    written(tmp_path, {2: b"two"})
    assert not left.exists()


def test_a_directory_that_cannot_be_used(tmp_path):
    (tmp_path / "cache").write_text("a file")
    one = store(tmp_path)
    one.put(key(1), b"one")
    with pytest.warns(RuntimeWarning, match="not kept on disk"):
        one.flush()
    assert one.get(key(2)) is None
    none = RecordStore(ObjectCache("", "machine"), b"one", MB)
    none.put(key(1), b"one")
    none.flush()
    assert none.get(key(2)) is None


def _write_some(root: str, first: int) -> None:
    one = RecordStore(ObjectCache(root, "machine"), b"one", 8 * MB)
    for turn in range(20):
        for k in range(5):
            one.put(key(first + turn * 5 + k), b"x" * (first + k))
        one.flush()


def test_many_processes_write_at_once(tmp_path):
    written(tmp_path, {0: b"first"})
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_write_some, args=(str(tmp_path / "cache"), 1000 * n)) for n in range(1, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(worker.exitcode == 0 for worker in workers)
    other = store(tmp_path)
    assert other.get(key(0)) == b"first"
    assert all(other.get(key(1000 * n + k)) == b"x" * (1000 * n + k % 5) for n in range(1, 5) for k in range(100))
