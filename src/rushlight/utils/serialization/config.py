"""How `save` and `load` behave where a call does not say, for the whole program.

>>> import rushlight as torch
>>> torch.utils.serialization.config.load.mmap
False
"""

from __future__ import annotations

from typing import Any

__all__ = ["load", "save"]

_PRIVATE_MAPPING = 2  # mmap.MAP_PRIVATE, which has this value wherever it exists


class load:
    """Of `load`: whether files are mapped and how, and the byte order of files that do not state theirs."""

    mmap: bool = False
    endianness: Any = None
    mmap_flags: int = _PRIVATE_MAPPING
    calculate_storage_offsets: bool = False


class save:
    """Of `save`: whether records get a checksum, and the boundary (a power of two) on which their data begin."""

    compute_crc32: bool = True
    use_pinned_memory_for_d2h: bool = False
    storage_alignment: int = 64
