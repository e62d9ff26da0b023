"""Who of a job's ranks lives: the server's half of `monitor`.

A rank is watched over a connection, on which it sends signs of life. When the connection ends before the rank has said
goodbye, it is dead; when it gives no sign for `SILENT_FOR` seconds while others do, it is stopped, or its machine is
gone. Every other rank is told once. The server gives signs of life too: a rank that hears none is cut off.
"""

from __future__ import annotations

import time

from rushlight._distributed.stores.connection import Connection, Malformed
from rushlight._distributed.stores.wire import LONGEST_NOTICE, as_integer_field, as_text

__all__ = ["Event", "Sign", "Watch"]

SILENT_FOR = 2.5
_BEAT = 0.5  # seconds between two signs of life of the server's
_LATE = 1.0  # seconds between two looks, from which on it was this process that stood still


class Sign:
    """A rank's message."""

    ALIVE, GOODBYE, BROKEN, NOTICE, ASK, TELL, DUMP = range(1, 8)


class Event:
    """A message to a rank."""

    FAILED, LEFT, ASKED, NOTICES, DUMP, ALIVE = range(1, 7)


class Watched:
    """One rank: when it gave its last sign, and what it said that it does."""

    def __init__(self, client: Connection) -> None:
        self.client = client
        self.last_sign = time.monotonic()
        self.notice, self.noticed, self.asked = "", -1.0, 0.0


class Party:
    """The ranks of one job."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ranks: dict[int, Watched] = {}
        self.gone: dict[int, bytes] = {}  # what the others were told of ranks that failed or left

    def tell(self, rank: int, event: int, why: str) -> None:
        """Tell every other rank what became of this one, once."""
        if rank not in self.gone:
            self.gone[rank] = bytes([event]) + as_integer_field(rank) + as_text(why.encode()[:LONGEST_NOTICE])
            self.send(rank, self.gone[rank])

    def send(self, rank: int, message: bytes) -> None:
        """To every rank but this one."""
        for other, watched in self.ranks.items():
            if other != rank:
                watched.client.send(message)

    def look(self, now: float) -> None:
        """Whether somebody is silent for too long, while somebody else is not."""
        silent = [rank for rank, watched in self.ranks.items() if now - watched.last_sign > SILENT_FOR]
        if len(silent) == len(self.ranks):
            return  # all were stopped together, and will go on together
        for rank in silent:
            seconds = now - self.ranks[rank].last_sign
            self.tell(
                rank, Event.FAILED, f"has given no sign of life for {seconds:.1f} s (stopped, or its machine is gone)"
            )

    def notices(self, since: float) -> bytes:
        """Latest notices of the ranks: rank and text of each that answered since then."""
        found = [(rank, watched.notice) for rank, watched in sorted(self.ranks.items()) if watched.noticed >= since]
        parts = [as_integer_field(rank) + as_text(notice.encode()) for rank, notice in found]
        return bytes([Event.NOTICES]) + as_integer_field(len(parts)) + b"".join(parts)


class Watch:
    """All parties of a server."""

    def __init__(self) -> None:
        self._parties: dict[str, Party] = {}
        self._looked = self._beat = time.monotonic()

    def __bool__(self) -> bool:
        return bool(self._parties)

    def join(self, client: Connection, name: str, place: tuple[int, int]) -> None:
        """Watch a client as rank `place[0]` of `place[1]`."""
        rank, size = place
        party = self._parties.get(name) or Party(size)
        if size != party.size or not 0 <= rank < size or rank in party.ranks:
            raise Malformed("a rank that is watched already, or of another world")
        self._parties[name] = party
        party.ranks[rank] = watched = Watched(client)
        for message in party.gone.values():
            client.send(message)
        client.serve = lambda client: self._sign(party, rank, watched)
        client.on_close = lambda client: self._end(name, party, rank)

    def tick(self, now: float) -> None:
        """Look who has been silent for too long, and say that this process lives."""
        late, self._looked = now - self._looked > _LATE, now
        beats = now - self._beat >= _BEAT
        if beats:
            self._beat = now
        for party in self._parties.values():
            if beats:
                party.send(-1, bytes([Event.ALIVE]))
            if late:
                for watched in party.ranks.values():
                    watched.last_sign = now
            party.look(now)

    def _sign(self, party: Party, rank: int, watched: Watched) -> None:
        client = watched.client
        kind = client.read_byte()
        watched.last_sign = time.monotonic()
        if kind == Sign.GOODBYE:
            party.tell(rank, Event.LEFT, "has ended")
        elif kind == Sign.BROKEN:
            party.tell(rank, Event.FAILED, client.read_text(LONGEST_NOTICE))
        elif kind == Sign.NOTICE:
            watched.notice, watched.noticed = client.read_text(LONGEST_NOTICE), watched.last_sign
        elif kind == Sign.ASK:
            watched.asked = watched.last_sign
            party.send(rank, bytes([Event.ASKED]))
        elif kind == Sign.DUMP:
            party.send(rank, bytes([Event.DUMP]))
        elif kind == Sign.TELL:
            client.send(party.notices(watched.asked))
        elif kind != Sign.ALIVE:
            raise Malformed(f"no sign has the number {kind}")

    def _end(self, name: str, party: Party, rank: int) -> None:
        del party.ranks[rank]
        party.tell(rank, Event.FAILED, "died: its connection to the store process ended")
        if not party.ranks:
            del self._parties[name]
