"""Writing a file so that at every moment the old one or the new one is there, whole."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["mkdtemp", "replacing", "replacing_path"]


@contextmanager
def mkdtemp() -> Iterator[str]:
    """A new folder for the time of the block, removed with all that is in it at the end."""
    with tempfile.TemporaryDirectory() as path:
        yield path


@contextmanager
def replacing(path: Any) -> Iterator[Any]:
    """A new file that takes the place of `path` when the block ends without an error.

    It is written beside its final place, under another name, and moved when it is complete and on the disk.  What is no
    ordinary file (a pipe, a device) cannot be replaced and is written to.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
        if os.path.isdir(target):
            raise IsADirectoryError(f"cannot save to {path!r}: it is a directory")
        with open(target, "wb") as out:
            yield out
        return
    with replacing_path(path) as temporary, open(temporary, "wb") as out:
        yield out


@contextmanager
def replacing_path(path: Any) -> Iterator[str]:
    """The name of a new file that takes the place of `path` when the block ends without an error; see `replacing`."""
    target = os.path.realpath(path)
    directory = os.path.dirname(target)
    if not os.path.isdir(directory):
        raise RuntimeError(f"Parent directory {os.path.dirname(os.fspath(path)) or '.'} does not exist.")
    handle, temporary = tempfile.mkstemp(prefix=f".{os.path.basename(target)[:200]}.", suffix=".tmp", dir=directory)
    try:
        try:
            yield temporary
            _sync(temporary, handle)
        finally:
            os.close(handle)
        os.chmod(temporary, _mode_for(target))
        os.replace(temporary, target)
    except BaseException:
        # Also for Ctrl-C: the old file stays, the unfinished one goes.
        os.unlink(temporary)
        raise
    _sync_directory(directory)


def _sync(path: str, handle: int) -> None:
    """Put a file's bytes on the disk; whoever wrote it may have made it anew under its name."""
    if os.path.samestat(os.stat(path), os.fstat(handle)):
        os.fsync(handle)
        return
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def _mode_for(target: str) -> int:
    """The permissions of the file that is replaced, or those that a new file gets."""
    try:
        return stat.S_IMODE(os.stat(target).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_directory(directory: str) -> None:
    """Put the new name on the disk as well, where the system can do that."""
    if os.name != "posix":
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
