"""The calls of a log on real memory, one after another, as they would have run without a recording.

`Replay` says what a program does without any pass: what is compiled must have its bits.  `known` finds elements that
follow from Python's numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rushlight._backends.registry import backend_of
from rushlight._capture.recording.log import Branch, Call, Check, Collective, Copy, Draw, Entry, Fill, Loop, Move, Read
from rushlight._capture.recording.running.host_numbers import HostNumber
from rushlight._engine.core.memory import MEMORY
from rushlight._types.symbols import pinned

__all__ = ["Replay", "known"]

COUNTER = 8  # bytes of an input from which numbers of the host may follow
SMALL = 4096  # bytes of memory whose contents are worth finding


class Replay:
    """Runs entries of a log; `place(memory)` gives the real memory of an input's as (address, what keeps it alive),
    None for memory to allocate.
    """

    def __init__(
        self,
        recording: Any,
        place: Callable[[Any], tuple[int, Any] | None],
        draw: Callable[[Draw, int], None] | None = None,
    ) -> None:
        self.recording, self.place, self.draw = recording, place, draw
        self.held: dict[int, tuple[int, Any]] = {}

    def address(self, address: int) -> int:
        """The real address of one in the log."""
        memory = self.recording.memory_at(address)
        found = self.held.get(memory.address)
        if found is None:
            found = self.place(memory)
            if found is None:
                device = memory.device.real
                storage = backend_of(device).allocate(pinned(memory.nbytes), device)
                found = storage.ptr, storage
            self.held[memory.address] = found
        return found[0] + address - memory.address

    def device(self, entry: Copy | Fill) -> Any:
        """The real device whose memory an entry writes."""
        return self.recording.memory_at(entry.address).device.real

    def run(self, log: Sequence[Entry]) -> None:
        """Run entries in order."""
        for entry in log:
            if type(entry) is Call:
                self._call(entry)
            elif type(entry) is Draw:
                assert self.draw is not None
                self.draw(entry, self.address(entry.address))
            elif type(entry) in (Check, Read):
                pass
            elif type(entry) is Fill:
                data = bytes(entry.nbytes) if entry.data is None else entry.data
                if entry.nbytes:
                    held = MEMORY.alloc(len(data))
                    memoryview(held).cast("B")[: len(data)] = data
                    backend_of(self.device(entry)).copy_in(self.address(entry.address), held.ptr, entry.nbytes)
            else:
                assert type(entry) is Copy
                target, source = self.address(entry.address), self.address(entry.source)
                device = self.device(entry)
                backend_of(device).copy(target, source, entry.nbytes, device)

    def _call(self, entry: Call) -> None:
        exe = entry.exe
        words = list(entry.words)
        for i in range(exe.n_tensors):
            words[i] = self.address(words[i])
        made = exe.real()(*words)
        fresh = made if type(made) is tuple else () if made is None else (made,)
        for address, storage in zip(entry.fresh, fresh, strict=True):
            self.held[address] = storage.ptr, storage


def known(recording: Any, address: int, nbytes: int) -> bytes | None:
    """The bytes at an address where they follow from numbers that the program itself has; None where they depend on
    anything else.
    """
    log: Sequence[Entry] = recording.log
    needed: set[int] = set()
    if not _collect(recording, address, len(log), needed):
        return None
    replay = Replay(recording, lambda memory: None)
    replay.run([log[k] for k in sorted(needed)])
    held = MEMORY.alloc(nbytes)
    device = recording.memory_at(address).device.real
    backend_of(device).copy_out(held.ptr, replay.address(address), nbytes)
    return bytes(memoryview(held).cast("B")[:nbytes])


def follows_from_counters(recording: Any, address: int) -> bool:
    """Whether the element at an address follows from inputs of one element alone."""
    return _collect(recording, address, len(recording.log), set(), COUNTER)


def _collect(recording: Any, address: int, before: int, needed: set[int], given: int = -1) -> bool:
    """Add the numbers of the entries that made the memory at an address what it is before entry `before`.

    False where one needs more than numbers, and inputs of at most `given` bytes.
    """
    memory = recording.memory_at(address)
    if memory.nbytes > (SMALL if memory.real is None else given):
        return False
    start, written = memory.address, False
    for k in reversed(recording.writers.get(start, ())):
        if k >= before:
            continue
        entry = recording.log[k]
        if isinstance(entry, (Branch, Collective, Draw, Loop, Move)):
            return False
        fresh = type(entry) is Call and start in entry.fresh
        whole = fresh or (type(entry) is Fill and entry.address == start and entry.nbytes >= memory.nbytes)
        if k not in needed:
            needed.add(k)
            sources = [entry.source] if type(entry) is Copy else []
            if type(entry) is Call:
                sources = list(entry.words[: entry.exe.n_tensors])
                if any(isinstance(word, HostNumber) and (given < 0 or word.computed) for word in entry.words):
                    return False
            if not all(_collect(recording, p, k, needed, given) for p in sources):
                return False
        if whole:
            return True
        written = True
    return written or memory.real is not None
