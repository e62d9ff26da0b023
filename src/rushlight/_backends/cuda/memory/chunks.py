"""Segments of a GPU's memory, the chunks that they are cut into, and pools of free chunks."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rushlight._backends.cuda.memory.pluggable import Pluggable
    from rushlight._backends.cuda.native.unit import DeviceUnit

__all__ = ["LARGE", "SMALL", "Chunk", "ChunkPool", "Pools", "Segment", "segment_size"]

SMALL = 1 << 20  # bytes; the most that a chunk of a small pool has
_SMALL_SEGMENT, _LARGE_SEGMENT, LARGE = 2 << 20, 20 << 20, 10 << 20
_ROUNDED = 2 << 20
State = tuple[bool, int, tuple[Any, int] | None]


def segment_size(nbytes: int) -> int:
    """How much memory the driver is asked for to serve a request.

    >>> segment_size(4096) >> 20, segment_size(3 << 20) >> 20, segment_size((10 << 20) + 1) >> 20
    (2, 20, 12)
    """
    if nbytes <= SMALL:
        return _SMALL_SEGMENT
    if nbytes < LARGE:
        return _LARGE_SEGMENT
    return -(-nbytes // _ROUNDED) * _ROUNDED


class Segment:
    """Memory that the driver gave at once."""

    __slots__ = ("address", "first", "nbytes", "pool", "stream")

    is_expandable = False  # whether it grows; see `expandable`

    def __init__(self, address: int, nbytes: int, pool: ChunkPool, stream: int) -> None:
        self.address, self.nbytes, self.pool, self.stream = address, nbytes, pool, stream
        self.first = Chunk(address, nbytes, self)

    def chunks(self) -> list[Chunk]:
        """Its chunks by address."""
        found: list[Chunk] = []
        chunk: Chunk | None = self.first
        while chunk is not None:
            found.append(chunk)
            chunk = chunk.after
        return found

    def stretches(self) -> list[list[Chunk]]:
        """Its chunks in stretches that have memory."""
        found: list[list[Chunk]] = [[]]
        for chunk in self.chunks():
            if chunk.mapped:
                found[-1].append(chunk)
            elif found[-1]:
                found.append([])
        return [stretch for stretch in found if stretch]


class Chunk:
    """A stretch of a segment: free, lent, or freed and waiting for streams that use it."""

    __slots__ = ("_state", "address", "after", "before", "mapped", "nbytes", "segment", "size", "unit", "uses", "waits")

    def __init__(self, address: int, nbytes: int, segment: Segment) -> None:
        self.address, self.nbytes, self.segment = address, nbytes, segment
        self.before: Chunk | None = None
        self.after: Chunk | None = None
        self.mapped = True  # whether there is memory at its addresses
        self.waits = 0
        self.uses: set[Any] | None = None  # further streams that use it
        self.size = 0  # bytes of the requests that it was cut for
        self.unit: DeviceUnit | None = None  # the native half of the allocator, while that has it
        self._state: State = (False, 0, None)

    @property
    def state(self) -> State:
        """(whether it is lent, bytes requested, who asked for it: code object and instruction)."""
        return self._state if self.unit is None else self.unit.state(self.address)

    @state.setter
    def state(self, value: State) -> None:
        self._state = value

    @property
    def lent(self) -> bool:
        """Whether somebody has it."""
        return self.state[0]

    @property
    def requested(self) -> int:
        """How many bytes its owner, or the last one, asked for."""
        return self.state[1]

    @property
    def user(self) -> tuple[Any, int] | None:
        """Who asked for it, where that was noted."""
        return self.state[2]

    @property
    def is_split(self) -> bool:
        """Whether the segment has others."""
        return self.before is not None or self.after is not None

    def split(self, nbytes: int) -> Chunk:
        """Cut everything beyond `nbytes` off; the rest."""
        rest = Chunk(self.address + nbytes, self.nbytes - nbytes, self.segment)
        rest.before, rest.after, rest.mapped = self, self.after, self.mapped
        if self.after is not None:
            self.after.before = rest
        self.after, self.nbytes = rest, nbytes
        return rest

    def swallow(self) -> None:
        """Join the chunk behind this one with it."""
        gone = self.after
        assert gone is not None
        self.nbytes += gone.nbytes
        self.after = gone.after
        if gone.after is not None:
            gone.after.before = self


class ChunkPool:
    """The free chunks of one kind of size, for each stream by size and then by address."""

    def __init__(self, small: bool, owner: Pools) -> None:
        self.small, self.owner = small, owner
        self._free: dict[int, list[tuple[int, int, Chunk]]] = {}

    def add(self, chunk: Chunk) -> None:
        """A chunk is free."""
        insort(self._free.setdefault(chunk.segment.stream, []), (chunk.nbytes, chunk.address, chunk))

    def remove(self, chunk: Chunk) -> None:
        """It is not, any longer."""
        free = self._free[chunk.segment.stream]
        del free[bisect_left(free, (chunk.nbytes, chunk.address))]

    def find(self, nbytes: int, stream: int, most: int) -> Chunk | None:
        """Take out the smallest free chunk of a stream that has `nbytes`, if it has at most `most`."""
        free = self._free.get(stream)
        if not free:
            return None
        at = bisect_left(free, (nbytes,))
        if at == len(free) or free[at][0] > most:
            return None
        return free.pop(at)[2]

    def chunks(self) -> list[Chunk]:
        """All free chunks."""
        return [row[2] for free in self._free.values() for row in free]


class Pools:
    """A small and a large pool: the usual ones of a device, or those of a memory pool with an identity."""

    def __init__(self, identity: tuple[int, int] = (0, 0)) -> None:
        self.identity = identity
        self.small, self.large = ChunkPool(True, self), ChunkPool(False, self)
        self.users = 0  # graphs and memory pools that hold it
        self.segments = 0
        self.source: Pluggable | None = None  # who gives memory, where that is not the driver
        self.splits = True  # whether segments are cut into chunks
        self.helps = False  # whether it serves others where the device has no memory left

    def of(self, nbytes: int) -> ChunkPool:
        """The one for a size."""
        return self.small if nbytes <= SMALL else self.large

    @property
    def is_private(self) -> bool:
        """Whether it is not the device's usual one."""
        return self.identity != (0, 0)
