"""Who of a job's ranks lives: the server's half of `monitor`.

A rank is watched over a connection. It sends *signs of life*, each with a notice: what it does, in words. When its
connection ends before it has said goodbye, it is dead; when it gives no sign for three seconds, it is stopped, or its
machine is gone. Every other rank is told once.
"""

from __future__ import annotations

import time

from rushlight._distributed.stores.connection import Connection, Malformed
from rushlight._distributed.stores.wire import LONGEST_NOTICE, MOST_RANKS, as_integer_field, as_text

__all__ = ["Event", "Sign", "Watch"]

SILENT_FOR = 2.5  # seconds without a sign of life, after which a rank counts as stopped


class Sign:
    """What a rank says."""

    ALIVE, NOTICE, GOODBYE, ASK = range(1, 5)


class Event:
    """What a rank is told."""

    FAILED, NOTICES = range(1, 3)


class Watched:
    """One rank: when it gave its last sign, and what it said it does."""

    def __init__(self, client: Connection, notice: str) -> None:
        self.client, self.notice = client, notice
        self.last_sign = time.monotonic()
        self.noticed = self.last_sign
        self.silent = False


class Party:
    """The ranks of one job."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ranks: dict[int, Watched] = {}
        self.left: set[int] = set()
        self.failed: dict[int, str] = {}

    def fail(self, rank: int, why: str) -> None:
        """Tell every other rank, once."""
        if rank in self.failed:
            return
        self.failed[rank] = why
        for other, watched in self.ranks.items():
            if other != rank:
                watched.client.send(failure(rank, why))

    def notices(self) -> str:
        """What every rank said it does, and for how long it has: a line for each."""
        now = time.monotonic()
        lines = [f"{rank}\t{now - w.noticed:.1f}\t{w.notice}" for rank, w in sorted(self.ranks.items())]
        return "\n".join(lines)


def failure(rank: int, why: str) -> bytes:
    """The event that a rank failed."""
    return bytes([Event.FAILED]) + as_integer_field(rank) + as_text(why.encode())


class Watch:
    """All parties of a server."""

    def __init__(self) -> None:
        self._parties: dict[str, Party] = {}

    def join(self, client: Connection, name: str, place: tuple[int, int], notice: str) -> None:
        """Watch a client as rank `place[0]` of `place[1]`."""
        rank, size = place
        party = self._parties.get(name) or Party(size)
        if size != party.size or not 0 <= rank < size or rank in party.ranks:
            raise Malformed("a rank that is watched already, or of another world")
        self._parties[name] = party
        party.ranks[rank] = Watched(client, notice)
        for other, why in party.failed.items():
            client.send(failure(other, why))
        client.serve = lambda client: self._sign(party, rank, client)
        client.on_close = lambda client: self._gone(name, party, rank)

    def tick(self, now: float) -> None:
        """Look who has been silent for too long."""
        for party in self._parties.values():
            for rank, watched in party.ranks.items():
                if now - watched.last_sign > SILENT_FOR and rank not in party.left:
                    party.fail(rank, f"has given no sign of life for {now - watched.last_sign:.1f} s")

    def _sign(self, party: Party, rank: int, client: Connection) -> None:
        kind, watched = client.read_byte(), party.ranks[rank]
        watched.last_sign = time.monotonic()
        if kind == Sign.NOTICE:
            watched.notice, watched.noticed = client.read_text(LONGEST_NOTICE), watched.last_sign
        elif kind == Sign.GOODBYE:
            party.left.add(rank)
        elif kind == Sign.ASK:
            text = party.notices().encode()
            client.send(bytes([Event.NOTICES]) + as_text(text[: LONGEST_NOTICE * min(party.size, MOST_RANKS)]))
        elif kind != Sign.ALIVE:
            raise Malformed(f"no sign has the number {kind}")

    def _gone(self, name: str, party: Party, rank: int) -> None:
        watched = party.ranks.pop(rank)
        if rank not in party.left:
            last = f", while it was in {watched.notice}" if watched.notice else ""
            party.fail(rank, f"died{last}: its connection to the store process ended")
        if not party.ranks:
            del self._parties[name]
