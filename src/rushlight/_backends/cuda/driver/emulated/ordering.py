"""Happens-before order of the streams of emulated devices, and who uses memory that another may still use.

Each piece of work is a number in its stream.  A stream knows for every other one up to which number it comes after
(a vector clock); events carry that from stream to stream, and waiting hosts to everything that they start later.

The caching allocator says which stretches it lends to whom.  Memory that is lent again remembers who used it before, so
the first piece of work that does not come after those uses is found, whatever the order was in which the emulator ran
them.  A real driver gives wrong numbers there, now and then.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["Clock", "MemoryOrder", "StreamOrderError"]

Clock = dict[int, int]  # stream -> the number of its last piece of work
_Uses = dict[int, tuple[int, str]]  # stream -> number and name of the last use


class StreamOrderError(RuntimeError):
    """A stream uses memory that was freed, or that another stream may still use: nothing orders the two."""


def merge(clock: Clock, other: Clock) -> None:
    """Let a clock come after another."""
    for stream, number in other.items():
        if clock.get(stream, 0) < number:
            clock[stream] = number


class _Stretch:
    """Memory from `start` to `end`: of somebody, or free; with its uses, and those of the owners before."""

    __slots__ = ("end", "past", "start", "uses")

    def __init__(self, start: int, end: int, past: _Uses) -> None:
        self.start, self.end, self.past = start, end, past
        self.uses: _Uses = {}


class _Map:
    """Stretches that do not overlap, by address."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.found: dict[int, _Stretch] = {}

    def add(self, stretch: _Stretch) -> None:
        self.starts.insert(bisect_left(self.starts, stretch.start), stretch.start)
        self.found[stretch.start] = stretch

    def remove(self, stretch: _Stretch) -> None:
        del self.starts[bisect_left(self.starts, stretch.start)]
        del self.found[stretch.start]

    def at(self, address: int) -> _Stretch | None:
        i = bisect_right(self.starts, address) - 1
        stretch = self.found[self.starts[i]] if i >= 0 else None
        return stretch if stretch is not None and address < stretch.end else None

    def overlapping(self, start: int, end: int) -> list[_Stretch]:
        i = max(bisect_right(self.starts, start) - 1, 0)
        found = []
        for key in self.starts[i:]:
            if key >= end:
                break
            if self.found[key].end > start:
                found.append(self.found[key])
        return found


class MemoryOrder:
    """The uses of all memory that the caching allocator lent."""

    def __init__(self) -> None:
        self._lent, self._free = _Map(), _Map()

    def lend(self, address: int, nbytes: int) -> None:
        """The allocator gives a stretch to a program; its earlier uses are not forgotten."""
        end = address + nbytes
        past: _Uses = {}
        for old in self._free.overlapping(address, end):
            self._free.remove(old)
            _later(past, old.past)
            for low, high in ((old.start, address), (end, old.end)):
                if high > low:
                    self._free.add(_Stretch(low, high, dict(old.past)))
        self._lent.add(_Stretch(address, end, past))

    def take_back(self, address: int) -> None:
        """The program gives a stretch back, while streams may still use it."""
        stretch = self._lent.at(address)
        if stretch is not None:
            self._lent.remove(stretch)
            _later(stretch.past, stretch.uses)
            self._free.add(_Stretch(stretch.start, stretch.end, stretch.past))

    def forget(self, address: int, nbytes: int) -> None:
        """The allocator gives memory back to the driver, which waits for all that uses it."""
        for kept in (self._lent, self._free):
            for stretch in kept.overlapping(address, address + nbytes):
                kept.remove(stretch)

    def use(self, address: int, stream: int, number: int, name: str, clock: Clock, host: Clock) -> None:
        """A piece of work gets an address; StreamOrderError where the memory is not its own by then."""
        stretch = self._lent.at(address)
        if stretch is None:
            if self._free.at(address) is not None:
                raise StreamOrderError(
                    f"{name} was given {address:#x}, which was freed before; a tensor must live until its last use is started"
                )
            return
        stretch.uses[stream] = (number, name)
        if stretch.past:
            self._check_past(stretch, stream, name, clock, host)

    def _check_past(self, stretch: _Stretch, stream: int, name: str, clock: Clock, host: Clock) -> None:
        for other, (number, before) in list(stretch.past.items()):
            if host.get(other, 0) >= number:
                del stretch.past[other]  # the host has seen its end
            elif other != stream and clock.get(other, 0) < number:
                raise StreamOrderError(
                    f"{name} on stream {stream:#x} uses memory at {stretch.start:#x} that {before} on stream {other:#x} may still use: the tensor "
                    "of the latter was freed and nothing orders the two; tell the allocator by Tensor.record_stream, or let one stream wait for "
                    "the other"
                )


def _later(uses: _Uses, others: _Uses) -> None:
    """Join uses; of each stream the last one counts."""
    for stream, use in others.items():
        if stream not in uses or uses[stream][0] < use[0]:
            uses[stream] = use
