"""Segments that grow: addresses are reserved once, and memory is mapped behind what is there as requests come.

One segment serves a stream and a kind of size.  A chunk that is not `mapped` is a hole: addresses without memory.  Free
memory between chunks is unmapped page by page, so a large request later finds it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._backends.cuda.memory.chunks import Chunk, ChunkPool, Segment

if TYPE_CHECKING:
    from rushlight._backends.cuda.driver.api import Driver

__all__ = ["Expandable", "ExpandableSegment"]

_PAGE = {True: 2 << 20, False: 20 << 20}  # bytes that are mapped at once, of small chunks and of large ones
_SHARE = 9, 8  # of the device's memory, the addresses of a segment


class ExpandableSegment(Segment):
    """Reserved addresses; `pages` are handles of memory by their first address."""

    __slots__ = ("page", "pages")

    is_expandable = True

    def __init__(self, address: int, nbytes: int, pool: ChunkPool, stream: int) -> None:
        super().__init__(address, nbytes, pool, stream)
        self.page, self.pages = _PAGE[pool.small], set[int]()
        self.first.mapped = False

    @property
    def mapped(self) -> int:
        """Bytes with memory."""
        return len(self.pages) * self.page

    def runs(self, usable: Callable[[Chunk], bool]) -> list[tuple[Chunk, int]]:
        """First chunks of stretches of which every chunk is a hole or usable, with their sizes."""
        found: list[tuple[Chunk, int]] = []
        begin: Chunk | None = None
        size = 0
        for chunk in self.chunks():
            if not chunk.mapped or usable(chunk):
                begin, size = (chunk, chunk.nbytes) if begin is None else (begin, size + chunk.nbytes)
            elif begin is not None:
                found.append((begin, size))
                begin = None
        return found if begin is None else [*found, (begin, size)]


class Expandable:
    """The segments of one device that grow."""

    def __init__(self, allocator: Any) -> None:
        self.allocator, self.index = allocator, allocator.index
        self.driver: Driver = allocator.driver

    def room(self, pool: ChunkPool, size: int, stream: int, usable: Callable[[Chunk], bool]) -> Chunk | None:
        """A free chunk of so many bytes, not in the pool, for which memory was mapped; None where there is none."""
        allocator = self.allocator
        found = self._begin(pool, size, stream, usable)
        if found is None:
            return None
        segment, chunk = found
        end = chunk.address + size
        while chunk.address + chunk.nbytes < end or not chunk.mapped:
            hole = chunk
            while hole.mapped:  # free chunks are joined, so a hole comes next
                assert hole.after is not None
                hole = hole.after
            need = -(-(end - hole.address) // segment.page) * segment.page
            if not self._fill(segment, hole, min(need, hole.nbytes)):
                self._drop_empty(segment)
                return None
            chunk = allocator.put_back(hole)
        allocator.take_out(chunk)
        return chunk

    def _begin(
        self, pool: ChunkPool, size: int, stream: int, usable: Callable[[Chunk], bool]
    ) -> tuple[ExpandableSegment, Chunk] | None:
        for segment in self.allocator.segments.values():
            if isinstance(segment, ExpandableSegment) and segment.pool is pool and segment.stream == stream:
                for chunk, room in segment.runs(usable):
                    if room >= size:
                        return segment, chunk
        page = _PAGE[pool.small]
        total = self.driver.cuDeviceTotalMem(self.index) * _SHARE[0] // _SHARE[1]
        nbytes = -(-max(total, size) // page) * page
        try:
            address = self.driver.cuMemAddressReserve(nbytes)
        except CudaError as error:
            if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            return None
        segment = ExpandableSegment(address, nbytes, pool, stream)
        self.allocator.add_segment(segment, 0)
        return segment, segment.first

    def _fill(self, segment: ExpandableSegment, hole: Chunk, nbytes: int) -> bool:
        """Map memory at the begin of a hole; the rest of it stays one."""
        allocator, at, mapped = self.allocator, hole.address, 0
        if allocator.limit is not None and allocator.statistics.current("reserved_bytes") + nbytes > allocator.limit:
            return False
        try:
            for start in range(at, at + nbytes, segment.page):
                handle = self.driver.cuMemCreate(segment.page, self.index)
                try:
                    self.driver.cuMemMap(start, segment.page, handle)
                finally:
                    self.driver.cuMemRelease(handle)  # what is mapped stays
                mapped += segment.page
        except CudaError as error:
            if mapped:
                self.driver.cuMemUnmap(at, mapped)
            if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            return False
        self.driver.cuMemSetAccess(at, nbytes, [self.index])
        segment.pages.update(range(at, at + nbytes, segment.page))
        if hole.nbytes > nbytes:
            hole.split(nbytes)
        hole.mapped = True
        allocator.count_mapped(segment, at, nbytes, 1)
        return True

    def release(self, chunk: Chunk) -> None:
        """Give the whole pages of a free chunk back, which is in its pool, and the addresses where nothing is left."""
        segment, allocator = chunk.segment, self.allocator
        assert isinstance(segment, ExpandableSegment)
        page, base = segment.page, segment.address
        low = base + -(-(chunk.address - base) // page) * page
        high = base + (chunk.address + chunk.nbytes - base) // page * page
        if high <= low:
            return
        allocator.take_out(chunk)
        gone = chunk
        if low > chunk.address:
            gone = chunk.split(low - chunk.address)
        rest = gone.split(high - low) if gone.nbytes > high - low else None
        gone.mapped = False
        for kept in (None if gone is chunk else chunk, rest):
            if kept is not None:
                allocator.put_back(kept)
        self.driver.cuMemUnmap(low, high - low)
        segment.pages.difference_update(range(low, high, page))
        allocator.count_mapped(segment, low, high - low, -1)
        if gone.after is not None and not gone.after.mapped:
            gone.swallow()
        if gone.before is not None and not gone.before.mapped:
            gone = gone.before
            gone.swallow()
        self._drop_empty(segment)

    def _drop_empty(self, segment: ExpandableSegment) -> None:
        """Give the addresses of a segment without memory back."""
        if not segment.pages:
            self.driver.cuMemAddressFree(segment.address, segment.nbytes)
            self.allocator.drop_segment(segment, 0)
