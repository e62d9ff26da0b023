"""Debug mode: before an operation begins, the ranks compare what each is about to do."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

from rushlight._distributed.engines.buffers import Buffer
from rushlight._distributed.errors import DistBackendError

__all__ = ["comparer"]

BYTES, LINE = 512, 256  # what is compared, and the user's line behind it
WHOLE = BYTES + LINE
# Operations whose ranks may have tensors of different sizes.
_UNEVEN = ("all_gather", "all_to_all", "all_to_all_single", "gather", "scatter", "reduce_scatter")
_SHAPE = re.compile(r"\[[\d, ]*\]")


def comparer(group: Any) -> Callable[[Any], list[Any]]:
    """A function that gives the steps to compare an operation of the group among its ranks."""

    def steps(operation: Any) -> list[Any]:
        own = bytearray(fingerprint(operation) + _padded(operation.where(), LINE))
        everybody = bytearray(WHOLE * group.size)
        sent = _memory(own)
        whole = _memory(everybody)
        places = [whole._replace(address=whole.address + k * WHOLE, count=WHOLE) for k in range(group.size)]
        gathered = group.communicator.all_gather(sent, places, together=True)
        return [*gathered, lambda: compare(group, operation, bytes(everybody), own)]

    return steps


def _memory(data: bytearray) -> Buffer:
    return Buffer(ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data), "uint8", 1)


def fingerprint(operation: Any) -> bytes:
    """Digest of what must be equal on all ranks, of a fixed length."""
    described = operation.describe()
    if operation.name.partition("(")[0] in _UNEVEN:
        described = _SHAPE.sub("[...]", described)
    return _padded(f"{operation.name} #{operation.number}: {described}", BYTES)


def _padded(text: str, size: int) -> bytes:
    return text.encode()[:size].ljust(size, b"\0")


def compare(group: Any, operation: Any, everybody: bytes, own: bytearray) -> None:
    """DistBackendError that says what each rank does and where, unless all do the same; `own` must live until here."""
    rows = [everybody[k * WHOLE : (k + 1) * WHOLE] for k in range(group.size)]
    if len({row[:BYTES] for row in rows}) == 1:
        return
    lines: dict[str, list[int]] = {}
    for rank, row in zip(group.ranks, rows, strict=True):
        what, where = (part.rstrip(b"\0").decode(errors="replace") for part in (row[:BYTES], row[BYTES:]))
        lines.setdefault(f"{what}, at {where}", []).append(rank)
    raise DistBackendError(
        f"Detected mismatch between collectives on ranks of group {group.name!r}; on rank {group.ranks[group.rank]}: {operation.where()}\n"
        + "\n".join(f"  ranks {ranks}: {text}" for text, ranks in lines.items())
    )
