"""Random numbers of sharded tensors: every process draws those of the first process of the mesh."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import rushlight
from rushlight.distributed import distributed_c10d as dist

__all__ = ["stream_of_the_first"]


@contextmanager
def stream_of_the_first(mesh: Any) -> Iterator[None]:
    """A block in which the default generator is where that of the mesh's first process is.

    Afterwards the first process goes on from there, and the others have the streams they had, which may be their own.
    """
    if mesh.size() == 1:
        yield
        return
    own = rushlight.get_rng_state()
    state = own.clone()
    for axis in range(mesh.ndim):
        group = mesh.get_group(axis)
        dist.broadcast(state, dist.get_process_group_ranks(group)[0], group=group)
    rushlight.set_rng_state(state)
    try:
        yield
    finally:
        if any(mesh.get_coordinate()):
            rushlight.set_rng_state(own)
