"""Debug mode: before an operation begins, the ranks compare what each is about to do."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any

from rushlight._distributed.engines.buffers import Buffer
from rushlight._distributed.errors import DistBackendError

__all__ = ["comparer"]

BYTES = 512
# Operations whose ranks may have tensors of different sizes.
_UNEVEN = ("all_gather", "all_to_all", "all_to_all_single", "gather", "scatter", "reduce_scatter")
_SHAPE = re.compile(r"\[[\d, ]*\]")


def comparer(group: Any) -> Callable[[Any], list[Any]]:
    """A function that gives the steps to compare an operation of the group among its ranks."""

    def steps(operation: Any) -> list[Any]:
        own = bytearray(fingerprint(operation))
        everybody = bytearray(BYTES * group.size)
        sent = _memory(own)
        whole = _memory(everybody)
        places = [whole._replace(address=whole.address + k * BYTES, count=BYTES) for k in range(group.size)]
        gathered = group.communicator.all_gather(sent, places, together=True)
        return [*gathered, lambda: compare(group, operation, bytes(own), bytes(everybody))]

    return steps


def _memory(data: bytearray) -> Buffer:
    return Buffer(ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data), "uint8", 1)


def fingerprint(operation: Any) -> bytes:
    """What must be equal on all ranks, as text of a fixed length."""
    described = operation.describe()
    if operation.name.partition("(")[0] in _UNEVEN:
        described = _SHAPE.sub("[...]", described)
    text = f"{operation.name} #{operation.number}: {described}".encode()
    return text[:BYTES].ljust(BYTES, b"\0")


def compare(group: Any, operation: Any, own: bytes, everybody: bytes) -> None:
    """DistBackendError that says what each rank does, unless all do the same."""
    texts = [everybody[k * BYTES : (k + 1) * BYTES] for k in range(group.size)]
    if all(text == own for text in texts):
        return
    by_text: dict[bytes, list[int]] = {}
    for rank, text in zip(group.ranks, texts, strict=True):
        by_text.setdefault(text, []).append(rank)
    lines = [f"  ranks {ranks}: {text.rstrip(bytes(1)).decode(errors='replace')}" for text, ranks in by_text.items()]
    raise DistBackendError(
        f"Detected mismatch between collectives on ranks of group {group.name!r}; on rank {group.ranks[group.rank]}: {operation.where()}\n"
        + "\n".join(lines)
    )
