"""Shared memory for what a worker sends: taken in chunks, filled one behind the other, and used again when the main
process is done with it.

A chunk counts who uses it: tensors in the worker, and storages in the main process, which reports those that are gone.
Nothing that somebody can still see is written again.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

from rushlight import Tensor, device
from rushlight._interface.devices import host
from rushlight._interface.memory import MEMORY
from rushlight._interface.processes import SharedBlock, tensor_in
from rushlight._interface.tensors import Spec

__all__ = ["Arena", "Chunk"]

_CPU = device("cpu")

# Sizes of the chunks that tensors share, and up to which size they do; larger ones get a chunk of their own. Few bytes
# do not share with many: programs like to keep labels, and what is kept keeps its whole chunk.
_SHARED = ((1 << 11, 1 << 16), (1 << 18, 1 << 20))
_LINE = 64
_SPARE = 16  # chunks that are kept for later
_OPEN = 64  # chunks up to which descriptors are kept open, so that what lies in them can be handed to further processes


class Chunk:
    """A shared block that is filled from its start."""

    __slots__ = ("block", "fill", "known", "number", "users")

    def __init__(self, number: int, block: SharedBlock) -> None:
        self.number = number
        self.block = block
        self.fill = 0
        self.users = 0
        self.known = False  # to the main process


class _Part:
    """Owns a storage in the worker: its end is told to the arena."""

    __slots__ = ("arena", "chunk")

    def __init__(self, arena: Arena, chunk: Chunk) -> None:
        self.arena = arena
        self.chunk = chunk

    @property
    def shared_block(self) -> SharedBlock:
        return self.chunk.block

    def __del__(self) -> None:
        self.arena._gone.append(self.chunk)


class Arena:
    """The chunks of one worker."""

    def __init__(self) -> None:
        self.chunks: dict[int, Chunk] = {}
        # What the main process has to be told with the next message.
        self.unknown: list[Chunk] = []
        self.forgotten: list[int] = []
        self._gone: deque[Chunk] = deque()
        self._free: list[Chunk] = []
        self._current: dict[int, Chunk] = {}
        self._numbers = 0
        self._foreign: dict[int, Chunk] = {}

    # ***** taking *****

    def take(self, nbytes: int) -> tuple[Chunk, int]:
        """Room for so many bytes: the chunk, whose users become one more, and the place in it."""
        while self._gone:
            self._release(self._gone.popleft(), 1)
        for most, size in _SHARED:
            if nbytes <= most:
                chunk = self._current.get(size)
                if chunk is None or chunk.fill + nbytes > size:
                    chunk = self._next(size)
                at, chunk.fill = chunk.fill, chunk.fill + -(-nbytes // _LINE) * _LINE
                break
        else:
            chunk, at = self._chunk(nbytes), 0
        chunk.users += 1
        return chunk, at

    def _next(self, size: int) -> Chunk:
        """Another chunk to be shared, as the last one is full."""
        full = self._current.pop(size, None)
        if full is not None and not full.users:
            self._free.append(full)
        chunk = self._current[size] = self._chunk(size)
        return chunk

    def _chunk(self, nbytes: int) -> Chunk:
        """A chunk that nobody uses: the best fitting one that is free, or a new one."""
        fitting = [chunk for chunk in self._free if nbytes <= chunk.block.nbytes <= 4 * nbytes]
        if fitting:
            chunk = min(fitting, key=lambda c: c.block.nbytes)
            self._free.remove(chunk)
            chunk.fill = 0
            return chunk
        step = max(1 << max(nbytes.bit_length() - 3, 0), 4096)  # sizes in a few classes, for batches of varying length
        return self._new(SharedBlock(-(-nbytes // step) * step))

    def _new(self, block: SharedBlock) -> Chunk:
        self._numbers += 1
        chunk = self.chunks[self._numbers] = Chunk(self._numbers, block)
        self.unknown.append(chunk)
        return chunk

    # ***** giving back *****

    def returned(self, numbers: Counter[int]) -> None:
        """The main process has no more need of so many parts of these chunks."""
        for number, times in numbers.items():
            chunk = self.chunks.get(number)
            if chunk is not None:
                self._release(chunk, times)

    def _release(self, chunk: Chunk, times: int) -> None:
        chunk.users -= times
        if chunk.users:
            return
        if chunk in self._current.values():
            chunk.fill = 0
        elif id(chunk.block) in self._foreign:
            self._forget(self._foreign.pop(id(chunk.block)))
        else:
            self._free.append(chunk)
            if len(self._free) > _SPARE:
                self._forget(self._free.pop(0))

    def _forget(self, chunk: Chunk) -> None:
        del self.chunks[chunk.number]
        if chunk.known:
            self.forgotten.append(chunk.number)

    def announced(self, chunk: Chunk) -> None:
        """The main process has the chunk's descriptor."""
        chunk.known = True
        if len(self.chunks) > _OPEN and id(chunk.block) not in self._foreign:
            chunk.block.close_handle()

    # ***** storages and tensors *****

    def storage(self, nbytes: int) -> Any:
        """A storage of so many bytes."""
        chunk, at = self.take(nbytes)
        return MEMORY.from_owner(chunk.block.address + at, nbytes, _Part(self, chunk))

    def copy(self, address: int, nbytes: int) -> Any:
        """A storage with a copy of these bytes."""
        made = self.storage(nbytes)
        host().copy(made.ptr, address, nbytes, _CPU)
        return made

    def empty(self, spec: Spec) -> Tensor:
        """A tensor whose elements are still to be written."""
        chunk, at = self.take(spec.nbytes)
        return tensor_in(_Part(self, chunk), chunk.block.address + at, spec.nbytes, spec)

    def chunk_of(self, storage: Any, block: SharedBlock) -> Chunk:
        """The chunk that a storage in shared memory lies in, with one user more: one of ours, or a block that the
        program made itself.
        """
        owner = storage.owner
        while type(owner) is type(storage):
            owner = owner.owner
        if type(owner) is _Part and owner.arena is self:
            chunk = owner.chunk
        else:
            found = self._foreign.get(id(block))
            chunk = found if found is not None else self._foreign.setdefault(id(block), self._new(block))
        chunk.users += 1
        return chunk
