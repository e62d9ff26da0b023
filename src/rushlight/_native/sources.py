"""Digests of our own source files: code that another version of the generator made must not be found again.

Reading and hashing a hundred files at every start would cost more than many a program, so the digest of the contents is
itself kept in the cache, under what the file system says about the files.  The time of the last change of a file's
entry (ctime) cannot be set by an installer or by `touch`: any new or edited file leads to a new look at the contents.
"""

from __future__ import annotations

import os
from functools import cache

from rushlight._base.digest import DIGEST_BYTES, hasher
from rushlight._native.cache import default_cache

__all__ = ["files_below", "generator_files", "rooms", "sources_digest", "sources_state"]

_ROOM = os.path.dirname(os.path.dirname(__file__))  # the package
_KNOWN: dict[tuple[str, ...], bytes] = {}


def rooms() -> list[str]:
    """The private folders of the package."""
    return sorted(name for name in os.listdir(_ROOM) if name[:1] == "_" and name[:2] != "__" and "." not in name)


def files_below(folder: str) -> tuple[str, ...]:
    """The Python files of a folder of the package and of those inside it, by their paths in the package."""
    found: list[str] = []
    for name in sorted(os.listdir(f"{_ROOM}/{folder}")):
        path = f"{folder}/{name}"
        if name.endswith(".py"):
            found.append(path)
        elif "." not in name and not name.startswith("__"):
            found += files_below(path)
    return tuple(found)


@cache
def generator_files() -> tuple[str, ...]:
    """The files that decide which LLVM text stands for a loop nest or an inner kernel."""
    expressions = "_schedule/expressions.py", "_schedule/indexing.py"
    return (*files_below("_codegen"), *expressions, *files_below("_backends/cpu/microkernels"))


def sources_state(names: tuple[str, ...]) -> str:
    """File-system state of these files: equal texts stand for equal contents on this machine."""
    return "\n".join([f"{name} {_state(name)}" for name in names])


def sources_digest(names: tuple[str, ...], state: str | None = None) -> bytes:
    """A digest of the contents of these files of the package; a file that is not there (no sources installed) counts by
    name.  `state` is their `sources_state`, where it is known.
    """
    found = _KNOWN.get(names)
    if found is None:
        objects = default_cache()
        key = objects.key("sources", sources_state(names) if state is None else state)
        kept = objects.get(key)
        if kept is None or len(kept) != DIGEST_BYTES:
            kept = _digest_contents(names)
            objects.put(key, kept)
        found = _KNOWN[names] = kept
    return found


def _state(name: str) -> str:
    try:
        info = os.stat(f"{_ROOM}/{name}")  # `os.path.join` would take as long as asking
    except OSError:
        return "absent"
    return f"{info.st_dev} {info.st_ino} {info.st_size} {info.st_mtime_ns} {info.st_ctime_ns}"


def _digest_contents(names: tuple[str, ...]) -> bytes:
    h = hasher()
    for name in names:
        h.update(name.encode())
        try:
            with open(os.path.join(_ROOM, name), "rb") as file:
                data = file.read()
        except OSError:
            continue
        h.update(len(data).to_bytes(8, "little"))
        h.update(data)
    return h.digest()
