"""`torch.distributed.tensor.experimental`: long sequences, and functions on the parts of sharded tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rushlight.distributed.tensor._api import DTensor
from rushlight.distributed.tensor.experimental._attention import context_parallel
from rushlight.distributed.tensor.experimental._func_map import local_map
from rushlight.distributed.tensor.experimental._register_sharding import register_sharding

__all__ = ["context_parallel", "implicit_replication", "local_map", "register_sharding"]


@contextmanager
def implicit_replication() -> Iterator[None]:
    """A block in which plain tensors beside sharded ones count as replicated."""
    before = DTensor.implicit_replication
    DTensor.implicit_replication = True
    try:
        yield
    finally:
        DTensor.implicit_replication = before
