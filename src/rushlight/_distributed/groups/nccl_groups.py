"""Groups of NCCL's: their communicators find one another by a store.

Nothing is loaded and nobody is asked before the first operation of a group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from rushlight._distributed.engines.nccl import NCCLCommunicator
from rushlight._distributed.engines.nccl_library import nccl_library
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.device_group import DeviceGroup
from rushlight._distributed.groups.watch import WATCH

__all__ = ["nccl_group"]

_NAP = 0.002
_ID_BYTES = 128


def nccl_group(name: str, ranks: Sequence[int], place: int, store: Any, seconds: float, backend: Callable[[], Any]) -> Any:  # fmt: skip
    """A group of ranks, of which this process has a place; `name` is another one for each group of a store."""
    size, prefix = len(ranks), f"rushlight/nccl/{name}"

    def pair(other: int) -> NCCLCommunicator:
        low, high = sorted((place, other))
        here = int(place > other)
        return NCCLCommunicator(here, 2, nccl_library, _identity(f"{prefix}/{low}:{high}", here, 2, store, seconds))

    whole = NCCLCommunicator(place, size, nccl_library, _identity(prefix, place, size, store, seconds))
    return DeviceGroup(name, ranks, whole, seconds, backend, pair)


def _identity(key: str, place: int, size: int, store: Any, seconds: float) -> Callable[[], bytes]:
    """A function that gives a communicator's identity: its first process makes it, the store tells the others."""

    def identify() -> bytes:
        if size == 1:
            return nccl_library().unique_id()
        if store is None:
            raise DistBackendError(
                "NCCL's ranks find one another by a store, and under mpiexec there is none: call init_process_group with "
                "init_method, rank and world_size"
            )
        if place == 0:
            made = nccl_library().unique_id()
            store.set(key, made)
            return made
        _await_key(store, key, seconds)
        found: bytes = store.get(key)
        if len(found) != _ID_BYTES:
            raise DistBackendError(f"the store holds {len(found)} bytes as NCCL's identity of {key!r}, not {_ID_BYTES}")
        return found

    return identify


def _await_key(store: Any, key: str, seconds: float) -> None:
    """Wait until a key is in the store, with open eyes."""
    until = time.monotonic() + seconds
    while not store.check([key]):
        if WATCH.monitor is not None:
            WATCH.monitor.check()
        if time.monotonic() > until:
            raise DistBackendError(f"timed out after {seconds:g} s: the first rank of {key!r} has not come")
        time.sleep(_NAP)
