"""Joint operations of processes over a store: hand each other values, and wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rushlight.distributed import DistStoreError

__all__ = ["barrier", "get_all", "store_timeout", "synchronize"]

_COUNT, _LAST = "/num_members", "/last_member"
_NAMED = 50  # members that an error names


@contextmanager
def store_timeout(store: Any, timeout: float) -> Iterator[None]:
    """A block in which a store waits for so many seconds at most."""
    before = store.timeout
    store.set_timeout(timedelta(seconds=timeout))
    try:
        yield
    finally:
        store.set_timeout(before)


def _arrive(store: Any, world_size: int, key_prefix: str) -> str:
    """Say that this member is here; returns the key that the last one sets."""
    if store.add(key_prefix + _COUNT, 1) == world_size:
        store.set(key_prefix + _LAST, "<val_ignored>")
    return key_prefix + _LAST


def get_all(store: Any, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """Values that the members have set under `prefix` and their ranks, by rank; rank 0 waits until all have read it."""
    found: list[bytes] = store.multi_get([f"{prefix}{other}" for other in range(world_size)])
    last = _arrive(store, world_size, f"{prefix}/finished")
    if rank == 0:  # it may hold the server, which must not go before
        store.wait([last])
    return found


def synchronize(
    store: Any, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300
) -> list[bytes]:
    """Give every member this one's `data`, and return those of all by rank; DistStoreError after the timeout."""
    with store_timeout(store, timeout):
        store.set(f"{key_prefix}{rank}", data)
        return get_all(store, rank, key_prefix, world_size)


def barrier(
    store: Any, world_size: int, key_prefix: str, barrier_timeout: float = 300, rank: int | None = None,
    rank_tracing_decoder: Callable[[int], str] | None = None, trace_timeout: float = 10,
) -> None:  # fmt: skip
    """Wait until all members are here; DistStoreError after `barrier_timeout` seconds.

    A member that gives its `rank` is told who has not come.  It asks the store itself, so `trace_timeout` is not used.
    """
    if rank is not None:
        store.set(f"{key_prefix}{rank}/here", "1")
    with store_timeout(store, barrier_timeout):
        last = _arrive(store, world_size, key_prefix)
        try:
            store.wait([last])
            return
        except DistStoreError as error:
            if rank is None:
                raise
            late = [k for k in range(world_size) if not store.check([f"{key_prefix}{k}/here"])]
            names = ", ".join(map(rank_tracing_decoder or str, late[:_NAMED]))
            raise DistStoreError(
                f"Timed out waiting on barrier on rank {rank}, for key prefix: {key_prefix} (world_size={world_size}, missing_ranks=[{names}],"
                f" timeout={barrier_timeout})"
            ) from error
