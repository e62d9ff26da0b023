"""`FileStore`: keys and values in a file that processes share.

The file is a list of changes, each a key and a value with their lengths before them (PyTorch's layout): the last change
of a key counts, and a key that begins with "-" forgets the rest of it. Whoever reads or writes holds a lock on the file.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from rushlight._distributed.errors import DistStoreError
from rushlight._distributed.stores.store import Store, as_bytes, seconds_of
from rushlight._distributed.stores.table import Table

__all__ = ["FileStore"]

_LENGTH = struct.Struct("<I")
_USERS, _GONE, _OPENED, _FINISHED = "/", "-", "opened/", "finished/"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 0.02


class FileStore(Store):
    """A store in a file of this machine, or of a file system whose locks machines share.

    The file is made when it is new, and removed when `world_size` stores have ended (a negative one: never) and no other
    one is open. Leave no
    file of an earlier run behind: its values count.

    >>> import rushlight as torch, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     one = torch.distributed.FileStore(folder + "/store", 2)
    ...     other = torch.distributed.FileStore(folder + "/store", 2)
    ...     one.set("key", "value")
    ...     other.get("key")
    b'value'
    """

    __module__ = "torch.distributed"

    def __init__(self, file_name: str, world_size: int = -1) -> None:
        super().__init__()
        self._path = os.fspath(file_name)
        self._table, self._read_to = Table(), 0
        self._lock = threading.Lock()
        with self._locked() as file:
            self._write(file, _OPENED, b"1")
        if world_size > 0:
            weakref.finalize(self, _finish, self._path, world_size)

    @property
    def path(self) -> str:
        """The file."""
        return self._path

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file under its lock, and all of its changes in the table."""
        with self._lock:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._catch_up(file)
                yield file
            finally:
                os.close(file)

    def _catch_up(self, file: int) -> None:
        size = os.fstat(file).st_size
        if size < self._read_to:  # another file by this name
            self._table, self._read_to = Table(), 0
        os.lseek(file, self._read_to, os.SEEK_SET)
        changes = _fields(_all_of(file, size - self._read_to))
        for key, value in zip(changes[::2], changes[1::2]):
            name = key.decode()
            if name.startswith(_GONE):
                self._table.delete(name[1:])
            else:
                self._table.values[name] = value
        self._read_to = size

    def _write(self, file: int, key: str, value: bytes) -> None:
        os.lseek(file, 0, os.SEEK_END)
        name = key.encode()
        change = _LENGTH.pack(len(name)) + name + _LENGTH.pack(len(value)) + value
        while change:
            change = change[os.write(file, change) :]

    def set(self, key: str, value: str | bytes, /) -> None:
        with self._locked() as file:
            self._write(file, _USERS + key, as_bytes(value))

    def get(self, key: str, /) -> bytes:
        self._await([key], seconds_of(self.timeout))
        with self._locked():
            return self._table.values[_USERS + key]

    def add(self, key: str, value: int, /) -> int:
        with self._locked() as file:
            total = self._table.add(_USERS + key, value)
            self._write(file, _USERS + key, b"%d" % total)
            return total

    def check(self, keys: Sequence[str], /) -> bool:
        with self._locked():
            return self._table.has([_USERS + key for key in keys])

    def _await(self, keys: Sequence[str], seconds: float) -> None:
        limit, pause = time.monotonic() + seconds, _FIRST_PAUSE
        while not self.check(keys):
            if time.monotonic() >= limit:
                raise DistStoreError(f"Wait timeout after {1000 * seconds:.0f} ms, keys: {', '.join(keys)}")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        self._await(keys, seconds_of(self.timeout if timeout is None else timeout))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes, /) -> bytes:
        with self._locked() as file:
            before = self._table.values.get(_USERS + key)
            value = self._table.compare_set(_USERS + key, as_bytes(expected_value), as_bytes(desired_value))
            if self._table.values.get(_USERS + key) != before:
                self._write(file, _USERS + key, value)
            return value

    def delete_key(self, key: str, /) -> bool:
        with self._locked() as file:
            there = _USERS + key in self._table.values
            if there:
                self._write(file, _GONE + _USERS + key, b"")
            return there

    def append(self, key: str, value: str | bytes, /) -> None:
        with self._locked() as file:
            self._write(file, _USERS + key, self._table.values.get(_USERS + key, b"") + as_bytes(value))

    def num_keys(self) -> int:
        return len(self.list_keys())

    def list_keys(self) -> list[str]:
        with self._locked():
            return [key.removeprefix(_USERS) for key in self._table.values if key.startswith(_USERS)]

    def has_extended_api(self) -> bool:
        return True


def _all_of(file: int, count: int) -> bytes:
    """So many bytes of a file, from where it stands."""
    pieces = []
    while count > 0 and (piece := os.read(file, count)):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _fields(data: bytes) -> list[bytes]:
    """The fields of a list of changes."""
    found, at = [], 0
    while at + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        found.append(data[at : at + length])
        at += length
    return found


def _finish(path: str, world_size: int) -> None:
    """One store has ended; the last one removes the file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        fields = _fields(_all_of(file, os.fstat(file).st_size))
        ended = 1 + sum(key == _FINISHED.encode() for key in fields[::2])
        opened = sum(key == _OPENED.encode() for key in fields[::2])
        if ended >= max(world_size, opened) and os.path.exists(path):
            os.unlink(path)
        else:
            os.lseek(file, 0, os.SEEK_END)
            os.write(file, _LENGTH.pack(len(_FINISHED)) + _FINISHED.encode() + _LENGTH.pack(1) + b"1")
    finally:
        os.close(file)
