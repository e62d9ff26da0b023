"""The error of a GPU without memory: what was asked, who holds what, and what would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rushlight._base.errors import OutOfMemoryError, describe_code

if TYPE_CHECKING:
    from rushlight._backends.cuda.memory.allocator import Allocator
    from rushlight._backends.cuda.memory.chunks import Chunk

__all__ = ["readable", "shortage"]

_NAMED = 5  # lines of the program


def readable(nbytes: float) -> str:
    """A size in words: `readable(1536)` is '1.50 KiB'."""
    for unit in ("bytes", "KiB", "MiB"):
        if abs(nbytes) < 1024:
            return f"{nbytes:.2f} {unit}" if unit != "bytes" else f"{int(nbytes)} bytes"
        nbytes /= 1024
    return f"{nbytes:.2f} GiB"


def shortage(allocator: Allocator, nbytes: int, lent: Sequence[Chunk]) -> OutOfMemoryError:
    """The error for a request that could not be served."""
    allocator.devices.enter(allocator.index)
    free, total = allocator.driver.cuMemGetInfo()
    held, reserved = (allocator.statistics.current(n) for n in ("allocated_bytes", "reserved_bytes"))
    others = total - free - reserved
    limit = "" if allocator.limit is None else f" (limited to {readable(allocator.limit)} by a memory fraction)"
    asked = "more than 1EB memory" if nbytes >= 1 << 60 else readable(nbytes)
    text = (
        f"CUDA out of memory. Tried to allocate {asked}. GPU {allocator.index} has a total capacity of {readable(total)}{limit} of which "
        f"{readable(free)} is free. Of the memory of this process {readable(held)} is held by {len(lent)} tensors, and {readable(reserved - held)} is "
        "reserved but not in use."
    )
    if others > 0:
        text += f" Others hold {readable(others)}."
    holders = _holders(lent)
    if holders:
        text += " Most is held by:\n" + "\n".join(f"  {readable(size)} made at {place}" for place, size in holders)
    if reserved - held > nbytes and not allocator.settings.expandable_segments:
        text += "\nIf reserved but unused memory is large, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True avoids pieces that are too small."
    return OutOfMemoryError(text)


def _holders(lent: Sequence[Chunk]) -> list[tuple[str, int]]:
    sizes: Counter[str] = Counter()
    for chunk in lent:
        if chunk.user is not None:
            sizes[describe_code(chunk.user)] += chunk.requested
    return sizes.most_common(_NAMED)
