"""Groups of NCCL's: their communicators find one another by a store.

Nothing is loaded and nobody is asked before the first operation of a group.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight._distributed.engines.buffers import Buffer
from rushlight._distributed.engines.nccl import NCCLCommunicator
from rushlight._distributed.engines.nccl_library import nccl_library
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.device_group import DeviceGroup
from rushlight._distributed.groups.operation import Operation
from rushlight._distributed.groups.watch import WATCH

__all__ = ["nccl_group"]

_NAP = 0.002
_ID_BYTES = 128


class _Meeting(NamedTuple):
    """How processes find one another: a store, or else a group of them between CPUs; within so many seconds."""

    store: Any
    beside: Any
    seconds: float

    def identity(self, key: str, place: int, size: int, whole: bool) -> bytes:
        """A communicator's identity: its first process makes it and tells the others."""
        if size == 1:
            return nccl_library().unique_id()
        if self.store is None and not (whole and self.beside is not None):
            raise DistBackendError(
                "NCCL's ranks find one another by a store, and under mpiexec there is none: call init_process_group with "
                "init_method, rank and world_size"
            )
        made = nccl_library().unique_id() if place == 0 else b""
        if self.store is None:
            return _broadcast(self.beside, made)
        if place == 0:
            self.store.set(key, made)
            return made
        _await_key(self.store, key, self.seconds)
        found: bytes = self.store.get(key)
        if len(found) != _ID_BYTES:
            raise DistBackendError(f"the store holds {len(found)} bytes as NCCL's identity of {key!r}, not {_ID_BYTES}")
        return found


def nccl_group(
    name: str, ranks: Sequence[int], place: int, store: Any, seconds: float, backend: Callable[[], Any], beside: Any = None
) -> Any:  # fmt: skip
    """A group of ranks, of which this process has a place; `name` is another one for each group of a store.  Without a
    store the group `beside` it, of the same ranks between CPUs, says who they are.
    """
    size, prefix, meeting = len(ranks), f"rushlight/nccl/{name}", _Meeting(store, beside, seconds)

    def pair(other: int) -> NCCLCommunicator:
        low, high = sorted((place, other))
        here = int(place > other)
        return NCCLCommunicator(
            here, 2, nccl_library, lambda: meeting.identity(f"{prefix}/{low}:{high}", here, 2, False)
        )

    whole = NCCLCommunicator(place, size, nccl_library, lambda: meeting.identity(prefix, place, size, True))
    return DeviceGroup(name, ranks, whole, seconds, backend, pair)


def _broadcast(group: Any, identity: bytes) -> bytes:
    """The identity that the first process has, by the engine between CPUs."""
    held = ctypes.create_string_buffer(identity, _ID_BYTES)
    memory = Buffer(ctypes.addressof(held), _ID_BYTES, "uint8", 1)
    group.run(Operation(group, "broadcast(NCCL's identity)", group.communicator.broadcast(memory, 0), (), _ID_BYTES))
    return held.raw


def _await_key(store: Any, key: str, seconds: float) -> None:
    """Wait until a key is in the store, with open eyes."""
    until = time.monotonic() + seconds
    while not store.check([key]):
        if WATCH.monitor is not None:
            WATCH.monitor.check()
        if time.monotonic() > until:
            raise DistBackendError(f"timed out after {seconds:g} s: the first rank of {key!r} has not come")
        time.sleep(_NAP)
