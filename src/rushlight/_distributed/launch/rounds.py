"""How the agents of several machines meet: who takes part in a round, with which ranks, and when a new round begins.

All of it is in a store that one of the agents starts, under the name of the job. A *round* is one start of all workers.
Its number only grows: whoever wants another round (a worker failed, a machine has come or gone) raises it, and every
agent that sees the new number stops its workers and joins again.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from rushlight._distributed.errors import DistNetworkError, DistStoreError
from rushlight._distributed.launch.store_process import LOOPBACK
from rushlight._distributed.stores.prefix_store import PrefixStore
from rushlight._distributed.stores.tcp_store import Client, TCPStore

__all__ = [
    "Meeting",
    "Members",
    "RendezvousClosedError",
    "RendezvousConnectionError",
    "RendezvousError",
    "RendezvousTimeoutError",
]

_PUBLIC = "torch.distributed.elastic.rendezvous.api"
# seconds: for the least number of machines, for more, until all have ended
_JOIN, _LAST_CALL, _EXIT = 600.0, 30.0, 300.0
_PAUSE = 0.05
_ANSWERS_WITHIN = 5.0  # seconds for a store to answer before a round, and between two looks for one that was lost
_LONGEST_STATE = 4096


class RendezvousError(Exception):
    """Agents cannot meet."""

    __module__ = _PUBLIC


class RendezvousClosedError(RendezvousError):
    """The job has ended, or has failed for good."""

    __module__ = _PUBLIC


class RendezvousTimeoutError(RendezvousError):
    """Too few agents have come in time."""

    __module__ = _PUBLIC


class RendezvousConnectionError(RendezvousError):
    """The store of the agents cannot be reached."""

    __module__ = _PUBLIC


class RendezvousStateError(RendezvousError):
    """The rendezvous state in the store is inconsistent."""

    __module__ = _PUBLIC


class RendezvousGracefulExitError(RendezvousError):
    """This machine is not needed, and its agent ends well."""

    __module__ = _PUBLIC


@dataclass(frozen=True)
class Members:
    """One round, as an agent sees it: its place among the machines, and the ranks of its workers."""

    number: int
    node: int
    workers: tuple[int, ...]  # of each machine

    @property
    def nodes(self) -> int:
        """How many machines take part."""
        return len(self.workers)

    @property
    def world_size(self) -> int:
        """How many workers there are."""
        return sum(self.workers)

    @property
    def first_rank(self) -> int:
        """The global rank of this machine's first worker."""
        return sum(self.workers[: self.node])


class Meeting:
    """The agents of one job. `place` is this machine's number, where the launcher was told it."""

    def __init__(
        self,
        endpoint: tuple[str, int],
        run_id: str,
        nodes: tuple[int, int],
        place: int | None,
        settings: dict[str, Any],
    ) -> None:
        self.least, self.most = nodes
        self.place = place
        self.joins_within = float(settings.get("join_timeout", settings.get("timeout", _JOIN)))
        self.last_call = float(settings.get("last_call_timeout", _LAST_CALL))
        self.store = _store(endpoint, place, settings, self.joins_within)
        self.host, self.port = self.store.host, self.store.port
        self._state = PrefixStore(f"torchelastic/{run_id}", self.store)
        self.alone = self.most == 1
        self._number = 0  # of a machine that is alone

    def find_store(self) -> None:
        """Wait until the store can be reached again; RendezvousConnectionError after the time to join."""
        limit = time.monotonic() + self.joins_within
        while True:
            try:
                return Client(self.host, self.port, _ANSWERS_WITHIN).close()
            except DistNetworkError as error:
                if time.monotonic() > limit:
                    raise RendezvousConnectionError(
                        f"the agents' store at {self.host}:{self.port} was lost, and cannot be reached: {error}"
                    ) from None
                time.sleep(_PAUSE)

    # ***** rounds *****

    def number(self) -> int:
        """The round that should run."""
        return self._number if self.alone else self._state.add("round", 0)

    def advance(self, number: int) -> None:
        """Ask for a round after this one, unless somebody has."""
        if self.alone:
            self._number += 1
        elif self._state.add(f"{number}/over", 1) == 1:
            self._state.add("round", 1)

    def check_store(self) -> None:
        """DistNetworkError for a store that does not answer: workers that lost it may have ended before this agent knew."""
        Client(self.host, self.port, _ANSWERS_WITHIN).close()

    def count_restart(self) -> int:
        """One more restart because of a failure; returns how many there were."""
        self.check_store()
        return self._state.add("restarts", 1)

    def begin_with(self, restarts: int) -> None:
        """In a new store: so many restarts were before."""
        self._state.add("restarts", restarts)

    def restarts(self) -> int:
        """How many restarts because of failures there were."""
        return self._state.add("restarts", 0)

    def fail(self, why: str) -> None:
        """The job has failed for good."""
        self._state.set("failed", why.encode()[:_LONGEST_STATE])

    def failed(self) -> str:
        """Why the job has failed, or nothing."""
        return self._state.get("failed").decode("utf-8", "replace") if self._state.check(["failed"]) else ""

    def join(self, workers: int) -> Members:
        """Take part in the next round; RendezvousTimeoutError if too few machines come."""
        self.check_store()
        while True:
            number = self.number()
            members = self._join(number, workers)
            if members is not None:
                return members

    def _join(self, number: int, workers: int) -> Members | None:
        """Take part in this round; None when it is over before this machine is in."""
        if self.place is not None:
            node = self.place
        else:
            node = self._state.add(f"{number}/joined", 1) - 1
        self._state.set(f"{number}/node/{node}", json.dumps(workers))
        count = self._wait_for_all(number, node)
        if count is None or node >= count:
            self._wait_for_next(number)
            return None
        found = self._state.multi_get([f"{number}/node/{other}" for other in range(count)])
        return Members(number, node, tuple(int(json.loads(value)) for value in found))

    def _wait_for_all(self, number: int, node: int) -> int | None:
        """How many machines take part; the first one decides."""
        limit = time.monotonic() + self.joins_within
        enough: float | None = None
        while not self._state.check([f"{number}/count"]):
            if self.number() != number:
                return None
            there = self._there(number)
            if there >= self.least and enough is None:
                enough = time.monotonic()
            late = enough is not None and time.monotonic() - enough >= self.last_call
            if node == 0 and (there >= self.most or late):
                self._state.compare_set(f"{number}/count", "", str(min(there, self.most)))
            elif time.monotonic() > limit and enough is None:
                raise RendezvousTimeoutError(
                    f"{there} of at least {self.least} machines have come within {self.joins_within:.0f} s (this is machine {node})"
                )
            else:
                time.sleep(_PAUSE)
        return int(self._state.get(f"{number}/count"))

    def _there(self, number: int) -> int:
        if self.place is None:
            return self._state.add(f"{number}/joined", 0)
        return sum(self._state.check([f"{number}/node/{node}"]) for node in range(self.most))

    def _wait_for_next(self, number: int) -> None:
        """Come too late: let the others know, and wait until they begin anew."""
        self._state.add(f"{number}/waiting", 1)
        while self.number() == number:
            if why := self.failed():
                raise RendezvousClosedError(why)
            if self._state.check(["ended"]):
                raise RendezvousClosedError("the job has ended")
            time.sleep(_PAUSE)

    def waiting(self, members: Members) -> int:
        """How many machines wait for another round; at least one where it has begun."""
        if self.alone:
            return 0
        return max(self._state.add(f"{members.number}/waiting", 0), int(self.number() != members.number))

    def is_over(self) -> bool:
        """Whether the job has ended, well or not."""
        return not self.alone and (self._state.check(["ended"]) or bool(self.failed()))

    def close(self) -> None:
        """The job has ended."""
        self._state.set("ended", "1")

    def check_open(self) -> None:
        """RendezvousClosedError where the job has ended."""
        if self.is_over():
            raise RendezvousClosedError(self.failed() or "the job has ended")

    def somebody_waits(self, members: Members) -> bool:
        """Whether a machine has come that could take part, were there another round."""
        return members.nodes < self.most and self._state.add(f"{members.number}/waiting", 0) > 0

    def end(self, members: Members) -> bool:
        """This machine's workers have ended well: wait for the others'; False if there is another round instead."""
        if members.nodes == 1:
            self._state.set("ended", "1")
            return True
        self._state.add(f"{members.number}/ended", 1)
        limit = time.monotonic() + _EXIT
        while self._state.add(f"{members.number}/ended", 0) < members.nodes:
            if self.number() != members.number:
                return False
            if self.failed() or time.monotonic() > limit:
                return True
            time.sleep(_PAUSE)
        self._state.set("ended", "1")
        if self.store.is_master:
            self._wait_until_seen(members)
        else:
            self._state.add(f"{members.number}/seen", 1)
        return True

    def _wait_until_seen(self, members: Members) -> None:
        """The store must not go before the others know that all have ended."""
        limit = time.monotonic() + 5.0
        while self._state.add(f"{members.number}/seen", 0) < members.nodes - 1 and time.monotonic() < limit:
            time.sleep(_PAUSE)


def _store(endpoint: tuple[str, int], place: int | None, settings: dict[str, Any], seconds: float) -> TCPStore:
    """The agents' store: started here if this machine is the endpoint, and nobody was faster."""
    host, port = endpoint
    said = settings.get("is_host")
    here = (
        place == 0
        if place is not None
        else _is_here(host)
        if said is None
        else str(said).lower() in ("1", "true", "t", "yes")
    )
    timeout = timedelta(seconds=seconds)
    if here:
        try:
            return TCPStore(host, port, None, True, timeout)
        except DistNetworkError as error:
            if place is not None or said is not None or "already in use" not in str(error):
                raise RendezvousConnectionError(str(error)) from None
    try:
        return TCPStore(host, port, None, False, timeout)
    except (DistNetworkError, DistStoreError) as error:
        raise RendezvousConnectionError(f"the agents' store at {host}:{port} cannot be reached: {error}") from None


def _is_here(host: str) -> bool:
    """Whether a name is this machine's."""
    if host in LOOPBACK or host in (socket.gethostname(), socket.getfqdn()):
        return True
    try:
        for family, _, _, _, address in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM):
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.bind((address[0], 0))
                return True
    except OSError:
        pass
    return False
