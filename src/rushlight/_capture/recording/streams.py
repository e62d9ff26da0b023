"""The random streams of a recording: what was drawn from each, and from where it goes on.

A program that puts a generator back to an earlier state draws the same numbers again, as checkpointed functions do in
their backward: that is no new draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight._capture.recording.errors import RecordingError
from rushlight._capture.recording.log import Call, Collective, Draw, Entry, Move, Read
from rushlight._engine.random.random import STATE_SIZE
from rushlight._types.symbols import hint

__all__ = ["Streams"]


class Streams:
    """`states` are those that the program was shown, by address: (generator, how much had been drawn); `places` says
    from where each draws next.
    """

    __slots__ = ("_drawn", "places", "states")

    def __init__(self) -> None:
        self._drawn: dict[int, list[Draw]] = {}
        self.places: dict[int, int] = {}
        self.states: dict[int, tuple[Any, int]] = {}

    def place(self, generator: Any) -> int:
        """How much of a generator's stream lies behind it."""
        return self.places.get(id(generator), 0)

    def shows(self, address: Any) -> bool:
        """Whether an address lies in a state that the program was shown: nothing is there before the program runs."""
        address = hint(address)
        return any(first <= address < first + STATE_SIZE for first in self.states)

    def check_unread(self, entry: Entry) -> None:
        """RecordingError where an entry reads or writes such a state."""
        if any(isinstance(word, int) and self.shows(word) for word in _words(entry)):
            raise RecordingError("the elements of a random generator's state are not known while a program is recorded")

    def drawn(self, entry: Draw) -> Draw:
        """The entry for a draw: it holds the first one (`first`) where these numbers were drawn before."""
        known = self._drawn.setdefault(id(entry.generator), [])
        place = self.place(entry.generator)
        self.places[id(entry.generator)] = place + 1
        if place == len(known):
            known.append(entry)
            return entry
        first = known[place]
        if (first.name, first.kind, first.total, first.parameters) != (
            entry.name,
            entry.kind,
            entry.total,
            entry.parameters,
        ):
            raise RecordingError("other random numbers are drawn from a state that was set again")
        return entry._replace(first=first)

    def check_ends(self) -> None:
        """RecordingError where a generator is left in an earlier state."""
        for number, known in self._drawn.items():
            if self.places[number] != len(known):
                raise RecordingError("a random generator is left in an earlier state")


def _words(entry: Entry) -> Iterable[Any]:
    """Addresses of an entry, among other numbers."""
    if isinstance(entry, Call):
        return entry.words
    if isinstance(entry, Collective):
        return entry.operand[0], entry.result[0]
    return (entry.leaf.address, *entry) if isinstance(entry, (Read, Move)) else entry
