"""Launches of a linked program: where their words are, and what they read and write."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight._backends.cpu.launches import Launch
from rushlight._backends.cpu.pinned_native import NEVER, PINNED
from rushlight._backends.cpu.program.wiring import Wired
from rushlight._backends.cpu.runtime.runtime import runtime

__all__ = ["LaidCluster", "Launched", "Pin", "Place", "key_of", "laid_cluster"]

# Where a word of a launch comes from: ("word", number of an argument), ("number", its bits) or ("buffer", number); and
# bytes from there.
Place = tuple[str, int, int]


class Pin:
    """An operand that may stay packed: where its address comes from, how many bytes it takes packed, and the words of its
    PINNED.
    """

    __slots__ = ("held", "nbytes", "place", "words")

    def __init__(self, place: Place, nbytes: int, pieces: int) -> None:
        self.place, self.nbytes = place, nbytes
        self.words = array("q", [0] * len(PINNED) + [NEVER] * pieces)
        self.held: tuple[Any, ...] = ()  # what its words point to

    def fix(self, address: int, storage: Any) -> None:
        """Let it stay packed while it is this memory, and its storage is not written to."""
        panels = runtime().alloc(self.nbytes)
        root = storage if storage.owner is None else storage.owner
        self.held = storage, root, panels
        words = {"storage": id(storage), "root": id(root), "panels": panels.ptr, "weight": address}
        for name, value in words.items():
            self.words[PINNED.by_name[name].place] = value


class Launched:
    """A launch of the program: `words` are places, `fresh` the numbers of the buffers that it fills first."""

    __slots__ = ("fresh", "launch", "moved", "pin", "reads", "step", "wave", "words", "writes", "written")

    def __init__(self, launch: Launch, words: list[Place], fresh: list[int], written: set[Any], step: int) -> None:
        self.launch, self.words, self.fresh, self.written, self.step = launch, words, fresh, written, step
        self.wave, self.moved = 0, 0
        self.pin: Pin | None = None
        self.reads: set[Any] = {p[:2] for p in words if p[0] != "number"}
        self.writes: set[Any] = written | {("buffer", b) for b in fresh}

    def halves(self) -> tuple[Launched, Launched]:
        """A collective as two launches: its beginning, and its end, which holds the result and the operand."""
        assert self.launch.halves is not None
        begin, end = self.launch.halves
        start = Launched(begin, self.words, self.fresh, self.written, self.step)
        held: list[Place] = [("buffer", b, 0) for b in self.fresh[1:]]
        finish = Launched(end, [*held, self.words[1]], [], set(), self.step)
        finish.writes = {key_of(held[0] if held else self.words[1])}
        return start, finish

    def in_place(self) -> Launched:
        """A collective whose result takes the place of its operand."""
        assert self.launch.there is not None
        return Launched(self.launch.there, self.words, self.fresh[:1], {key_of(self.words[1])}, self.step)

    def renamed(self, number: int, other: int) -> None:
        """Let one buffer be another."""

        def place(p: Place) -> Place:
            return ("buffer", other, p[2]) if p[:2] == ("buffer", number) else p

        self.words = [place(p) for p in self.words]
        for keys in (self.reads, self.writes, self.written):
            if ("buffer", number) in keys:
                keys.discard(("buffer", number))
                keys.add(("buffer", other))

    @property
    def pieces(self) -> int:
        return self.launch.ints[0] if self.launch.ints is not None else 1


class LaidCluster(NamedTuple):
    """The launches of a cluster, as (launch, places of its words, buffers that it fills first, number of its step, bytes
    that it moves); the bytes of its buffers; the places of its tensors and results.
    """

    launches: list[tuple[Launch, list[Place], list[int], int, int]]
    buffers: list[int]
    tensors: list[Place]
    results: list[Place]


def laid_cluster(cluster: Wired, where: Sequence[Place], first: int) -> LaidCluster:
    """A cluster of a program whose values lie at `where`; its buffers are numbered from `first` on."""
    part = cluster.part
    places: list[Place] = []
    for value, step in cluster.tensors:
        kind, number, offset = where[value]
        places.append((kind, number, offset + step))
    tensors, buffers = list(places), list[int]()
    places += cluster.numbers
    launches: list[tuple[Launch, list[Place], list[int], int, int]] = []
    for at, laid in part.laid():
        for launch, words, count, bytes_of in laid:
            begin = first + len(buffers)
            fresh = list(range(begin, begin + count))
            given = [places[w] if w >= 0 else _nowhere(fresh) for w in words]
            buffers += bytes_of
            places += [("buffer", b, 0) for b in fresh]
            if launch is not None:
                launches.append((launch, given, fresh, at, part.steps[at].moved // len(laid)))
    fresh_results = iter(part.program.results)
    results: list[Place] = []
    for j in range(cluster.results):
        if j in cluster.aliases:
            results.append(tensors[cluster.aliases[j]])
            continue
        number = part.renumbered(next(fresh_results))
        results.append(places[number] if number >= 0 else ("number", 0, 0))
    return LaidCluster(launches, buffers, tensors, results)


def _nowhere(fresh: list[int]) -> Place:
    """Where an operand without elements is: a kernel reads nothing there."""
    return ("buffer", fresh[0], 0) if fresh else ("word", 0, 0)


def key_of(place: Place) -> tuple[str, int]:
    return place[:2]
