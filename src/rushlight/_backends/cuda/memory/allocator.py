"""The caching allocator of one GPU.

Memory comes from the driver in segments, which are cut into chunks.  A freed chunk goes back to the free ones of the
stream that it was asked for on: the next owner's work comes behind that of the last one, so nobody waits.  Other streams
that use a chunk are told by `record`; then it is free when they have passed the place.

`free` may be called from a destructor at any time, in the middle of another call, too: it leaves the chunk in a queue
where somebody is at work.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from rushlight._backends.cuda.devices import Devices
from rushlight._backends.cuda.driver.errors import CudaError
from rushlight._backends.cuda.memory.chunks import SMALL, Chunk, ChunkPool, Pools, Segment, segment_size
from rushlight._backends.cuda.memory.expandable import Expandable, ExpandableSegment
from rushlight._backends.cuda.memory.history import History, Recording
from rushlight._backends.cuda.memory.settings import UNIT, Settings
from rushlight._backends.cuda.memory.shortage import shortage
from rushlight._backends.cuda.memory.stats import Statistics
from rushlight._backends.cuda.native.unit import DeviceUnit, Shared
from rushlight._backends.cuda.native.words_native import AT
from rushlight._backends.cuda.streams import CudaEvent, CudaStream
from rushlight._base.errors import user_code
from rushlight._base.forking import free_after_fork

if TYPE_CHECKING:
    from rushlight._backends.cuda.memory.pluggable import Pluggable

__all__ = ["Allocator"]

_FREED = (False, 0, None)
_NOTED = 1 << 20  # bytes from which on a chunk remembers who asked for it


class Allocator:
    """The memory of one device."""

    def __init__(
        self, devices: Devices, index: int, settings: Settings, unit: DeviceUnit | None = None, shared: Shared | None = None
    ) -> None:  # fmt: skip
        self.devices, self.driver, self.index = devices, devices.driver, index
        self.unit = unit or DeviceUnit(index, shared or Shared())
        self.statistics = Statistics(self.unit)
        self._capturing = 0
        self._routes: list[tuple[Pools, Callable[[CudaStream], Any]]] = []
        self._held_up, self.history = True, History()
        self._expandable = Expandable(self)
        self._settings = settings
        if settings.max_split_size < 1 << 62:
            self.statistics.max_split_size = settings.max_split_size
        self.pools = Pools()
        self.private: dict[tuple[int, int], Pools] = {}
        self.segments: dict[int, Segment] = {}
        self._starts: list[int] = []  # of segments, in order
        self._lent: dict[int, Chunk] = {}  # what native code did not lend
        self.caches = os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING") != "1"  # whether freed segments are kept
        self._waiting: deque[tuple[CudaEvent, Chunk]] = deque()
        self._late: list[Chunk] = []  # freed in a capture while other streams used them
        self._freed: deque[Chunk] = deque()
        self._lock = free_after_fork(threading.Lock())
        self.limit: int | None = None
        self.plugged: Pluggable | None = None  # who serves every request, in place of this allocator
        # Functions of an address, told of chunks that are lent and given back; see `trace`.
        self.watched: tuple[Callable[[int], Any], Callable[[int], Any]] | None = None
        if settings.memory_fraction is not None:
            self.set_fraction(settings.memory_fraction)

    # ***** when native code serves requests *****

    def _changed(self) -> None:
        """Tell native code whether it may lend."""
        settings = self._settings
        plain = settings.max_split_size >= 1 << 62 and not settings.roundup_divisions
        self.unit.words[AT.slow] = int(
            self._held_up or not plain or self.history.on or bool(self._routes) or bool(self._capturing)
        )

    @property
    def held_up(self) -> bool:
        """Whether native code leaves everything to Python, whatever the allocator's state."""
        return self._held_up

    @held_up.setter
    def held_up(self, value: bool) -> None:
        self._held_up = value
        self._changed()

    @property
    def settings(self) -> Settings:
        """Settings of the allocator."""
        return self._settings

    @settings.setter
    def settings(self, value: Settings) -> None:
        self._settings = value
        self._changed()

    def record_history(self, recording: Recording, clear: bool = False) -> None:
        """Record who asks for memory, and what becomes of it; every chunk remembers who asked for it meanwhile."""
        with self._lock:
            self._take_freed()
            for segment in self.segments.values():
                for chunk in segment.chunks():
                    if chunk.unit is not None and chunk.lent:
                        self._withdraw(chunk)
            self.history.begin(recording, clear)
        self._changed()

    # ***** asking and giving back *****

    def allocate(self, nbytes: int, stream: CudaStream) -> Chunk:
        """A chunk for work of a stream; OutOfMemoryError where there is none."""
        size = self._settings.rounded(nbytes)
        place = user_code(2) if nbytes >= _NOTED or self.history.on else None
        with self._lock:
            self._take_freed()
            if self.plugged is not None:
                return self._plugged_chunk(self.plugged, nbytes, stream, place)
            pools = self._pools_for(stream) if self._routes else self.pools
            if self._waiting and not self._capturing:
                self._look_at_waiting()
            pool = pools.of(size)
            chunk: Chunk | None = self.unit.take(stream.id, size) if pools is self.pools else None
            if chunk is not None:
                chunk.unit, chunk.waits = None, 0
            else:
                chunk = self._found(pool, size, stream.id) or self._enlarged(pool, size, nbytes, stream)
                pool = chunk.segment.pool  # of another memory pool, where that helped
                self._cut(chunk, pool, size)
            chunk.size = size
            self._lend(chunk, pool, nbytes, place)
        return chunk

    def _plugged_chunk(self, source: Pluggable, nbytes: int, stream: CudaStream, place: Any) -> Chunk:
        """Memory of a program's own allocator, as a segment with one chunk."""
        self.devices.enter(self.index)
        address = source.allocate(nbytes, self.index, stream.id)
        if not address:
            self.statistics.num_ooms += 1
            raise shortage(self, nbytes, self._all_lent())
        pool = self.pools.of(nbytes)
        chunk = self.add_segment(Segment(address, nbytes, pool, stream.id), nbytes).first
        chunk.size = nbytes
        self._lend(chunk, pool, nbytes, place)
        return chunk

    def plug(self, source: Pluggable) -> None:
        """Let a program's own allocator serve all requests; RuntimeError where this one has served some."""
        if self.segments or self.statistics.num_device_alloc:
            raise RuntimeError("Can't swap an already initialized allocator")
        self.plugged, self.held_up = source, True

    def lend_natively(self, nbytes: int, stream: CudaStream) -> int:
        """The address of a chunk that native code gives back; of one that it cannot, `released` does."""
        chunk = self.allocate(nbytes, stream)
        with self._lock:
            if self._is_native(chunk) and self._admit(chunk, lent=True):
                del self._lent[chunk.address]
        return chunk.address

    def released(self, address: int) -> None:
        """A chunk that `lend_natively` lent is free, and native code does not know it."""
        self.free(self._lent[address])

    def _is_native(self, chunk: Chunk) -> bool:
        plain = chunk.segment.pool.owner is self.pools and self.watched is None and not self.history.on
        return plain and self.caches and not self._capturing

    def _admit(self, chunk: Chunk, lent: bool) -> bool:
        """Hand a chunk over to native code, if that has room."""
        _, requested, place = chunk.state
        segment = chunk.segment
        if not self.unit.admit(
            chunk, chunk.address, chunk.nbytes, chunk.size, segment.stream, segment.pool.small, requested, lent, place
        ):
            return False
        chunk.unit = self.unit
        return True

    def free(self, chunk: Chunk) -> None:
        """Nobody shows a chunk any longer; streams may still use it, in their order."""
        self._freed.append(chunk)
        while self._freed and not self.devices.forked and self._lock.acquire(False):
            try:
                self._take_freed()
            finally:
                self._lock.release()

    def record(self, chunk: Chunk, stream: CudaStream) -> None:
        """A further stream uses a chunk: once freed it is kept until that stream has passed this use."""
        if stream.id != chunk.segment.stream:
            with self._lock:
                self._withdraw(chunk)
                if chunk.uses is None:
                    chunk.uses = set()
                chunk.uses.add(stream)

    def _withdraw(self, chunk: Chunk) -> None:
        """Take a chunk that native code lent from it: Python is told when it is free."""
        if chunk.unit is not None:
            chunk.state, chunk.unit = chunk.unit.withdraw(chunk.address), None
            self._lent[chunk.address] = chunk

    def _take_freed(self) -> None:
        while self._freed:
            self._give_back(self._freed.popleft())

    def _lend(self, chunk: Chunk, pool: ChunkPool, nbytes: int, place: Any) -> None:
        chunk.state = (True, nbytes, place)
        self._lent[chunk.address] = chunk
        if self.watched is not None:
            self.watched[0](chunk.address)
        if self.history.on:
            self.history.lend(chunk, nbytes)
        self.statistics.lend(pool.small, chunk.nbytes, nbytes)
        if chunk.nbytes >= self._settings.max_split_size:
            self.statistics.add_oversize("oversize_allocations", 1)
        marks = self.driver.marks
        if marks is not None and not pool.owner.is_private:
            marks.lend(chunk.address, chunk.nbytes)

    def _give_back(self, chunk: Chunk) -> None:
        pool, uses, requested = chunk.segment.pool, chunk.uses, chunk.requested
        chunk.state = (False, requested, None)
        self._lent.pop(chunk.address, None)
        if self.watched is not None:
            self.watched[1](chunk.address)
        if self.history.on:
            self.history.give_back(chunk)
            if not uses:
                self.history.complete(chunk)
        self.statistics.take_back(pool.small, chunk.nbytes, requested, not uses)
        if chunk.nbytes >= self._settings.max_split_size:
            self.statistics.add_oversize("oversize_allocations", -1)
        marks = self.driver.marks
        if marks is not None and not pool.owner.is_private:
            marks.take_back(chunk.address)
        if self.plugged is not None:
            self._release_plugged(self.plugged, chunk)
        elif not uses:
            self._set_ready(chunk)
        elif self._capturing:
            self._late.append(chunk)  # an event of a capture cannot be asked
        else:
            self._wait_for_uses(chunk)

    def _set_ready(self, chunk: Chunk) -> None:
        """Keep a freed chunk as it is for the next request of its size; it is joined where nothing else fits."""
        if not self._is_native(chunk) or not self._admit(chunk, lent=False):
            self._free(chunk)

    def _release_plugged(self, source: Pluggable, chunk: Chunk) -> None:
        segment = chunk.segment
        self._forget_segment(segment)
        self.devices.enter(self.index)
        source.release(segment.address, segment.nbytes, self.index, segment.stream)

    def _join_ready(self) -> None:
        """Make chunks that were kept as they are free."""
        for chunk in self.unit.ready():
            chunk.unit, chunk.state = None, _FREED  # it was lent when native code took it
            self._free(chunk)

    def _wait_for_uses(self, chunk: Chunk) -> None:
        uses, chunk.uses = chunk.uses or set(), None
        try:
            for stream in uses:
                event = CudaEvent(self.devices, stream.device)
                with self.devices.aside(stream.device.index or 0):
                    event.record(stream)
                chunk.waits += 1
                self._waiting.append((event, chunk))
        except CudaError:  # the device failed: its memory is of no use any longer
            return

    def _look_at_waiting(self) -> None:
        """Free what streams have passed."""
        while self._waiting:
            event, chunk = self._waiting[0]
            with self.devices.unseen():
                passed = event.query()
            if not passed:
                return
            self._waiting.popleft()
            self._passed(chunk)

    def _passed(self, chunk: Chunk) -> None:
        chunk.waits -= 1
        if not chunk.waits:
            small = chunk.segment.pool.small
            self.statistics.add("active", small, -1)
            self.statistics.add("active_bytes", small, -chunk.nbytes)
            if self.history.on:
                self.history.complete(chunk)
            self._free(chunk)

    def _free(self, chunk: Chunk) -> None:
        """Make a chunk free, and release it where nothing is kept."""
        chunk = self.put_back(chunk)
        whole = not chunk.is_split or isinstance(chunk.segment, ExpandableSegment)
        if not self.caches and whole and not self._capturing:
            self._release_free([chunk.segment.pool.owner])

    def put_back(self, chunk: Chunk) -> Chunk:
        """Put a chunk into its pool, joined with its free neighbours; the chunk that it is part of now."""
        pool = chunk.segment.pool
        if chunk.after is not None and _is_free(chunk.after):
            self._count_split(chunk.after, pool, -1)
            pool.remove(chunk.after)
            chunk.swallow()
        if chunk.before is not None and _is_free(chunk.before):
            chunk = chunk.before
            self._count_split(chunk, pool, -1)
            pool.remove(chunk)
            chunk.swallow()
        pool.add(chunk)
        self._count_split(chunk, pool, 1)
        return chunk

    def take_out(self, chunk: Chunk) -> None:
        """Take a free chunk out of its pool."""
        self._count_split(chunk, chunk.segment.pool, -1)
        chunk.segment.pool.remove(chunk)

    def _count_split(self, chunk: Chunk, pool: ChunkPool, sign: int) -> None:
        if chunk.is_split:
            self.statistics.add("inactive_split", pool.small, sign)
            self.statistics.add("inactive_split_bytes", pool.small, sign * chunk.nbytes)

    # ***** finding a chunk *****

    def _found(self, pool: ChunkPool, size: int, stream: int) -> Chunk | None:
        """A free chunk that a request fits into; those that were kept as they are count, and are joined where none fits."""
        if pool.owner is not self.pools:
            return self._find(pool, size, stream)
        found = self._find(pool, size, stream)
        kept: Chunk | None = self.unit.best(stream, size, self._most(pool, size), pool.small)
        if kept is None:
            if found is not None:
                return found
            self._join_ready()
            return self._find(pool, size, stream)
        kept.unit, kept.state = None, _FREED
        if found is None:
            return kept
        if (kept.nbytes, kept.address) < (found.nbytes, found.address):
            pool.add(found)
            self._count_split(found, pool, 1)
            return kept
        self._admit(kept, lent=False)
        return found

    def _most(self, pool: ChunkPool, size: int) -> int:
        """How large a chunk may be that serves a request."""
        limit = self._settings.max_split_size
        if size < limit:
            return limit - 1
        return (1 << 62) if pool.small else size + self._settings.max_non_split_rounding

    def _find(self, pool: ChunkPool, size: int, stream: int) -> Chunk | None:
        found = pool.find(size, stream, self._most(pool, size))
        if found is not None:
            self._count_split(found, pool, -1)
        return found

    def _cut(self, chunk: Chunk, pool: ChunkPool, size: int) -> None:
        """Leave what a request does not need of a chunk to others."""
        if not pool.owner.splits:
            return
        rest = chunk.nbytes - size
        if rest >= UNIT if pool.small else size < self.settings.max_split_size and rest > SMALL:
            left = chunk.split(size)
            pool.add(left)
            self._count_split(left, pool, 1)

    def _enlarged(self, pool: ChunkPool, size: int, nbytes: int, stream: CudaStream) -> Chunk:
        """A segment more, after all that can be done where the driver has none."""
        self._collect_garbage(pool, size)
        found = self._new_segment(pool, size, stream.id)
        if found is None and self._waiting and not self._capturing:
            self._await_uses()
            found = self._find(pool, size, stream.id)
        if found is None and not self._capturing:
            self.statistics.num_alloc_retries += 1
            self._await_uses()
            self._release_free(self._all_pools())
            found = self._new_segment(pool, size, stream.id)
        if found is None:
            found = self._help(pool, size, stream.id)
        if found is None:
            self.statistics.num_ooms += 1
            error = shortage(self, nbytes, self._all_lent())
            if self.history.on:
                self.history.shortage(nbytes, stream.id, self.driver.cuMemGetInfo()[0])
            raise error
        return found

    def _help(self, pool: ChunkPool, size: int, stream: int) -> Chunk | None:
        """Memory of a pool that may serve others where there is none."""
        for pools in self.private.values():
            if pools.helps and pools is not pool.owner:
                found = self._find(pools.of(size), size, stream) or self._new_segment(pools.of(size), size, stream)
                if found is not None:
                    return found
        return None

    def _all_lent(self) -> list[Chunk]:
        return [chunk for start in self._starts for chunk in self.segments[start].chunks() if chunk.lent]

    def _new_segment(self, pool: ChunkPool, size: int, stream: int) -> Chunk | None:
        source = pool.owner.source
        if self._settings.expandable_segments and source is None:
            found: Chunk | None = self._unseen(partial(self._expandable.room, pool, size, stream, _is_free))
            return found
        nbytes = segment_size(size)
        if self.limit is not None and self.statistics.current("reserved_bytes") + nbytes > self.limit:
            return None
        ask = partial(self.driver.cuMemAlloc, nbytes) if source is None else partial(source.allocate, nbytes, self.index, stream)  # fmt: skip
        try:
            address = self._unseen(ask)
        except CudaError as error:
            if error.name != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            return None
        return self.add_segment(Segment(address, nbytes, pool, stream), nbytes).first if address else None

    def add_segment(self, segment: Segment, nbytes: int) -> Segment:
        """A segment more, which has so many bytes of memory."""
        self.segments[segment.address] = segment
        insort(self._starts, segment.address)
        segment.pool.owner.segments += 1
        self.statistics.add("segment", segment.pool.small, 1)
        if nbytes:
            self._count_memory(segment, nbytes, 1)
            if self.history.on:
                self.history.segment("segment_alloc", segment.address, nbytes, segment)
        return segment

    def drop_segment(self, segment: Segment, nbytes: int) -> None:
        """A segment less, which had so many bytes of memory."""
        del self.segments[segment.address]
        self._starts.remove(segment.address)
        segment.pool.owner.segments -= 1
        self.statistics.add("segment", segment.pool.small, -1)
        if nbytes:
            self._count_memory(segment, nbytes, -1)
            if self.history.on:
                self.history.segment("segment_free", segment.address, nbytes, segment)

    def count_mapped(self, segment: Segment, address: int, nbytes: int, sign: int) -> None:
        """Memory was mapped in a segment, or is not any longer."""
        self._count_memory(segment, nbytes, sign)
        if self.history.on:
            self.history.segment("segment_map" if sign > 0 else "segment_unmap", address, nbytes, segment)
        if sign < 0 and self.driver.marks is not None:
            self.driver.marks.forget(address, nbytes)

    def _count_memory(self, segment: Segment, nbytes: int, sign: int) -> None:
        if sign > 0:
            self.statistics.num_device_alloc += 1
        else:
            self.statistics.num_device_free += 1
        self.statistics.add("reserved_bytes", segment.pool.small, sign * nbytes)
        if nbytes >= self.settings.max_split_size:
            self.statistics.add_oversize("oversize_segments", sign)

    def _unseen(self, ask: Callable[[], Any]) -> Any:
        """Ask the driver for something that captures do not see."""
        self.devices.enter(self.index)
        with self.devices.unseen():
            return ask()

    def _collect_garbage(self, pool: ChunkPool, size: int) -> None:
        """Release free segments where memory beyond a share of the limit is held."""
        threshold = self.settings.garbage_collection_threshold
        if threshold and self.limit is not None and not self._capturing:
            if self.statistics.current("reserved_bytes") + segment_size(size) > threshold * self.limit:
                self._release_free([self.pools])

    # ***** giving segments back to the driver *****

    def _all_pools(self) -> list[Pools]:
        return [self.pools, *[p for p in self.private.values() if not p.users]]

    def empty_cache(self) -> None:
        """Give segments of which nothing is lent back to the driver."""
        with self._lock:
            self._take_freed()
            self._join_ready()
            if not self._capturing:
                self._await_uses()
                self._release_free(self._all_pools())

    def _await_uses(self) -> None:
        self.statistics.num_sync_all_streams += 1
        self._wait_for_late()
        while self._waiting:
            event, chunk = self._waiting.popleft()
            event.synchronize()
            self._passed(chunk)

    def _wait_for_late(self) -> None:
        late, self._late = self._late, []
        for chunk in late:
            self._wait_for_uses(chunk)

    def _release_free(self, among: list[Pools]) -> None:
        free = [c for pools in among for pool in (pools.small, pools.large) for c in pool.chunks()]
        whole = [c for c in free if not c.is_split or isinstance(c.segment, ExpandableSegment)]
        if not whole:
            return
        self.devices.enter(self.index)
        self.driver.cuCtxSynchronize()
        for chunk in whole:
            self._release(chunk)
        self.private = {k: p for k, p in self.private.items() if p.users or p.segments}

    def _release(self, chunk: Chunk) -> None:
        segment, source = chunk.segment, chunk.segment.pool.owner.source
        if isinstance(segment, ExpandableSegment):
            return self._expandable.release(chunk)
        segment.pool.remove(chunk)
        if source is None:
            self.driver.cuMemFree(segment.address)
        else:
            source.release(segment.address, segment.nbytes, self.index, segment.stream)
        self._forget_segment(segment)

    def _forget_segment(self, segment: Segment) -> None:
        if self.driver.marks is not None:
            self.driver.marks.forget(segment.address, segment.nbytes)
        self.drop_segment(segment, segment.nbytes)

    # ***** memory pools *****

    def _pools_for(self, stream: CudaStream) -> Pools:
        for pools, takes in reversed(self._routes):
            if takes(stream):
                return pools
        return self.pools

    def hold(self, identity: tuple[int, int]) -> Pools:
        """The memory pool of an identity, made where there is none, for one user more."""
        with self._lock:
            pools = self.private.setdefault(identity, Pools(identity))
            pools.users += 1
            return pools

    def leave(self, identity: tuple[int, int]) -> None:
        """A user less; without users its memory can be released."""
        with self._lock:
            pools = self.private.get(identity)
            if pools is not None:
                pools.users -= 1

    def route(self, pools: Pools, takes: Callable[[CudaStream], Any], capturing: bool = True) -> None:
        """Let requests on streams that `takes` says yes to be served from a memory pool.

        While a capture goes on (`capturing`), nothing is asked of the driver that would spoil it.
        """
        with self._lock:
            self._routes.append((pools, takes))
            self._capturing += capturing
            self._changed()

    def end_route(self, pools: Pools, capturing: bool = True) -> None:
        """Take that back."""
        with self._lock:
            at = next(i for i in reversed(range(len(self._routes))) if self._routes[i][0] is pools)
            del self._routes[at]
            self._capturing -= capturing
            self._changed()
            if not self._capturing:
                self._wait_for_late()

    # ***** looking *****

    def set_fraction(self, fraction: float) -> None:
        """Let the process reserve at most this share of the device's memory."""
        self.limit = int(fraction * self.driver.cuDeviceTotalMem(self.index))

    def segment_at(self, address: int) -> Segment | None:
        """The segment in which an address lies."""
        at = bisect_right(self._starts, address) - 1
        found = self.segments.get(self._starts[at]) if at >= 0 else None
        return found if found is not None and address < found.address + found.nbytes else None

    def chunk_at(self, address: int) -> Chunk | None:
        """The lent chunk in which an address lies."""
        segment = self.segment_at(address)
        for chunk in segment.chunks() if segment is not None else ():
            if chunk.address <= address < chunk.address + chunk.nbytes:
                return chunk if chunk.lent else None
        return None

    def settled(self) -> Statistics:
        """The statistics, after what is freed was counted."""
        with self._lock:
            self._take_freed()
            self._join_ready()
            if not self._capturing:
                self._look_at_waiting()
        return self.statistics

    def snapshot(self) -> list[tuple[Segment, list[Chunk]]]:
        """The segments by address, each with its chunks; one with holes several times, for each stretch of memory."""
        self.settled()
        return [(self.segments[start], part) for start in self._starts for part in self.segments[start].stretches()]


def _is_free(chunk: Chunk) -> bool:
    return chunk.mapped and chunk.unit is None and not chunk.lent and not chunk.waits and not chunk.uses
