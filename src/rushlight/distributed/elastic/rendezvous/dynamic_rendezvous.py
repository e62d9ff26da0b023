"""Handlers over a store that one of the agents starts: machines that are numbered as they come, or before."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from rushlight._interface.launching import Meeting
from rushlight.distributed import DistError, PrefixStore
from rushlight.distributed.elastic.rendezvous.api import RendezvousClosedError as RendezvousClosedError
from rushlight.distributed.elastic.rendezvous.api import RendezvousError as RendezvousError
from rushlight.distributed.elastic.rendezvous.api import RendezvousGracefulExitError as RendezvousGracefulExitError
from rushlight.distributed.elastic.rendezvous.api import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)
from rushlight.distributed.elastic.rendezvous.api import RendezvousStateError as RendezvousStateError
from rushlight.distributed.elastic.rendezvous.api import RendezvousTimeoutError as RendezvousTimeoutError

__all__ = ["DynamicRendezvousHandler", "StaticTCPRendezvous", "create_handler"]

_PORTS = {"c10d": 29400, "static": 29500}


class DynamicRendezvousHandler(RendezvousHandler):
    """Machines come, are numbered, and begin a round together; later ones wait for the next.

    The one that is the endpoint keeps the store.  Settings are those of `torchrun --rdzv-conf`: `join_timeout`,
    `last_call_timeout`, `is_host`.
    """

    _BACKEND = "c10d"

    def __init__(self, params: RendezvousParameters) -> None:
        parts = urlsplit(f"//{params.endpoint}")
        host, port = parts.hostname or "localhost", _PORTS[self._BACKEND] if parts.port is None else parts.port
        self._params = params
        self._members: Any = None
        self._meeting = Meeting(
            (host, port), params.run_id, (params.min_nodes, params.max_nodes), self._place(), params.config
        )
        self._closed = False

    def _place(self) -> int | None:
        return None

    def get_backend(self) -> str:
        """The name of the backend."""
        return self._BACKEND

    @property
    def use_agent_store(self) -> bool:
        """Whether the workers may use the agents' store: yes."""
        return True

    def get_run_id(self) -> str:
        """The name of the job."""
        return self._params.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        """Begin a round; machines of the round before see that there is another one."""
        meeting = self._meeting
        meeting.check_open()
        if self._members is not None:
            meeting.advance(self._members.number)
        members = self._members = meeting.join(1)
        round_store = PrefixStore(f"torch.rendezvous.{self._params.run_id}.{members.number}", meeting.store)
        info = RendezvousStoreInfo(meeting.host, meeting.port)
        return RendezvousInfo(round_store, members.node, members.nodes, info)

    def is_closed(self) -> bool:
        """Whether the job has ended."""
        return self._closed or self._meeting.is_over()

    def set_closed(self) -> None:
        """End the job: machines that wait are told."""
        self._closed = True
        self._meeting.close()

    def num_nodes_waiting(self) -> int:
        """How many machines wait for another round, or have begun one."""
        return 0 if self._members is None or self._closed else self._meeting.waiting(self._members)

    def shutdown(self) -> bool:
        """End the job, unless the store has gone."""
        try:
            self.set_closed()
        except DistError:
            return False
        return True


class StaticTCPRendezvous(DynamicRendezvousHandler):
    """Machines whose numbers are known: `rank` among the settings; number 0 keeps the store at the endpoint."""

    _BACKEND = "static"

    def _place(self) -> int | None:
        rank = self._params.get_as_int("rank")
        if rank is None:
            raise ValueError("rank is absent in RendezvousParameters. Try add --node-rank to the cmd request")
        return rank

    def num_nodes_waiting(self) -> int:
        """None: all are known."""
        return 0


def create_handler(params: RendezvousParameters) -> RendezvousHandler:
    """The handler of the backends `c10d` and `static`."""
    return StaticTCPRendezvous(params) if params.backend == "static" else DynamicRendezvousHandler(params)
