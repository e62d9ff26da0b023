"""How the agents of a job meet: handlers, what they need to know, and which backend makes which.

>>> from rushlight.distributed.elastic.rendezvous import RendezvousParameters, rendezvous_handler_registry
>>> parameters = RendezvousParameters("c10d", "localhost:0", "job", 1, 1, join_timeout=30)
>>> handler = rendezvous_handler_registry.create_handler(parameters)
>>> info = handler.next_rendezvous()
>>> info.rank, info.world_size, handler.get_run_id(), handler.is_closed()
(0, 1, 'job', False)
>>> handler.shutdown()
True
"""

from __future__ import annotations

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from rushlight._distributed.launch.rounds import RendezvousClosedError as RendezvousClosedError
from rushlight._distributed.launch.rounds import RendezvousConnectionError as RendezvousConnectionError
from rushlight._distributed.launch.rounds import RendezvousError as RendezvousError
from rushlight._distributed.launch.rounds import RendezvousGracefulExitError as RendezvousGracefulExitError
from rushlight._distributed.launch.rounds import RendezvousStateError as RendezvousStateError
from rushlight._distributed.launch.rounds import RendezvousTimeoutError as RendezvousTimeoutError
from rushlight.distributed import Store

__all__ = [
    "RendezvousHandler", "RendezvousHandlerRegistry", "RendezvousInfo", "RendezvousParameters", "RendezvousStoreInfo", "rendezvous_handler_registry",
]  # fmt: skip


@dataclass
class RendezvousStoreInfo:
    """Where the workers' store is: rank 0 chooses, and tells the others through the agents' store (`build`)."""

    MASTER_ADDR_KEY: ClassVar[str] = "MASTER_ADDR"
    MASTER_PORT_KEY: ClassVar[str] = "MASTER_PORT"
    master_addr: str
    master_port: int

    @staticmethod
    def build(rank: int, store: Store, local_addr: str | None, server_port: int | None = None) -> RendezvousStoreInfo:
        """Rank 0's address (`local_addr`, else this machine's name) and port (one that is free), for all ranks."""
        if rank == 0:
            store.set(RendezvousStoreInfo.MASTER_ADDR_KEY, local_addr or socket.getfqdn())
            store.set(RendezvousStoreInfo.MASTER_PORT_KEY, str(server_port or _free_port()))
        host = store.get(RendezvousStoreInfo.MASTER_ADDR_KEY).decode()
        return RendezvousStoreInfo(host, int(store.get(RendezvousStoreInfo.MASTER_PORT_KEY)))


def _free_port() -> int:
    with socket.create_server(("", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class RendezvousInfo:
    """A round, as one machine sees it: a store that all have, this machine's rank, and how many machines there are."""

    def __init__(
        self, store: Store, rank: int, world_size: int, bootstrap_store_info: RendezvousStoreInfo | None
    ) -> None:
        self._store, self._rank, self._world_size, self._info = store, rank, world_size, bootstrap_store_info

    @property
    def store(self) -> Store:
        """The store of this round."""
        return self._store

    @property
    def rank(self) -> int:
        """This machine's number."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many machines take part."""
        return self._world_size

    @property
    def bootstrap_store_info(self) -> RendezvousStoreInfo | None:
        """Where the workers' store is, or will be."""
        return self._info


class RendezvousHandler(ABC):
    """How the agents of a job meet: each call of `next_rendezvous` is another round."""

    @abstractmethod
    def get_backend(self) -> str:
        """The name of the backend."""

    @property
    def use_agent_store(self) -> bool:
        """Whether the workers may use the agents' store."""
        return False

    @abstractmethod
    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the other machines, and begin a round.

        RendezvousClosedError after the end of the job, RendezvousTimeoutError where too few machines come,
        RendezvousConnectionError where the store cannot be reached.
        """

    @abstractmethod
    def is_closed(self) -> bool:
        """Whether there will be no further round."""

    @abstractmethod
    def set_closed(self) -> None:
        """Let there be no further round."""

    @abstractmethod
    def num_nodes_waiting(self) -> int:
        """How many machines wait for another round: more than none means that one should begin."""

    @abstractmethod
    def get_run_id(self) -> str:
        """The name of the job."""

    @abstractmethod
    def shutdown(self) -> bool:
        """Close, and free what the handler holds; whether that went well."""


class RendezvousParameters:
    """Parameters of a handler: backend, endpoint ("host:port"), the job's name, how many machines, and settings.

    ValueError without a backend, and for numbers of machines that make no sense.
    """

    def __init__(
        self,
        backend: str,
        endpoint: str,
        run_id: str,
        min_nodes: int,
        max_nodes: int,
        local_addr: str | None = None,
        **kwargs: Any,
    ) -> None:
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        if min_nodes < 1:
            raise ValueError(f"The minimum number of rendezvous nodes ({min_nodes}) must be greater than zero.")
        if max_nodes < min_nodes:
            raise ValueError(
                f"The maximum number of rendezvous nodes ({max_nodes}) must be greater than or equal to the minimum number of rendezvous nodes ({min_nodes})."
            )
        self.backend, self.endpoint, self.run_id, self.local_addr = backend, endpoint, run_id, local_addr
        self.min_nodes, self.max_nodes, self.config = min_nodes, max_nodes, kwargs

    def get(self, key: str, default: Any = None) -> Any:
        """A setting."""
        return self.config.get(key, default)

    def get_as_bool(self, key: str, default: bool | None = None) -> bool | None:
        """A setting as a bool: 1, true, t, yes, y and their opposites; ValueError for another."""
        value = self.get(key, default)
        text = str(value).lower()
        if value is None or isinstance(value, bool):
            return value
        if text in ("1", "true", "t", "yes", "y"):
            return True
        if text in ("0", "false", "f", "no", "n"):
            return False
        raise ValueError(f"The rendezvous configuration option '{key}' does not represent a valid boolean value.")

    def get_as_int(self, key: str, default: int | None = None) -> int | None:
        """A setting as an int; ValueError for another."""
        value = self.get(key, default)
        try:
            return None if value is None else int(value)
        except ValueError:
            raise ValueError(
                f"The rendezvous configuration option '{key}' does not represent a valid integer value."
            ) from None


RendezvousHandlerCreator = Callable[[RendezvousParameters], RendezvousHandler]


class RendezvousHandlerRegistry:
    """Backend -> what makes its handlers."""

    def __init__(self) -> None:
        self._registry: dict[str, RendezvousHandlerCreator] = {}

    def register(self, backend: str, creator: RendezvousHandlerCreator) -> None:
        """Let `creator(parameters)` make the handlers of a backend; ValueError where another does."""
        if not backend:
            raise ValueError("The rendezvous backend name must be a non-empty string.")
        known = self._registry.setdefault(backend, creator)
        if known != creator:
            raise ValueError(
                f"The rendezvous backend '{backend}' cannot be registered with '{creator}' as it is already registered with '{known}'."
            )

    def create_handler(self, params: RendezvousParameters) -> RendezvousHandler:
        """The handler of parameters; ValueError for an unknown backend."""
        creator = self._registry.get(params.backend)
        if creator is None:
            raise ValueError(
                f"The rendezvous backend '{params.backend}' is not registered. Did you forget to call `register`?"
            )
        handler = creator(params)
        if handler.get_backend() != params.backend:
            raise RuntimeError(
                f"The rendezvous backend '{handler.get_backend()}' does not match the requested backend '{params.backend}'."
            )
        return handler


rendezvous_handler_registry = RendezvousHandlerRegistry()
