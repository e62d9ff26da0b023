"""Shared memory: places for the buffers of a kernel, and the barriers between those who write and those who read.

Buffers that are not alive at the same time may share bytes.  A barrier stands before an access that touches bytes which
another thread may have written, or before a write of bytes which another may have read, since the last barrier.  Where
one in front of a loop spares some in its turns, it stands there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .form import Body, Buffer, Instruction, ThreadKernel

__all__ = ["place_shared"]

ALIGNMENT = 128
PLENTY = 8192  # below this many bytes nothing is shared, which saves barriers

_READS = frozenset({"shared_load", "matrix_load"})
_WRITES = frozenset({"shared_store"})


def place_shared(kernel: ThreadKernel) -> None:
    """Set the offsets of buffers and the kernel's size of shared memory; insert barriers."""
    spans = _spans(kernel.body)
    total = sum(_aligned(buffer.size) for buffer in spans)
    if total <= PLENTY:
        whole = (0, max((last for _, last in spans.values()), default=0))
        spans = dict.fromkeys(spans, whole)
    placed: list[Buffer] = []
    for buffer in sorted(spans, key=lambda b: -b.size):
        first, last = spans[buffer]
        taken = sorted(
            (o.offset, o.offset + _aligned(o.size)) for o in placed if spans[o][0] <= last and first <= spans[o][1]
        )
        offset = 0
        for low, high in taken:
            if offset + buffer.size <= low:
                break
            offset = -(-max(offset, high) // buffer.align) * buffer.align
        buffer.offset = offset
        placed.append(buffer)
    kernel.shared = max((b.offset + b.size for b in placed), default=0)
    _Barriers().walk(kernel.body, _State(), insert=True)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _spans(body: Body) -> dict[Buffer, tuple[int, int]]:
    """For each buffer the numbers of the first and the last instruction between which it is alive."""
    loops: list[tuple[int, int]] = []
    uses: dict[Buffer, list[int]] = {}
    barriers: set[Buffer] = set()  # objects of the hardware: nothing else may lie there, once they are made
    count = 0

    def visit(body: Body) -> None:
        nonlocal count
        for instruction in body.instructions:
            count += 1
            start = count
            if "buffer" in instruction.attributes:
                uses.setdefault(instruction.attributes["buffer"], []).append(count)
            if instruction.kind == "mbarrier_init":
                barriers.add(instruction.attributes["buffer"])
            for inner in instruction.bodies:
                visit(inner)
            if instruction.kind in ("for", "while", "roles"):
                loops.append((start, count))
            if instruction.kind == "roles":  # warps that copy use their bytes at any time
                for inner in instruction.bodies[0].walk():
                    if "buffer" in inner.attributes:
                        uses[inner.attributes["buffer"]] += [start, count]

    visit(body)
    spans = {}
    for buffer, places in uses.items():
        first, last = min(places), max(places)
        for start, end in loops:  # inner loops come first
            inside = start <= first and last <= end
            if not inside and first <= end and start <= last:
                first, last = min(first, start), max(last, end)
        spans[buffer] = (first, count if buffer in barriers else last)
    return spans


Span = tuple[int, int]


class _State:
    """Bytes that were read, written, added to, and are being copied to, since the last barrier."""

    def __init__(self) -> None:
        self.read: set[Span] = set()
        self.written: set[Span] = set()
        self.added: set[Span] = set()
        self.copying: set[Span] = set()

    def copy(self) -> _State:
        made = _State()
        made.join(self)
        return made

    def join(self, other: _State) -> None:
        self.read |= other.read
        self.written |= other.written
        self.added |= other.added
        self.copying |= other.copying

    def key(self) -> tuple[frozenset[Span], ...]:
        return tuple(frozenset(s) for s in (self.read, self.written, self.added, self.copying))

    def clear(self) -> None:
        self.read, self.written, self.added = set(), set(), set()

    def touches(self, kind: str, span: Span) -> bool:
        """Whether an access conflicts with one before it."""
        others: list[Any] = [self.written, self.copying]
        if kind != "read":
            others.append(self.read)
        if kind != "add":
            others.append(self.added)
        return any(low < span[1] and span[0] < high for other in others for low, high in other)


class _Barriers:
    """Inserts barriers where they are needed."""

    def __init__(self) -> None:
        self.count = 0  # of barriers that were found to be needed

    def walk(self, body: Body, state: _State, insert: bool) -> _State:
        made: list[Instruction] = []
        for instruction in body.instructions:
            for before in self._before(instruction, state):
                made.append(before)
            state = self._through(instruction, state, insert)
            made.append(instruction)
        if insert:
            body.instructions = made
        return state

    def _before(self, instruction: Instruction, state: _State) -> Iterator[Instruction]:
        access = _access(instruction)
        if access is not None and state.touches(*access) or self._spares(instruction, state):
            state.clear()
            self.count += 1
            yield Instruction("barrier", [], [], {}, line=instruction.line)

    def _spares(self, instruction: Instruction, state: _State) -> bool:
        """Whether a barrier in front of a loop spares some inside."""
        if instruction.kind not in ("for", "while"):
            return False
        fresh = state.copy()
        fresh.clear()
        return fresh.key() != state.key() and self._inside(instruction, fresh) < self._inside(instruction, state)

    def _inside(self, loop: Instruction, state: _State) -> int:
        """How many barriers stand in a loop that begins in a state."""
        counting = _Barriers()
        entry = counting.entry(loop, state)
        counting.count = 0
        counting._turn(loop, entry, insert=False)
        return counting.count

    def _through(self, instruction: Instruction, state: _State, insert: bool) -> _State:
        kind = instruction.kind
        if kind == "barrier":
            state.clear()
        elif kind == "copy_wait":
            state.written |= state.copying
            if instruction.attributes["pending"] == 0:
                state.copying = set()
        elif instruction.bodies:
            return self._control(instruction, state, insert)
        access = _access(instruction)
        if access is not None:
            name = (
                "copying" if kind == "copy_async" else {"read": "read", "write": "written", "add": "added"}[access[0]]
            )
            getattr(state, name).add(access[1])
        return state

    def _control(self, instruction: Instruction, state: _State, insert: bool) -> _State:
        if instruction.kind == "if":
            ends = [self.walk(body, state.copy(), insert) for body in instruction.bodies]
            for end in ends[1:]:
                ends[0].join(end)
            return ends[0]
        end = self._turn(instruction, self.entry(instruction, state), insert)
        end.join(state)
        return end

    def entry(self, loop: Instruction, state: _State) -> _State:
        """The state in which turns of a loop begin: what a turn leaves is there at the begin of the next."""
        entry = state.copy()
        while True:
            before = entry.key()
            entry.join(self._turn(loop, entry.copy(), insert=False))
            if entry.key() == before:
                return entry

    def _turn(self, instruction: Instruction, state: _State, insert: bool) -> _State:
        for body in instruction.bodies:
            state = self.walk(body, state, insert)
        return state


def _access(instruction: Instruction) -> tuple[str, Span] | None:
    buffer = instruction.attributes.get("buffer")
    if buffer is None or instruction.attributes.get("ring"):  # who stages tiles in a ring places barriers of its own
        return None
    span = (buffer.offset, buffer.offset + buffer.size)
    kind = instruction.kind
    return ("read" if kind in _READS else "add" if kind == "shared_add" else "write"), span
