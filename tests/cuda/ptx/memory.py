"""State spaces: global memory, shared memory of a block with what is known of each byte, memory of a thread, parameters.

An address of 64 bits without a space is a generic one: windows at the top of the address space stand for shared, local and
parameter memory; the rest is global.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .parser import PtxError

__all__ = [
    "BASE",
    "LOCAL_WINDOW",
    "PARAM_WINDOW",
    "SHARED_BASE",
    "SHARED_WINDOW",
    "GlobalMemory",
    "LocalMemory",
    "SharedMemory",
    "Space",
]

Array = Any

BASE = 0x7000_0000_0000  # of global memory
GAP = 4096  # bytes between arrays that nothing may touch
SHARED_WINDOW, LOCAL_WINDOW, PARAM_WINDOW = (k << 56 for k in (1, 2, 3))
WINDOW_BITS = 56
SHARED_BASE = 1024  # the driver keeps the first kilobyte of a block's shared memory
UNWRITTEN = 0xA7


class Space:
    """Bytes from a base on; `valid` tells which exist."""

    name = "memory"

    def __init__(self, size: int, base: int) -> None:
        size = -(-size // 1024) * 1024
        room = np.full(size + 64, UNWRITTEN, np.uint8)
        start = -room.ctypes.data % 64
        self.data, self.base = room[start : start + size], base
        self.valid = np.zeros(size, np.bool_)

    def places(self, addresses: Array, width: int) -> Array:
        """Offsets of accesses of `width` bytes; PtxError where one is misaligned or outside."""
        if (addresses % width).any():
            bad = int(addresses[addresses % width != 0][0])
            raise PtxError(f"an access of {width} bytes at {bad:#x} of {self.name} memory is not aligned")
        offsets = addresses.astype(np.int64) - self.base
        inside = (offsets >= 0) & (offsets + width <= len(self.data))
        if inside.all():
            inside = self.valid[offsets] & self.valid[offsets + (width - 1)]
        if not inside.all():
            bad = int(addresses[~inside][0])
            raise PtxError(f"an access of {width} bytes at {bad:#x} is outside of {self.name} memory")
        return offsets

    def load(self, offsets: Array, dtype: Any) -> Array:
        return self.data.view(dtype)[offsets // np.dtype(dtype).itemsize]

    def store(self, offsets: Array, values: Array) -> None:
        self.data.view(values.dtype)[offsets // values.dtype.itemsize] = values

    def bytes_of(self, offsets: Array, count: int) -> Array:
        """`count` bytes from each offset on, a row each."""
        return self.data[offsets[..., None] + np.arange(count)]


class GlobalMemory(Space):
    """Arrays with gaps between them.

    Blocks run one after the other here, but not on a card: what one wrote another may read only if the writer released it behind the
    write, and the reader acquired before the read, for the whole card.
    """

    name = "global"

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(sum(-(-s // GAP) * GAP + GAP for s in sizes) + GAP, BASE)
        self.used = 0
        self.writer, self.released = np.zeros(len(self.data), np.int32), np.zeros(len(self.data), np.bool_)
        self.block, self.acquired = 0, False  # the block that runs, counted from one, and whether it acquired

    def block_begins(self) -> None:
        self.block += 1
        self.acquired = False

    def orders(self, semantics: set[str], scope: str) -> None:
        """The running block executes an operation with these semantics."""
        if scope == "cta":
            return
        if semantics & {"release", "acq_rel", "sc"}:
            self.released |= self.writer == self.block
        if semantics & {"acquire", "acq_rel", "sc"}:
            self.acquired = True

    def written(self, offsets: Array, width: int) -> None:
        at = offsets[:, None] + np.arange(width)
        self.writer[at], self.released[at] = self.block, False

    def seen(self, offsets: Array) -> None:
        """Loads of the running block."""
        by = self.writer[offsets]
        other = (by != 0) & (by != self.block)
        if other.any() and not (self.acquired and self.released[offsets[other]].all()):
            at = int(offsets[other][0]) + self.base
            raise PtxError(
                f"{at:#x} was written by another block, without a release behind it and an acquire before this load"
            )

    def put(self, data: bytes | Array, align: int = 256) -> int:
        """The address of a copy."""
        raw = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1).view(np.uint8)
        at = self.used = -(-self.used // align) * align
        self.data[at : at + len(raw)] = raw
        self.valid[at : at + len(raw)] = True
        self.used += -(-len(raw) // GAP) * GAP + GAP
        return self.base + at

    def get(self, address: int, like: Array) -> None:
        """Copy the bytes at an address into an array."""
        at = address - self.base
        like.reshape(-1).view(np.uint8)[:] = self.data[at : at + like.nbytes]


class LocalMemory:
    """Memory of each thread by itself: a row of bytes each."""

    def __init__(self, threads: int, size: int) -> None:
        self.data = np.full((threads, max(size, 16)), UNWRITTEN, np.uint8)

    def _columns(self, offsets: Array, width: int) -> Array:
        offsets = offsets.astype(np.int64)
        if (offsets % width).any() or (offsets < 0).any() or (offsets + width > self.data.shape[1]).any():
            raise PtxError(
                f"an access of {width} bytes at {int(offsets.ravel()[0]):#x} is outside of local memory, or not aligned"
            )
        return offsets[:, None] + np.arange(width)

    def load(self, threads: Array, offsets: Array, dtype: Any) -> Array:
        columns = self._columns(offsets, np.dtype(dtype).itemsize)
        return np.ascontiguousarray(self.data[threads[:, None], columns]).view(dtype)[:, 0]

    def store(self, threads: Array, offsets: Array, values: Array) -> None:
        columns = self._columns(offsets, values.dtype.itemsize)
        self.data[threads[:, None], columns] = np.ascontiguousarray(values)[:, None].view(np.uint8)


NOBODY, SEVERAL, ATOMIC = -1, -2, -3


class SharedMemory(Space):
    """Shared memory of a block.

    Of each byte is known who wrote it last and who read it since (threads, and how many barriers each had passed), whether a copy
    into it is under way, how many products in the background read it, and whether an ordinary write to it has not been fenced for
    the asynchronous proxy, by which bulk copies and `wgmma` see memory.
    """

    name = "shared"

    def __init__(self, size: int, threads: int) -> None:
        super().__init__(max(size, 16) + SHARED_BASE, 0)
        self.valid[SHARED_BASE : SHARED_BASE + size] = True
        count = len(self.data)
        self.writer, self.reader = (np.full(count, NOBODY, np.int32) for _ in range(2))
        self.written, self.was_read, self.warp_written, self.warp_read = (np.zeros(count, np.int32) for _ in range(4))
        self.epoch, self.warp_epoch = (
            np.zeros(threads, np.int32),
            np.zeros(threads, np.int32),
        )  # barriers that each thread passed
        self.under_way, self.unfenced, self.filled = (np.zeros(count, np.bool_) for _ in range(3))
        self.being_read = np.zeros(count, np.int16)
        self.barriers: dict[int, Any] = {}  # mbarrier objects by address
        self.holds_barrier = np.zeros(count, np.bool_)

    # ***** ordinary accesses *****

    def loaded(self, threads: Array, offsets: Array, width: int) -> None:
        """Check loads of threads, and remember them."""
        at = (offsets[:, None] + np.arange(width)).ravel()
        who = np.repeat(threads, width)
        self._usable(at)
        self._defined(at)
        self._ordered(at, who, self.writer, self.written, self.warp_written, "reads byte {} that thread {} wrote")
        self.reader[at] = np.where((self.reader[at] == who) | (self.was_read[at] < self.epoch[who]), who, SEVERAL)
        self.reader[at] = np.where(self.reader[at] == who, who, SEVERAL)  # two threads of this instruction
        self.was_read[at], self.warp_read[at] = self.epoch[who], self.warp_epoch[who]

    def stored(
        self, threads: Array, offsets: Array, width: int, atomic: bool = False, rows: Array | None = None
    ) -> None:
        """Check stores of threads, and remember them; `rows`: what each writes, for two may write the same at once."""
        at = (offsets[:, None] + np.arange(width)).ravel()
        who = np.repeat(threads, width)
        self._usable(at)
        if self.being_read[at].any():
            raise PtxError(
                f"byte {int(at[self.being_read[at] > 0][0]):#x} is written while products in the background read it"
            )
        plain = slice(None) if not atomic else self.writer[at] != ATOMIC
        first, of = at[plain], who[plain]
        self._ordered(first, of, self.writer, self.written, self.warp_written, "writes byte {} that thread {} wrote")
        self._ordered(first, of, self.reader, self.was_read, self.warp_read, "writes byte {} that thread {} read")
        self.writer[at] = ATOMIC if atomic else who
        twice = self.writer[at] != who
        if not atomic and twice.any() and not self._equal(at, rows):
            raise PtxError(f"two threads write byte {int(at[twice][0]):#x} of shared memory at once")
        self.written[at], self.warp_written[at] = self.epoch[who], self.warp_epoch[who]
        self.reader[at], self.unfenced[at], self.filled[at] = NOBODY, True, True

    def _equal(self, at: Array, rows: Array | None) -> bool:
        """Whether those who write one byte write the same."""
        if rows is None:
            return False
        written = np.zeros(len(self.data), np.uint8)
        written[at] = rows.ravel()
        return bool((written[at] == rows.ravel()).all())

    def _ordered(self, at: Array, who: Array, other: Array, epoch: Array, warp_epoch: Array, text: str) -> None:
        """Whether a barrier lies between accesses of other threads and these."""
        by = other[at]
        wrong = (by != NOBODY) & (by != who) & (epoch[at] >= self.epoch[who])
        if not wrong.any():
            return
        wrong &= ~((by >= 0) & (by // 32 == who // 32) & (warp_epoch[at] < self.warp_epoch[who]))
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise PtxError(f"thread {who[k]} {text.format(hex(at[k]), by[k])}, without a barrier between")

    def _usable(self, at: Array) -> None:
        if self.under_way[at].any():
            raise PtxError(
                f"byte {int(at[self.under_way[at]][0]):#x} of shared memory is used while a copy into it is under way"
            )
        if self.holds_barrier[at].any():
            raise PtxError(
                f"byte {int(at[self.holds_barrier[at]][0]):#x} of shared memory is part of an mbarrier object"
            )

    def _defined(self, at: Array) -> None:
        if not self.filled[at].all():
            raise PtxError(f"byte {int(at[~self.filled[at]][0]):#x} of shared memory is read, which nothing wrote")

    # ***** the asynchronous proxy *****

    def copy_begins(self, at: Array) -> None:
        """A bulk copy into bytes begins."""
        if self.under_way[at].any() or self.holds_barrier[at].any():
            raise PtxError(
                f"a copy into byte {int(at.ravel()[0]):#x} begins while another is under way, or a barrier lies there"
            )
        if self.being_read[at].any():
            raise PtxError(
                f"a copy into byte {int(at[self.being_read[at] > 0][0]):#x} begins while products in the background read it"
            )
        if self.unfenced[at].any():
            raise PtxError(
                f"a bulk copy into byte {int(at[self.unfenced[at]][0]):#x} follows an ordinary write without fence.proxy.async"
            )
        self.under_way[at] = True

    def copy_lands(self, at: Array) -> None:
        self.under_way[at], self.filled[at] = False, True
        self.writer[at] = self.reader[at] = NOBODY

    def read_by_products(self, at: Array) -> None:
        """Products in the background begin to read bytes."""
        if self.under_way[at].any():
            raise PtxError(
                f"products read byte {int(at[self.under_way[at]][0]):#x} before the copy into it was waited for"
            )
        if not self.valid[at].all():
            raise PtxError(f"products read byte {int(at[~self.valid[at]][0]):#x}, which is outside of shared memory")
        self._defined(at)
        if self.unfenced[at].any():
            raise PtxError(f"products read byte {int(at[self.unfenced[at]][0]):#x}, written without fence.proxy.async")
        self.being_read[at] += 1

    def fence_proxy(self, threads: Array) -> None:
        """What these threads wrote is there for the asynchronous proxy."""
        wrote = np.zeros(len(self.epoch) + 1, np.bool_)
        wrote[threads] = True
        self.unfenced &= ~(wrote[np.maximum(self.writer, -1)] & (self.writer >= 0))
