"""From a URL to a store, a rank and the number of ranks: `env://`, `tcp://`, `file://`, and schemes of one's own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rushlight._distributed.errors import DistNetworkError
from rushlight._distributed.launch import slurm
from rushlight._distributed.launch.connect import given_by_mpiexec
from rushlight._distributed.stores.file_store import FileStore
from rushlight._distributed.stores.prefix_store import PrefixStore
from rushlight._distributed.stores.store import DEFAULT_TIMEOUT, Store
from rushlight._distributed.stores.tcp_store import TCPStore

__all__ = ["Place", "register_rendezvous_handler", "rendezvous"]

Place = tuple[Store, int, int]  # store, rank, number of ranks
Handler = Callable[..., Iterator[Place]]
_HANDLERS: dict[str, Handler] = {}
# What launchers other than ours call rank and number of ranks.
_RANK_NAMES = ("RANK", "SLURM_PROCID")
_SIZE_NAMES = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")


def register_rendezvous_handler(scheme: str, handler: Handler) -> None:
    """Let `handler(url, **options)` answer URLs with this scheme: it yields (store, rank, world_size).

    RuntimeError for a scheme that is taken.
    """
    if scheme in _HANDLERS:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _HANDLERS[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[Place]:
    """The places of this process, one for each time that ranks meet: (store, rank, world_size).

    `rank` and `world_size` are said here or in the URL, AssertionError for both. RuntimeError for an unknown scheme, ValueError where the URL
    and the environment do not say rank, size or address.
    """
    if not isinstance(url, str):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    if not isinstance(rank, int) or not isinstance(world_size, int):
        raise RuntimeError(f"`rank` and `world_size` must be integers, not {rank!r} and {world_size!r}")
    parts = urlsplit(url)
    if parts.scheme not in _HANDLERS:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    known = parse_qs(parts.query)
    if (rank != -1 or world_size != -1) and ("rank" in known or "world_size" in known):
        raise AssertionError(f"The url: {url} has node-specific arguments(rank, world_size) already.")
    said = [f"{name}={value}" for name, value in (("rank", rank), ("world_size", world_size)) if value != -1]
    query = "&".join([*filter(None, [parts.query]), *said])
    return _HANDLERS[parts.scheme](parts._replace(query=query).geturl(), **kwargs)


def _options(url: str) -> dict[str, str]:
    """Query options of a URL; the last value of a name counts."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(url).query).items()}


def _wanted(url: str, scheme: str, what: str, options: dict[str, str], names: tuple[str, ...] = ()) -> str:
    """A value from the URL, or from the environment; ValueError where neither has it."""
    if what in options:
        return options[what]
    for name in names:
        if os.environ.get(name):
            return os.environ[name]
    if names:
        raise ValueError(
            f"Error initializing torch.distributed using {scheme}:// rendezvous: environment variable {names[0]} expected, but not set"
        )
    raise ValueError(
        f"Error initializing torch.distributed using {scheme}:// rendezvous: {what} parameter missing in {url}"
    )


def _timeout(timeout: timedelta | float | None) -> timedelta:
    return (
        timeout
        if isinstance(timeout, timedelta)
        else DEFAULT_TIMEOUT
        if timeout is None
        else timedelta(seconds=timeout)
    )


def by_environment(url: str, timeout: timedelta = DEFAULT_TIMEOUT, **kwargs: Any) -> Iterator[Place]:
    """RANK and WORLD_SIZE (or Slurm's, or mpiexec's), MASTER_ADDR and MASTER_PORT (or what Slurm's tasks agree on)."""
    options, agreed = _options(url), slurm.meeting_place(os.environ)
    given = given_by_mpiexec()
    if given is not None and "RANK" not in os.environ:
        options = {"rank": str(given[0]), "world_size": str(given[1]), **options}
    rank = int(_wanted(url, "env", "rank", options, _RANK_NAMES))
    size = int(_wanted(url, "env", "world_size", options, _SIZE_NAMES))
    host = _wanted(url, "env", "host", agreed, ("MASTER_ADDR",))
    port = int(_wanted(url, "env", "port", agreed, ("MASTER_PORT",)))
    yield _agent_store(host, port, rank, size, _timeout(timeout)), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


def _agent_store(host: str, port: int, rank: int, size: int, timeout: timedelta) -> Store:
    """The store of the launcher's agent, a part of it for each round of an elastic job; else one that rank 0 starts."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        attempt = os.environ.get("RUSHLIGHT_ROUND") or os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        return PrefixStore(f"/worker/attempt_{attempt}", TCPStore(host, port, size, False, timeout))
    return _own_store(host, port, rank, size, timeout)


def _own_store(host: str, port: int, rank: int, size: int, timeout: timedelta) -> TCPStore:
    """Rank 0 starts the server, unless it was not the first in this process to do so."""
    try:
        return TCPStore(host, port, size, rank == 0, timeout, wait_for_workers=False, multi_tenant=True)
    except DistNetworkError as error:
        if rank == 0 and "already in use" in str(error):
            error.add_note("another program listens there: choose another MASTER_PORT")
        raise


def by_address(url: str, timeout: timedelta = DEFAULT_TIMEOUT, **kwargs: Any) -> Iterator[Place]:
    """`tcp://host:port?rank=0&world_size=2`: rank 0 starts the store there."""
    parts, options = urlsplit(url), _options(url)
    rank = int(_wanted(url, "tcp", "rank", options))
    size = int(_wanted(url, "tcp", "world_size", options))
    if parts.port is None:
        raise ValueError("Error initializing torch.distributed using tcp:// rendezvous: port number missing")
    yield _own_store(parts.hostname or "localhost", parts.port, rank, size, _timeout(timeout)), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using tcp:// method")


def by_file(url: str, **kwargs: Any) -> Iterator[Place]:
    """`file:///path?rank=0&world_size=2`: a store in a file."""
    parts, options = urlsplit(url), _options(url)
    if not parts.path:
        raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
    rank = int(_wanted(url, "file", "rank", options))
    size = int(_wanted(url, "file", "world_size", options))
    yield FileStore(parts.path, size), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using file:// method")


register_rendezvous_handler("env", by_environment)
register_rendezvous_handler("tcp", by_address)
register_rendezvous_handler("file", by_file)
