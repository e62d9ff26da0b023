"""A free port, and a store that is started or reached."""

from __future__ import annotations

from datetime import timedelta

from rushlight.distributed import DistNetworkError, TCPStore
from rushlight.distributed.elastic.utils.api import get_socket_with_port as get_socket_with_port

__all__ = ["create_c10d_store", "get_free_port", "get_socket_with_port"]


def get_free_port() -> int:
    """A port that was free a moment ago."""
    with get_socket_with_port() as held:
        return int(held.getsockname()[1])


def create_c10d_store(
    is_server: bool, server_addr: str, server_port: int = -1, world_size: int = 1, timeout: float = 600, wait_for_workers: bool = True,
    retries: int = 3, use_libuv: bool | None = None,
) -> TCPStore:  # fmt: skip
    """A `TCPStore`, whose server is started where `is_server` says so.

    Port -1 is a free one, looked for up to `retries` times; ValueError where it should be shared.  DistNetworkError for
    a port that is taken.
    """
    if server_port == -1 and world_size > 1:
        raise ValueError(
            f"server_port must be specified when world_size > 1, got server_port={server_port}, world_size={world_size}"
        )
    for attempt in range(retries if server_port == -1 else 1):
        port = get_free_port() if server_port == -1 else server_port
        try:
            return TCPStore(
                server_addr, port, world_size, is_server, timedelta(seconds=timeout), wait_for_workers=wait_for_workers
            )
        except DistNetworkError as error:
            if server_port != -1 or "in use" not in str(error) or attempt == retries - 1:
                raise
    raise RuntimeError(f"retries is at least 1, got {retries}")
