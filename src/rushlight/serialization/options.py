"""Settings of `save` and `load` that programs change; they are kept in `rushlight.utils.serialization.config`."""

from __future__ import annotations

import mmap
import threading
from enum import Enum
from typing import Any

from rushlight._interface.base import trace_marks
from rushlight.utils.serialization import config

__all__ = [
    "LoadEndianness", "get_crc32_options", "get_default_load_endianness", "get_default_mmap_options", "set_crc32_options",
    "set_default_load_endianness", "set_default_mmap_options", "skip_data",
]  # fmt: skip


class LoadEndianness(Enum):
    """The byte order of files that do not state theirs."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order that `load` supposes where a file states none; None stands for little."""
    return config.load.endianness


@trace_marks.changes_later_calls
def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Choose the byte order that `load` supposes where a file states none.  TypeError for anything else than a
    `LoadEndianness` or None.
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(f"Invalid argument type in function set_default_load_endianness: {type(endianness).__name__}")
    config.load.endianness = endianness


def get_crc32_options() -> bool:
    """Whether `save` writes a checksum for every record (True unless changed)."""
    return config.save.compute_crc32


@trace_marks.changes_later_calls
def set_crc32_options(compute_crc32: bool) -> None:
    """Choose whether `save` writes checksums.  Without them damage goes unnoticed, and other programs may refuse the
    archive.
    """
    config.save.compute_crc32 = compute_crc32


def get_default_mmap_options() -> int:
    """How `load(mmap=True)` maps a file: `mmap.MAP_PRIVATE` unless changed."""
    return config.load.mmap_flags


class set_default_mmap_options:
    """Choose how `load(mmap=True)` maps files, from now on or inside a `with` block.

    `mmap.MAP_PRIVATE`: changes to tensors stay in memory; `mmap.MAP_SHARED`: they reach the file.  ValueError for other
    flags.
    """

    def __init__(self, flags: int) -> None:
        if not hasattr(mmap, "MAP_PRIVATE"):
            raise RuntimeError("this system cannot choose how files are mapped")
        if flags not in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
            raise ValueError(
                f"Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE or mmap.MAP_SHARED, but got {flags}"
            )
        self.prev = config.load.mmap_flags
        config.load.mmap_flags = flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        config.load.mmap_flags = self.prev


class _State(threading.local):
    """Options for the calls of one thread."""

    skip_data = False
    materialize_fake_tensors = False


STATE = _State()


class skip_data:
    """Leave the bytes of storages out, in a `with` block: `save` leaves room for them, `load` makes storages and fills
    none.  With `materialize_fake_tensors` fake tensors are written as tensors on the devices where they would be.

    >>> import io
    >>> import rushlight as torch
    >>> file = io.BytesIO()
    >>> with torch.serialization.skip_data():
    ...     torch.save(torch.ones(2), file)
    >>> _ = file.seek(0)
    >>> torch.load(file)
    tensor([0., 0.])
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors
        self._before = False, False

    def __enter__(self) -> None:
        self._before = STATE.skip_data, STATE.materialize_fake_tensors
        STATE.skip_data, STATE.materialize_fake_tensors = True, self.materialize_fake_tensors

    def __exit__(self, *exc: Any) -> None:
        STATE.skip_data, STATE.materialize_fake_tensors = self._before
