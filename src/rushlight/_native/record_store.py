"""Small records kept on disk beside the compiled kernels: derivations that a second process reads instead of deriving
again.

    <cache dir>/<fingerprint>/records-<edition>-<random>.log

A file (a *segment*) is written once, under a temporary name, and renamed; it is never changed.  It holds a magic line,
the edition (a digest of all that makes records wrong when it changes: sources, versions), a table sorted by keys, and
the records behind it.  An entry of the table is the record's key, when it was made, where it begins and how many bytes
it has; a record begins with the digest of its key and contents.  Nothing is executed, and nothing is believed that the
digest does not confirm.

A process writes what it learnt as a segment of its own when it ends, or when that has become much.  Where segments are
many, whoever writes joins them: two who do it at once leave one segment too many, and nobody loses a record.  So there
are no locks.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from struct import Struct

from rushlight._base.digest import DIGEST_BYTES, digest
from rushlight._base.log import enabled, log
from rushlight._native.cache import ObjectCache, is_private

__all__ = ["RecordStore"]

_MAGIC = b"rushlight records 1\n"
_HEAD = Struct(f"<{len(_MAGIC)}s{DIGEST_BYTES}sQ")  # magic line, edition, number of records
_ENTRY = Struct(f"<{DIGEST_BYTES}sIIQ")  # key, when it was made (days), bytes, offset
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_LARGEST_RECORD = 16 << 20
_LARGEST_SEGMENT = 1 << 30
_MOST_SEGMENTS = 8  # that a reader looks at before a writer joins them
_DAY = 86400
_FORGOTTEN = 3600.0  # a temporary file of that age was left by a process that died


class _Segment:
    """One file of records, open for reading; records are read one by one and checked as they are."""

    __slots__ = ("_count", "_descriptor", "_size", "_table", "path")

    def __init__(self, path: str, edition: bytes) -> None:
        """OSError or ValueError where this is no segment of that edition which only this user can write."""
        self.path, self._descriptor = path, -1
        self._descriptor = os.open(path, os.O_RDONLY | _CAREFULLY)
        info = os.fstat(self._descriptor)
        self._size = info.st_size
        if not stat.S_ISREG(info.st_mode) or not is_private(info) or not _HEAD.size <= self._size <= _LARGEST_SEGMENT:
            raise ValueError("not a file of our own")
        magic, found, self._count = _HEAD.unpack(os.pread(self._descriptor, _HEAD.size, 0))
        if magic != _MAGIC or found != edition:
            raise ValueError("not a segment of this edition")
        if self._count > (self._size - _HEAD.size) // _ENTRY.size:
            raise ValueError("more records than bytes")
        self._table = os.pread(self._descriptor, self._count * _ENTRY.size, _HEAD.size)
        if len(self._table) != self._count * _ENTRY.size:
            raise ValueError("cut off")
        if time.time() - info.st_mtime > _DAY:  # those that were not used for longest are deleted first
            os.utime(self._descriptor)

    def __del__(self) -> None:
        self.close()

    def close(self, close: Callable[[int], None] = os.close) -> None:  # at the end of a process modules are empty
        """Close the file; nothing is found in it any more."""
        if self._descriptor >= 0:
            try:
                close(self._descriptor)
            except OSError:  # somebody closed all files of the process
                pass
        self._descriptor, self._count = -1, 0

    def get(self, key: bytes) -> bytes | None:
        """The contents of the record with this key, if there is a whole one."""
        table, width, low, high = self._table, _ENTRY.size, 0, self._count
        while low < high:
            middle = (low + high) // 2
            if table[middle * width : middle * width + DIGEST_BYTES] < key:
                low = middle + 1
            else:
                high = middle
        if low == self._count or table[low * width : low * width + DIGEST_BYTES] != key:
            return None
        return self._read(*_ENTRY.unpack_from(table, low * width))

    def _read(self, key: bytes, born: int, size: int, offset: int) -> bytes | None:
        if not DIGEST_BYTES <= size <= _LARGEST_RECORD or offset > self._size - size:
            return None
        try:
            data = os.pread(self._descriptor, size, offset)
        except OSError:
            return None
        body = data[DIGEST_BYTES:]
        return body if len(data) == size and data[:DIGEST_BYTES] == digest(key + body) else None

    def records(self) -> Iterator[tuple[bytes, int, bytes]]:
        """(key, day, contents) of every whole record."""
        for key, born, size, offset in _ENTRY.iter_unpack(self._table):
            body = self._read(key, born, size, offset)
            if body is not None:
                yield key, born, body


class RecordStore:
    """The records of one edition in the directory of an `ObjectCache`.

    `get` never raises and never returns bytes that were not put under that key.  `put` keeps a record for this process,
    `flush` writes those that were put; it gives up in silence where the directory cannot be used, of which the cache of
    kernels warns.
    """

    def __init__(self, cache: ObjectCache, edition: bytes, limit_bytes: int) -> None:
        self._cache, self._limit = cache, limit_bytes
        self.edition = digest(edition)
        self._prefix = f"records-{self.edition.hex()[:16]}-"
        self._segments: list[_Segment] | None = None
        self._fresh: dict[bytes, bytes] = {}
        self.hits = self.misses = 0
        self.used: dict[bytes, None] = {}  # keys of records that this process put or found

    def get(self, key: bytes) -> bytes | None:
        """The record with this key (of `DIGEST_BYTES`), or None."""
        body = self._fresh.get(key)
        if body is None:
            if self._segments is None:
                self._segments = self._opened()
            for segment in self._segments:
                body = segment.get(key)
                if body is not None:
                    break
        if body is None:
            self.misses += 1
        else:
            self.hits += 1
            self.used[key] = None
        if enabled("cache"):
            log("cache", f"{'miss' if body is None else 'hit '} record {key.hex()[:16]}")
        return body

    @property
    def empty(self) -> bool:
        """Whether nothing can be found here."""
        if self._segments is None:
            self._segments = self._opened()
        return not self._segments and not self._fresh

    def put(self, key: bytes, body: bytes) -> None:
        """Keep a record; others see it after the next `flush`."""
        if DIGEST_BYTES + len(body) <= _LARGEST_RECORD:
            self._fresh[key] = body
            self.used[key] = None

    def flush(self) -> None:
        """Write the records that were put as a segment, and join segments where there are many."""
        fresh, self._fresh = self._fresh, {}
        if not fresh or not self._cache.usable(create=True):
            return
        today = int(time.time()) // _DAY
        records = {key: (today, body) for key, body in fresh.items()}
        kept, unfinished = self._listed()  # once: the directory may hold many thousands of kernels
        old = [path for path in kept if os.path.basename(path).startswith(self._prefix)]
        if len(old) < _MOST_SEGMENTS:
            old = []
        for segment in self._opened(old):
            for key, born, body in segment.records():
                records.setdefault(key, (born, body))
            segment.close()
        self._drop_oldest(records)
        if self._write(records):
            for path in old:
                _delete(path)
            kept = [path for path in kept if path not in set(old)]
        self._clean(kept, unfinished)
        self._segments = None

    def clear(self) -> None:
        """Forget what was read and put in this process; files stay."""
        self._fresh, self._segments = {}, None

    def _listed(self) -> tuple[list[str], list[str]]:
        """The segments of every edition in the directory, the newest first; and files that are, or were, being written."""
        found, unfinished = [], []
        try:
            with os.scandir(self._cache.directory) as entries:
                for entry in entries:
                    if not entry.name.startswith("records-"):
                        continue
                    if entry.name.endswith(".log"):
                        found.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
                    elif entry.name.endswith(".tmp"):
                        unfinished.append(entry.path)
        except OSError:
            return [], []
        return [path for _, path in sorted(found, reverse=True)], unfinished

    def _opened(self, paths: Sequence[str] | None = None) -> list[_Segment]:
        """The segments of this edition that can be read, the newest first."""
        if paths is None:
            paths = self._listed()[0] if self._cache.usable(create=False) else []
        found = []
        for path in paths:
            if os.path.basename(path).startswith(self._prefix):
                try:
                    found.append(_Segment(path, self.edition))
                except (OSError, ValueError) as error:
                    log("cache", f"{os.path.basename(path)} is left aside: {error}")
        return found

    def _drop_oldest(self, records: dict[bytes, tuple[int, bytes]]) -> None:
        """Keep the size under half of the limit: the youngest records stay."""
        total = sum(_ENTRY.size + DIGEST_BYTES + len(body) for _, body in records.values())
        if total <= self._limit // 2:
            return
        for key in sorted(records, key=lambda k: records[k][0]):
            if total <= self._limit // 2:
                break
            total -= _ENTRY.size + DIGEST_BYTES + len(records.pop(key)[1])

    def _write(self, records: dict[bytes, tuple[int, bytes]]) -> bool:
        """Write a segment; whether it is there."""
        keys = sorted(records)
        offset, table, bodies = _HEAD.size + _ENTRY.size * len(keys), [], []
        for key in keys:
            born, body = records[key]
            table.append(_ENTRY.pack(key, born, DIGEST_BYTES + len(body), offset))
            bodies += [digest(key + body), body]
            offset += DIGEST_BYTES + len(body)
        name = os.path.join(self._cache.directory, f"{self._prefix}{os.getpid()}-{os.urandom(6).hex()}")
        try:
            descriptor = os.open(
                name + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600
            )
            with os.fdopen(descriptor, "wb") as file:
                file.write(_HEAD.pack(_MAGIC, self.edition, len(keys)) + b"".join([*table, *bodies]))
            os.replace(name + ".tmp", name + ".log")
        except OSError as error:
            log("cache", f"records are not kept: {error}")
            _delete(name + ".tmp")
            return False
        return True

    def _clean(self, kept: Sequence[str], unfinished: Sequence[str]) -> None:
        """Delete what was used longest ago where all editions together are over the limit, and what processes that died
        left.
        """
        total = 0
        for path in kept:
            try:
                total += os.lstat(path).st_size
            except OSError:
                continue
            if total > self._limit:
                _delete(path)
        for path in unfinished:
            try:
                if time.time() - os.lstat(path).st_mtime > _FORGOTTEN:
                    _delete(path)
            except OSError:
                continue


def _delete(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
