"""`torch.distributed.tensor.experimental`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rushlight.distributed.tensor._api import DTensor

__all__ = ["implicit_replication"]


@contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors beside sharded ones count as replicated."""
    before = DTensor.implicit_replication
    DTensor.implicit_replication = True
    try:
        yield
    finally:
        DTensor.implicit_replication = before
