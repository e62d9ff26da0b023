"""Objects that come with the package: what nearly every program needs, compiled for generic machines when the wheel was
built.

A pack is one file, `packs/<name of the level>.pack` beside this one.  It is read only, and as trustworthy as the Python
files beside it:

    magic line, LLVM version (32 bytes), number of objects (8)
    for each object, in the order of their keys: key (32), offset of its contents (8), length (8), digest of its contents (32)
    the digest of all that is above (32), the contents

Keys are made as those of the cache are, from digests of our sources among other things, so that objects of other
sources are not found.  A pack whose table is not whole counts as none, an object that is not whole as missing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from struct import Struct

from rushlight._base.digest import DIGEST_BYTES, digest
from rushlight._base.knobs import Knob
from rushlight._base.log import enabled, log
from rushlight._native.cache import key_of
from rushlight._native.target import Level, host_target, level_of

__all__ = ["FOLDER", "SHIPPED", "Pack", "fingerprint_of", "shipped_pack", "write_pack"]

SHIPPED: Knob[bool] = Knob(
    "shipped",
    env="RUSHLIGHT_SHIPPED",
    kind=bool,
    default=True,
    doc="Whether objects that come with the package are used, where it has any for this machine.",
)

FOLDER = os.path.join(os.path.dirname(__file__), "packs")
_MAGIC = b"rushlight pack 1\n"
_HEAD = Struct(f"<{len(_MAGIC)}s{DIGEST_BYTES}sQ")
_ROW = Struct(f"<{DIGEST_BYTES}sQQ{DIGEST_BYTES}s")
_MOST = 1 << 20  # objects; a table that claims more is damaged


def fingerprint_of(level: Level, llvm: bytes) -> bytes:
    """Dependencies of a pack's objects besides their parts: the generic machine, and the digest of LLVM's version."""
    flags = " ".join(sorted(level.flags))
    return digest(f"pack {level.arch}/{level.name}/{level.vector_bytes}/{level.features}/{flags}".encode() + llvm)


class Pack:
    """The objects of one file.  `get` never raises and returns nothing but what was put under that key."""

    def __init__(self, path: str, level: Level) -> None:
        self.path, self.level = path, level
        self.rows: dict[bytes, tuple[int, int, bytes]] = {}
        self.fingerprint = b""
        try:
            with open(path, "rb") as file:
                self._read_table(file.read(_HEAD.size), file)
        except OSError:
            return

    def _read_table(self, head: bytes, file: object) -> None:
        if len(head) < _HEAD.size:
            return
        magic, llvm, count = _HEAD.unpack(head)
        if magic != _MAGIC or count > _MOST:
            return
        table: bytes = file.read(count * _ROW.size)  # type: ignore[attr-defined]
        if file.read(DIGEST_BYTES) != digest(head + table):  # type: ignore[attr-defined]
            log("cache", f"{self.path} is damaged and not used")
            return
        self.fingerprint = fingerprint_of(self.level, llvm)
        self.rows = {key: (offset, size, check) for key, offset, size, check in _ROW.iter_unpack(table)}

    def key(self, parts: Iterable[str | bytes]) -> bytes:
        """Under which key an object of these parts would be listed."""
        return key_of(self.fingerprint, parts)

    def has(self, parts: Iterable[str | bytes]) -> bool:
        """Whether the pack lists an object of these parts."""
        return bool(self.rows) and self.key(parts) in self.rows

    def get(self, parts: Iterable[str | bytes]) -> bytes | None:
        """The object of these parts, or None."""
        return self.under(self.key(parts)) if self.rows else None

    def under(self, key: bytes) -> bytes | None:
        """The object that is listed under a key, or None."""
        row = self.rows.get(key)
        if row is None:
            return None
        offset, size, check = row
        try:
            with open(self.path, "rb") as file:
                file.seek(offset)
                data = file.read(size)
        except (OSError, ValueError, OverflowError):
            return None
        if digest(data) != check:
            log("cache", f"an object of {self.path} is damaged and not used")
            return None
        if enabled("cache"):
            log("cache", f"shipped, {len(data)} bytes")
        return data


def write_pack(path: str, llvm: bytes, objects: Mapping[bytes, bytes]) -> None:
    """Write a pack: `objects` by their keys, `llvm` the digest of LLVM's version.  Equal contents are stored once."""
    keys = sorted(objects)
    start = _HEAD.size + len(keys) * _ROW.size + DIGEST_BYTES
    places: dict[bytes, int] = {}
    rows, contents, end = [], [], start
    for key in keys:
        data = objects[key]
        check = digest(data)
        if check not in places:
            places[check] = end
            contents.append(data)
            end += len(data)
        rows.append(_ROW.pack(key, places[check], len(data), check))
    table = _HEAD.pack(_MAGIC, llvm, len(keys)) + b"".join(rows)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(table + digest(table) + b"".join(contents))
    os.replace(temporary, path)


_PACKS: dict[tuple[str, str], Pack | None] = {}


def shipped_pack() -> Pack | None:
    """The pack for this machine, None where there is none."""
    if not SHIPPED.get():
        return None
    level = level_of(host_target())
    if level is None:
        return None
    found = _PACKS.get((FOLDER, level.name))
    if found is None:
        found = _PACKS[FOLDER, level.name] = Pack(os.path.join(FOLDER, f"{level.name}.pack"), level)
    return found
