"""Object files kept on disk, private to the user: a second run compiles nothing.

    <cache dir>/<16 hex digits of the fingerprint>/<64 hex digits of the key>.o

A key is the digest (BLAKE2b) of the text (or of whatever else determines the object) and of the fingerprint of the
machine and of LLVM.  A file holds a magic line, its key, the digest of its contents, and the contents; whatever does
not agree is ignored and written anew.  Files appear by rename, so readers in other processes see all of one or nothing.
"""

from __future__ import annotations

import itertools
import os
import stat
import sys
import time
import warnings
from collections.abc import Iterable
from importlib.util import find_spec

from rushlight._base.digest import DIGEST_BYTES, digest, hasher
from rushlight._base.knobs import Knob
from rushlight._base.log import enabled, log
from rushlight._native.target import host_target

__all__ = ["CACHE_DIR", "CACHE_MB", "ObjectCache", "default_cache", "is_private", "key_of", "llvm_version"]

_MAGIC = b"rushlight object 2\n"
_HEAD = len(_MAGIC) + 2 * DIGEST_BYTES
_CAREFULLY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_LARGEST = 256 << 20  # bytes; no object comes near it
_DAY = 86400.0
_FORGOTTEN = 3600.0  # a temporary file of that age was left by a process that died
_NUMBER = itertools.count()
# A full cache has so many files that looking at all of them takes a second.  Processes know nothing of each other, so
# chance decides which of them looks: on average one for each 64th of the limit that is written.
_LOOKS = 64


def _default_dir() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "rushlight")


CACHE_DIR: Knob[str] = Knob(
    "cache_dir",
    env="RUSHLIGHT_CACHE_DIR",
    kind=str,
    default=_default_dir,
    doc="Where compiled kernels are kept between runs; an empty text keeps none.",
)
CACHE_MB: Knob[int] = Knob(
    "cache_mb",
    env="RUSHLIGHT_CACHE_MB",
    kind=int,
    default=512,
    doc="Size in MB above which the oldest compiled kernels are deleted.",
)


def key_of(fingerprint: bytes, parts: Iterable[str | bytes]) -> bytes:
    """The digest of a fingerprint and of parts, told apart by their lengths."""
    h = hasher(fingerprint)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.digest()


class ObjectCache:
    """A directory of object files for one fingerprint.

    `get` never raises and never returns bytes that were not put under that key; `put` never raises: when the directory
    cannot be used, a single warning is given and the cache does nothing from then on.
    """

    def __init__(self, directory: str, fingerprint: str, limit_bytes: int = 512 << 20) -> None:
        self.fingerprint = digest(fingerprint.encode())
        self.root, self.limit_bytes = directory, limit_bytes
        self.directory = os.path.join(directory, self.fingerprint.hex()[:16]) if directory else ""
        self._usable: bool | None = None if directory else False
        self.fresh = bool(directory) and not os.path.isdir(self.directory)  # no process has kept anything yet
        self._written = -1  # bytes known to be in the cache, -1 before the first look (see `_LOOKS`)
        self.hits = self.misses = 0
        self.used: dict[bytes, None] = {}  # keys of objects that this process put or found

    def key(self, *parts: str | bytes) -> bytes:
        """The key of an object that is determined by `parts` (its LLVM text, say, and the optimisation level)."""
        return key_of(self.fingerprint, parts)

    def has(self, key: bytes) -> bool:
        """Whether there is a file for `key`, which may turn out to be none of ours."""
        return self.usable(create=False) and os.path.exists(self.path(key))

    def path(self, key: bytes) -> str:
        return os.path.join(self.directory, key.hex() + ".o")

    def get(self, key: bytes) -> bytes | None:
        """The object stored under `key`, or None."""
        data = self._read(key) if self.usable(create=False) else None
        if data is None:
            self.misses += 1
        else:
            self.hits += 1
            self.used[key] = None
        if enabled("cache"):
            log("cache", f"{'miss' if data is None else 'hit '} {key.hex()[:16]}")
        return data

    def _read(self, key: bytes) -> bytes | None:
        try:
            # a symbolic link, or a file that someone else owns or may write, is not ours; opening a pipe must not wait
            # for its writer
            descriptor = os.open(self.path(key), os.O_RDONLY | _CAREFULLY)
        except OSError:
            return None
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or not is_private(info) or not _HEAD <= info.st_size <= _LARGEST:
                return None
            if os.read(descriptor, _HEAD - DIGEST_BYTES) != _MAGIC + key:
                return None
            data = os.read(descriptor, info.st_size)
            if time.time() - info.st_mtime > _DAY:  # eviction deletes what was not used for longest
                os.utime(descriptor)
        except OSError:
            return None
        finally:
            os.close(descriptor)
        body = data[DIGEST_BYTES:]
        return body if data[:DIGEST_BYTES] == digest(body) else None

    def keep(self, key: bytes, data: bytes) -> bytes:
        """Store an object unless one is there already; returns the one that is there (`data` where nothing can be
        stored).
        """
        before = self.get(key)
        if before is not None:
            return before
        self.put(key, data, replace=False)
        return self.get(key) or data

    def put(self, key: bytes, data: bytes, replace: bool = True) -> None:
        """Store an object; an existing file is replaced, or with `replace=False` kept where it is a whole one."""
        if not self.usable(create=True):
            return
        temporary = ""
        try:
            temporary = os.path.join(self.directory, f"{os.getpid()}-{next(_NUMBER)}-{key.hex()[:16]}.tmp")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + key + digest(data) + data)
            if replace or not self._linked(temporary, key):
                os.replace(temporary, self.path(key))
        except OSError as error:
            # a file that vanished was cleared away by someone: this object is not kept, the next one may be
            if isinstance(error, FileNotFoundError):
                self._usable = None
            elif not isinstance(error, IsADirectoryError):  # a folder in the place of one object
                self._give_up(error)
            if temporary:
                try:
                    os.unlink(temporary)
                except OSError:
                    pass
            return
        self.used[key] = None
        self._account(_HEAD + len(data))

    def _linked(self, temporary: str, key: bytes) -> bool:
        """Give a file its name if that is free or stands for a whole object; False: it must be put there by force."""
        try:
            os.link(temporary, self.path(key))
        except FileExistsError:
            if self._read(key) is None:
                return False
        except OSError:  # a file system without links
            return False
        os.unlink(temporary)
        return True

    def usable(self, create: bool) -> bool:
        """Whether the directory exists (made if `create`), is ours, and is closed to others."""
        if self._usable is not None and (self._usable or not self.directory):
            return self._usable
        try:
            if create:
                os.makedirs(self.root, mode=0o700, exist_ok=True)
                os.makedirs(self.directory, mode=0o700, exist_ok=True)
            for directory in (self.root, self.directory):
                info = os.lstat(directory)
                if not stat.S_ISDIR(info.st_mode) or not is_private(info):
                    raise PermissionError(f"{directory} is not a directory that only this user can write")
            self._usable = True
        except FileNotFoundError as error:
            if create:
                self._give_up(error)
            return False
        except OSError as error:
            self._give_up(error)
        return bool(self._usable)

    def _give_up(self, error: OSError) -> None:
        if self.directory:
            warnings.warn(f"compiled kernels are not kept on disk: {error}", RuntimeWarning, stacklevel=2)
        self._usable, self.directory = False, ""

    def _account(self, nbytes: int) -> None:
        """Keep the total under the limit: past it, delete the files used longest ago, down to three quarters."""
        if self._written < 0:
            if nbytes * _LOOKS < self.limit_bytes * int.from_bytes(os.urandom(4), "little") >> 32:
                return
            self._written = sum(size for _, size, _ in self._files())
        else:
            self._written += nbytes
        if self._written <= self.limit_bytes:
            return
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        for _, size, path in files:
            if total <= self.limit_bytes * 3 // 4:
                break
            try:
                os.unlink(path)
                total -= size
            except FileNotFoundError:
                total -= size  # another process evicts as well
            except OSError:
                pass
        self._written = total

    def _files(self) -> list[tuple[float, int, str]]:
        """(last use, size, path) of every object file and forgotten temporary file below the root."""
        found = []
        for directory, _, names in os.walk(self.root):
            for name in names:
                if name.endswith((".o", ".tmp")):
                    path = os.path.join(directory, name)
                    try:
                        info = os.lstat(path)
                    except OSError:
                        continue
                    if name.endswith(".o") or time.time() - info.st_mtime > _FORGOTTEN:
                        found.append((info.st_mtime, info.st_size, path))
        return found


def is_private(info: os.stat_result) -> bool:
    """Whether this user owns the file and nobody else may write it."""
    return not hasattr(os, "getuid") or (info.st_uid == os.getuid() and not info.st_mode & 0o022)


def llvm_version() -> bytes:
    """The text of llvmlite's version file: reading it is a hundred times cheaper than importing the library."""
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return b""
    try:
        with open(os.path.join(os.path.dirname(spec.origin), "_version.py"), "rb") as file:
            return file.read()
    except OSError:
        return b"unknown"


_DEFAULT: dict[tuple[str, str], ObjectCache] = {}


def default_cache() -> ObjectCache:
    """The cache at `CACHE_DIR` for this machine, this LLVM and this Python."""
    target = host_target().fingerprint
    name = (CACHE_DIR.get(), target)
    found = _DEFAULT.get(name)
    if found is None:
        llvm = digest(llvm_version()).hex()
        fingerprint = f"{target}|{llvm}|{sys.implementation.cache_tag}"
        _DEFAULT[name] = found = ObjectCache(name[0], fingerprint, CACHE_MB.get() << 20)
    return found
