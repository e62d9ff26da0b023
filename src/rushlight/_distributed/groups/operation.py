"""An operation of a process group: its steps, how far it is, and who waits for it."""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

from rushlight._base.errors import describe_code, user_code, user_line
from rushlight._distributed.engines.mpi import error_text, function_address, source_of
from rushlight._distributed.engines.progress_native import BLOCK_WORDS, CODE, FIRST, FUNCTION, REQUEST, STATUS, TEST
from rushlight._distributed.errors import DistBackendError
from rushlight._distributed.groups.watch import WATCH

__all__ = ["Block", "Operation"]

_PACK = [Struct(f"{n}q") for n in range(FIRST + 12)]
_UNFINISHED: list[Any] = []  # failed operations, and memory of theirs that MPI may still write to
_CHANGING = threading.Lock()


class Block:
    """The memory in which one call at a time is described to native code."""

    __slots__ = ("address", "request", "words")

    def __init__(self) -> None:
        self.words = array("q", [0] * BLOCK_WORDS)
        self.address = self.words.buffer_info()[0]
        self.request = self.address + 8 * REQUEST
        self.words[TEST] = function_address("MPI_Test")

    def describe(self, words: tuple[int, ...]) -> None:
        """Fill in a call: a function and its arguments, and the request behind them."""
        _PACK[len(words) + 1].pack_into(self.words, FUNCTION, *words, self.request)

    @property
    def code(self) -> int:
        """The result of the last test of the request."""
        return self.words[CODE]


class Operation:
    """One collective or message on this process.

    `steps` are run one after the other: calls of the engine, and Python functions.  `inputs` and `outputs` are the specs
    of its tensors (or, for inputs, a function that gives their text); `keep` is what must live until the end.

    Times are seconds of the monotonic clock: `created` when it was asked for, `began` when it ran first, `ended`;
    `blocked` is how long a thread of the program stood still for it, from `stood` on.
    """

    __slots__ = (
        "at", "began", "block", "blocked", "callbacks", "communicator", "created", "done", "ended", "error", "event", "group", "inputs", "keep", "label", "line", "looked", "name", "nbytes",
        "noticed", "number", "outputs", "received", "record", "standing", "steps", "stood", "warned",
    )  # fmt: skip

    def __init__(
        self, group: Any, name: str, steps: list[Any], inputs: Sequence[Any] | Callable[[], str], nbytes: int = 0, outputs: Sequence[Any] = ()
    ) -> None:  # fmt: skip
        self.group, self.name, self.steps, self.inputs, self.nbytes = group, name, steps, inputs, nbytes
        self.outputs = outputs
        self.at = 0  # the next step
        self.number = self.record = self.looked = 0
        self.created = self.began = self.ended = self.blocked = self.stood = self.warned = 0.0
        self.done = self.noticed = self.standing = False
        self.error: BaseException | None = None
        self.block: Any = None  # while it is in flight: the call's block, or the event behind it on a device's stream
        self.communicator: Any = None  # of a message on a device: other than the group's
        self.event: threading.Event | None = None
        self.callbacks: list[Callable[[Operation], None]] | None = None
        self.line: Any = None
        self.label: str | None = None  # its name in profiles
        self.keep: Any = None
        self.received: Block | None = None  # of a message that has come: with its status

    def make_waitable(self) -> None:
        """Let other threads wait, and remember the user's line, since nobody's stack will show it."""
        self.event = threading.Event()
        if self.line is None:
            self.line = user_code(3)

    def where(self) -> str:
        """The user's line that asked for the operation."""
        return user_line() if self.line is None else describe_code(self.line)

    def describe(self) -> str:
        """Dtypes and shapes of the inputs, for messages."""
        inputs: Any = self.inputs
        if callable(inputs):
            return str(inputs())
        return ", ".join(f"{x.dtype.name} {list(x.shape)}" for x in inputs) or "no tensors"

    def title(self) -> str:
        """Name and number, by which ranks tell whether they do the same."""
        number = f" #{self.number}" if self.number else ""
        return f"{self.name}{number} of group {self.group.name!r}"

    def text(self) -> str:
        """Number, name, shapes and dtypes."""
        return f"{self.title()} ({self.describe()})"

    def blocks(self) -> bool:
        """Whether the program stands still for it."""
        return not self.done and (self.event is None or self.standing)

    def settle(self) -> None:
        """Done: give up what it kept, as the flight recorder may keep the operation itself for long."""
        self.ended = time.monotonic()
        if self.event is None:
            self.blocked, self.stood = self.ended - self.created, self.created
        inputs: Any = self.inputs
        if callable(inputs):
            text = inputs()
            self.inputs = lambda: text
        self.block, self.keep, self.steps = None, None, []

    def source(self) -> int:
        """The rank that a message came from."""
        if self.received is None:
            raise RuntimeError(f"{self.text()} has no source")
        return self.group.ranks[source_of(self.received.address + 8 * STATUS)]

    def finish(self, error: BaseException | None = None) -> None:
        """Be done, and tell those who wait."""
        if error is not None and self.block is not None:
            _UNFINISHED.append((self, self.block, self.keep, self.steps))
            WATCH.failed = True
        self.error = error
        if not self.ended:
            self.settle()
        with _CHANGING:
            self.done = True
            callbacks, self.callbacks = self.callbacks, None
        if self.event is not None:
            self.event.set()
        for call in callbacks or ():
            call(self)

    def when_done(self, call: Callable[[Operation], None]) -> None:
        """Call a function when the operation is done: at once if it is."""
        with _CHANGING:
            if not self.done:
                self.callbacks = [*(self.callbacks or ()), call]
                return
        call(self)

    def failed_call(self, code: int) -> DistBackendError:
        """The error for an error code of a call."""
        return DistBackendError(f"{self.text()} failed: {error_text(-code)}")

    def late_by(self) -> float:
        """Seconds since the operation began."""
        return time.monotonic() - self.began
