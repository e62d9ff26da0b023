"""Who asked for memory, and a record of what the allocator of a device did: `torch.cuda.memory._record_memory_history`.

Entries are dicts as PyTorch's viewer of memory reads them.  Stacks are code objects with instructions, innermost first;
they become lines when somebody looks.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rushlight._base.errors import PACKAGE

if TYPE_CHECKING:
    from rushlight._backends.cuda.memory.chunks import Chunk, Segment

__all__ = ["ACTIONS", "History", "Recording", "Stack"]

ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot",
)  # fmt: skip
_CONTEXTS = {None: 0, "state": 1, "alloc": 2, "all": 3}
Stack = Sequence[tuple[Any, int]]  # code objects and instructions


@dataclass(frozen=True)
class Recording:
    """A mode of recording: none, the `state` (stacks of held memory), or `all` events beside it."""

    enabled: str | None = None
    context: int = 0  # stacks: 0 none, 1 of what is held, 2 of events that lend memory, too, 3 of those that free it
    most: int = sys.maxsize  # events; the oldest are dropped
    skipped: frozenset[str] = frozenset()
    metadata: Callable[[], str] = str

    @staticmethod
    def asked(enabled: Any, context: Any, stacks: Any, most: int, skipped: Sequence[str], metadata: Any) -> Recording:
        """RuntimeError for words that mean nothing."""
        for word, known, what in (
            (enabled, (None, "state", "all"), "state"),
            (context, tuple(_CONTEXTS), "context"),
            (stacks, ("python", "all"), "stacks"),
        ):
            if word not in known:
                raise RuntimeError(f"expected {what} to be one of {', '.join(map(repr, known))}, but got {word!r}")
        for action in skipped:
            if action not in ACTIONS:
                raise RuntimeError(f"there is no action {action!r} to skip; there are {', '.join(ACTIONS)}")
        return Recording(enabled, _CONTEXTS[context] if enabled else 0, most, frozenset(skipped), metadata)


def _stack() -> Stack:
    """The program's stack from its innermost frame on, those of our package above it included."""
    frame: Any = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    found = []
    while frame is not None:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found


def _line(code: Any, instruction: int) -> int:
    lines = (n for begin, end, n in code.co_lines() if begin <= instruction < end and n is not None)
    return next(lines, code.co_firstlineno)


class History:
    """The record of one device's memory: stacks of held memory, and events."""

    def __init__(self) -> None:
        self.recording = Recording()
        self._stacks: dict[int, Stack] = {}  # who asked for what is held, by address
        self._segments: dict[int, Stack] = {}
        self._entries: deque[dict[str, Any]] = deque()

    @property
    def on(self) -> bool:
        """Whether anything is recorded."""
        return self.recording.enabled is not None

    def begin(self, recording: Recording, clear: bool) -> None:
        """Record this from now on; without anything to record, or with `clear`, earlier events are forgotten."""
        entries = () if clear or recording.enabled is None else self._entries
        self.recording = recording
        self._entries = deque(entries, recording.most if recording.most < sys.maxsize else None)
        if recording.enabled is None:
            self._stacks, self._segments = {}, {}

    def lend(self, chunk: Chunk, nbytes: int) -> None:
        """Memory was lent for a request of so many bytes."""
        stack = _stack() if self.recording.context else ()
        self._stacks[chunk.address] = stack
        self._note("alloc", chunk.address, nbytes, chunk.segment, stack if self.recording.context >= 2 else ())

    def give_back(self, chunk: Chunk) -> None:
        """Nobody shows it any longer."""
        self._stacks.pop(chunk.address, None)
        self._freed("free_requested", chunk)

    def complete(self, chunk: Chunk) -> None:
        """Nor does a stream use it: it can be lent again."""
        self._freed("free_completed", chunk)

    def _freed(self, action: str, chunk: Chunk) -> None:
        self._note(
            action, chunk.address, chunk.requested, chunk.segment, _stack() if self.recording.context >= 3 else ()
        )

    def segment(self, action: str, address: int, nbytes: int, segment: Segment) -> None:
        """The driver gave a segment, or has it back; or memory was mapped in one, or is not any longer."""
        stack = _stack() if self.recording.context else ()
        if action == "segment_alloc":
            self._segments[address] = stack
        elif action == "segment_free":
            self._segments.pop(address, None)
        self._note(action, address, nbytes, segment, stack if self.recording.context >= 2 else ())

    def shortage(self, nbytes: int, stream: int, free: int) -> None:
        """There was none; the driver had so many bytes left."""
        entry = self._entry("oom", nbytes, stream, (0, 0), _stack() if self.recording.context >= 2 else ())
        if entry is not None:
            entry["device_free"] = free

    def snapshot(self) -> None:
        """Somebody takes a picture."""
        entry = self._entry("snapshot", 0, 0, (0, 0), ())
        if entry is not None:
            entry["addr"] = 0

    def _note(self, action: str, address: int, nbytes: int, segment: Segment, stack: Stack) -> None:
        entry = self._entry(action, nbytes, segment.stream, segment.pool.owner.identity, stack)
        if entry is not None:
            entry["addr"] = address

    def _entry(
        self, action: str, nbytes: int, stream: int, pool: tuple[int, int], stack: Stack
    ) -> dict[str, Any] | None:
        if self.recording.enabled != "all" or action in self.recording.skipped:
            return None
        entry = {
            "action": action, "size": nbytes, "stream": stream, "pool_id": pool, "time_us": time.time_ns() // 1000, "compile_context": "N/A",
            "user_metadata": self.recording.metadata(), "frames": stack,
        }  # fmt: skip
        self._entries.append(entry)
        return entry

    # ***** looking *****

    @staticmethod
    def frames(stack: Stack) -> list[dict[str, Any]]:
        """A stack in the form of PyTorch's snapshots."""
        return [{"filename": c.co_filename, "line": _line(c, at), "name": c.co_name} for c, at in stack]

    def entries(self) -> list[dict[str, Any]]:
        """The events, the oldest first."""
        return [{**entry, "frames": self.frames(entry["frames"])} for entry in list(self._entries)]

    def stack_of(self, address: int) -> Stack | None:
        """Who asked for the chunk at an address; None where that was not recorded."""
        return self._stacks.get(address)

    def stack_of_segment(self, address: int) -> Stack:
        """For which call a segment was asked for."""
        return self._segments.get(address, ())
