"""The caching allocator: what is cut from segments, who gets it again and when, and what it says when nothing is left."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from tests.cuda.driver.machines import Machine

from rushlight._backends.cuda.memory.allocator import Allocator
from rushlight._backends.cuda.memory.pinned import PinnedMemory
from rushlight._backends.cuda.memory.settings import Settings, parse
from rushlight._base.errors import OutOfMemoryError
from rushlight._types.device import Device

MB = 1 << 20


class Heap:
    """An allocator on an emulated device, and its streams."""

    def __init__(self, memory: int = 256 * MB, text: str = "", seed: int = 0) -> None:
        self.machine = Machine(memory=memory, seed=seed)
        self.driver, self.streams = self.machine.driver, self.machine.streams
        self.allocator = Allocator(self.machine.devices, 0, parse(text))
        self.main = self.streams.default[0]
        self.side = self.streams.new(Device("cuda", 0))

    def take(self, nbytes: int, stream: Any = None) -> Any:
        return self.allocator.allocate(nbytes, self.main if stream is None else stream)

    def stat(self, name: str, kind: str = "current", pool: str = "all") -> int:
        found: int = self.allocator.settled().nested()[name][pool][kind]
        return found


def test_segments_by_size() -> None:
    for nbytes, reserved in (
        (1, 2 * MB),
        (MB, 2 * MB),
        (MB + 1, 20 * MB),
        (9 * MB, 20 * MB),
        (10 * MB - 1, 10 * MB),
        (11 * MB, 12 * MB),
    ):
        heap = Heap()
        heap.take(nbytes)
        assert heap.stat("reserved_bytes") == reserved, nbytes


def test_chunks_are_cut_and_joined() -> None:
    heap = Heap()
    chunks = [heap.take(1000) for _ in range(4)]
    assert [b.address - a.address for a, b in pairwise(chunks)] == [1024] * 3
    assert (
        heap.stat("reserved_bytes") == 2 * MB
        and heap.stat("allocated_bytes") == 4096
        and heap.stat("requested_bytes") == 4000
    )
    for k in (1, 3, 0, 2):
        heap.allocator.free(chunks[k])
    assert heap.stat("allocated_bytes") == 0 and heap.stat("inactive_split_bytes") == 0
    assert [c.nbytes for _, chunks in heap.allocator.snapshot() for c in chunks] == [2 * MB]
    assert heap.take(2000).address == chunks[0].address  # at once, whatever the stream does


def test_the_smallest_that_fits_is_taken() -> None:
    heap = Heap()
    big, keep, small, _ = heap.take(4096), heap.take(512), heap.take(1024), heap.take(512)
    heap.allocator.free(big)
    heap.allocator.free(small)
    assert heap.take(1000).address == small.address and heap.take(1000).address == big.address
    assert keep.lent


def test_a_stream_gets_no_chunk_of_another() -> None:
    heap = Heap()
    first = heap.take(4096)
    heap.allocator.free(first)
    other = heap.take(4096, heap.side)
    assert heap.allocator.segment_at(other.address) is not heap.allocator.segment_at(first.address)


@pytest.mark.parametrize("seed", range(4))
def test_a_chunk_that_a_further_stream_uses_waits_for_it(seed: int) -> None:
    heap = Heap(seed=seed)
    ran: list[int] = []
    chunk = heap.take(4096)
    heap.driver.cuLaunchHostFunc(heap.side.id, lambda: ran.append(1))
    heap.allocator.record(chunk, heap.side)
    heap.allocator.record(chunk, heap.main)  # its own stream needs no word
    heap.allocator.free(chunk)
    while heap.take(4096).address != chunk.address:
        pass
    assert ran == [1]


def test_memory_goes_back_to_the_driver() -> None:
    heap = Heap()
    small, large = heap.take(100), heap.take(30 * MB)
    heap.allocator.free(large)
    free = heap.driver.cuMemGetInfo()[0]
    heap.allocator.empty_cache()
    assert heap.driver.cuMemGetInfo()[0] == free + 30 * MB and heap.stat("segment") == 1
    heap.allocator.free(small)
    heap.allocator.empty_cache()
    assert heap.driver.cuMemGetInfo()[0] == heap.driver.cuMemGetInfo()[1]
    assert heap.allocator.statistics.num_device_alloc == heap.allocator.statistics.num_device_free == 2


def test_what_is_kept_is_given_up_before_a_request_fails() -> None:
    heap = Heap(memory=64 * MB)
    for chunk in [heap.take(30 * MB), heap.take(20 * MB)]:
        heap.allocator.free(chunk)
    del chunk
    assert heap.stat("reserved_bytes") == 50 * MB
    assert heap.take(60 * MB).nbytes == 60 * MB and heap.allocator.statistics.num_alloc_retries == 1


def test_a_shortage_says_who_holds_what() -> None:
    heap = Heap(memory=64 * MB)
    kept = [heap.take(24 * MB), heap.take(16 * MB)]
    with pytest.raises(OutOfMemoryError) as met:
        heap.take(40 * MB)
    text = str(met.value)
    assert (
        "CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 64.00 MiB of which 24.00 MiB is free."
        in text
    )
    assert "40.00 MiB is held by 2 tensors" in text and "40.00 MiB made at " in text and "test_allocator.py" in text
    assert heap.allocator.statistics.num_ooms == 1 and all(c.lent for c in kept)


def test_a_process_may_be_limited() -> None:
    heap = Heap(memory=64 * MB)
    heap.allocator.set_fraction(0.5)
    heap.take(30 * MB)
    with pytest.raises(OutOfMemoryError, match=r"limited to 32.00 MiB by a memory fraction"):
        heap.take(4 * MB)


def test_pools_serve_who_they_are_routed_to() -> None:
    heap = Heap()
    pools = heap.allocator.hold((7, 0))
    heap.allocator.route(pools, lambda stream: stream is heap.side, capturing=False)
    inside, outside = heap.take(4096, heap.side), heap.take(4096)
    heap.allocator.end_route(pools, capturing=False)
    assert inside.segment.pool.owner is pools and outside.segment.pool.owner is heap.allocator.pools
    heap.allocator.free(inside)
    assert heap.take(4096, heap.side).segment.pool.owner is heap.allocator.pools
    heap.allocator.empty_cache()
    assert heap.allocator.segment_at(inside.address) is not None  # somebody holds the pool
    heap.allocator.leave((7, 0))
    heap.allocator.empty_cache()
    assert heap.allocator.segment_at(inside.address) is None and (7, 0) not in heap.allocator.private


@pytest.mark.parametrize("seed", range(3))
def test_chunks_never_overlap_and_the_books_agree(seed: int) -> None:
    """Random requests of two streams beside a plain list of what is lent."""
    heap, draw = Heap(seed=seed), random.Random(seed)
    lent: list[tuple[Any, int]] = []
    for _ in range(600):
        if lent and draw.random() < 0.5:
            heap.allocator.free(lent.pop(draw.randrange(len(lent)))[0])
            continue
        nbytes = draw.choice((1, 513, 4096, 300_000, MB, MB + 1, 3 * MB, 10 * MB))
        if sum(n for _, n in lent) + nbytes < 60 * MB:
            chunk = heap.take(nbytes, draw.choice((heap.main, heap.side)))
            if draw.random() < 0.1:
                heap.allocator.record(chunk, draw.choice((heap.main, heap.side)))
            lent.append((chunk, nbytes))
    spans = sorted((c.address, c.address + n) for c, n in lent)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    segments = [segment for segment, _ in heap.allocator.snapshot()]
    for segment in segments:
        chunks = segment.chunks()
        assert sum(c.nbytes for c in chunks) == segment.nbytes
        assert all(a.address + a.nbytes == b.address and b.before is a for a, b in pairwise(chunks))
    assert heap.stat("requested_bytes") == sum(n for _, n in lent) and heap.stat("allocation") == len(lent)
    assert heap.stat("reserved_bytes") == sum(s.nbytes for s in segments)
    for name in (
        "allocation",
        "segment",
        "active",
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "inactive_split_bytes",
    ):
        both = [heap.stat(name, pool=pool) for pool in ("small_pool", "large_pool")]
        assert sum(both) == heap.stat(name) == heap.stat(name, "allocated") - heap.stat(name, "freed"), name
    for chunk, _ in lent:
        heap.allocator.free(chunk)
    heap.allocator.empty_cache()
    assert heap.driver.cuMemGetInfo()[0] == heap.driver.cuMemGetInfo()[1]
    assert not any(heap.stat(n) for n in ("allocation", "segment", "active", "inactive_split", "active_bytes"))


def test_peaks_and_sums_can_be_reset() -> None:
    heap = Heap()
    heap.allocator.free(heap.take(MB))
    assert heap.stat("allocated_bytes", "peak") == MB and heap.stat("allocated_bytes", "freed") == MB
    heap.allocator.statistics.reset_peaks()
    heap.allocator.statistics.reset_accumulated()
    assert not any(heap.stat("allocated_bytes", kind) for kind in ("current", "peak", "allocated", "freed"))


# ***** settings *****


def test_sizes_are_rounded_as_asked() -> None:
    assert Settings().rounded(513) == 1024 and Settings().rounded(0) == 512
    four = parse("roundup_power2_divisions:4")
    assert [four.rounded(n * 1024) >> 10 for n in (1200, 1024, 1300, 2000)] == [1280, 1024, 1536, 2048]
    some = parse("roundup_power2_divisions:[1:8,>:2]")
    assert some.rounded(900 * 1024) == 960 * 1024 and some.rounded(2500 * 1024) == 3 * MB
    # An entry is for sizes from its own to the next power of two, as PyTorch's table has it.
    table = parse("roundup_power2_divisions:[64:8,128:2,256:4,>:1]")
    assert [table.rounded(n * MB) // MB for n in (33, 84, 200, 300, 600)] == [36, 88, 256, 320, 600]


def test_large_chunks_are_not_split() -> None:
    heap = Heap(text="max_split_size_mb:32")
    chunk = heap.take(40 * MB)
    heap.allocator.free(chunk)
    heap.take(8 * MB)  # not from the large one
    assert heap.stat("reserved_bytes") == 60 * MB
    assert heap.allocator.settled().nested()["oversize_segments"]["current"] == 1
    assert heap.take(36 * MB).address == chunk.address  # which is near enough in size


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no_such:1", "Unrecognized CachingAllocator option: no_such"), ("max_split_size_mb:5", "too small, must be > 20"),
        ("garbage_collection_threshold:2", r"set it in \(0.0, 1.0\)"), ("backend:cudaMallocAsync", "one allocator for CUDA, 'native'"),
        ("roundup_power2_divisions:3", "power of 2"), ("max_split_size_mb", "Unrecognized"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


def test_settings_without_effect_say_so() -> None:
    with pytest.warns(UserWarning, match="pinned_num_register_threads:4 has no effect"):
        parse("pinned_num_register_threads:4,garbage_collection_threshold:0.8")


def test_garbage_is_collected_above_a_share_of_the_limit() -> None:
    heap = Heap(memory=128 * MB, text="garbage_collection_threshold:0.5,per_process_memory_fraction:1.0")
    heap.allocator.free(heap.take(40 * MB))
    heap.take(50 * MB)
    assert heap.stat("reserved_bytes") == 50 * MB


# ***** pinned memory *****


def test_pinned_memory_is_kept_until_streams_have_read_it() -> None:
    heap = Heap()
    memory = PinnedMemory(heap.machine.devices)
    block = memory.allocate(1000)
    assert block.size == 1024 and memory.is_pinned(block.address + 999) and not memory.is_pinned(id(memory))
    for _ in range(50):
        heap.driver.cuLaunchHostFunc(heap.side.id, lambda: None)
    assert memory.block_at(block.address + 4) is block and memory.block_at(id(memory)) is None
    block.uses.add(heap.side)
    address = block.address
    del block
    other = memory.allocate(1000)
    assert other.address != address
    heap.side.synchronize()
    assert memory.allocate(600).address == address
    del other
    memory.empty_cache()
    assert memory.statistics.current("reserved_bytes") == 0  # nobody showed the last one


@pytest.mark.parametrize("seed", range(4))
def test_segments_that_grow_serve_whatever_is_asked(seed: int) -> None:
    """Random requests, frees and releases: chunks never overlap, each lies in memory, and numbers add up."""
    heap, draw, lent = Heap(text="expandable_segments:True", seed=seed), random.Random(seed), []
    for _ in range(150):
        turn = draw.random()
        if turn < 0.45 or not lent:
            nbytes = draw.choice((100, 3000, 2 * MB, 7 * MB, 21 * MB, 45 * MB))
            if sum(n for _, n in lent) + nbytes < 120 * MB:
                lent.append((heap.take(nbytes, draw.choice((heap.main, heap.side))), nbytes))
        elif turn < 0.9:
            chunk, _ = lent.pop(draw.randrange(len(lent)))
            heap.allocator.free(chunk)
        else:
            heap.allocator.empty_cache()
        spans = sorted((c.address, c.address + n) for c, n in lent)
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    for chunk, nbytes in lent:
        heap.driver.cuMemsetD8Async(chunk.address, 1, nbytes, 0)  # CudaError for what is not mapped
    held = sum(c.nbytes for _, chunks in heap.allocator.snapshot() for c in chunks)
    free, total = heap.driver.cuMemGetInfo()
    assert held == heap.stat("reserved_bytes") == total - free
    for chunk, _ in lent:
        heap.allocator.free(chunk)
    heap.allocator.empty_cache()
    assert heap.stat("reserved_bytes") == heap.stat("segment") == 0 and heap.driver.cuMemGetInfo() == (total, total)


def test_emptying_waits_for_the_uses_by_other_streams_once() -> None:
    heap = Heap()
    before = heap.allocator.statistics.num_sync_all_streams
    heap.allocator.empty_cache()
    assert heap.allocator.statistics.num_sync_all_streams == before + 1
