"""The flight recorder: the last operations of this process, kept in memory and written to a file when something fails.

Its files have the fields of PyTorch's, so that the readers of either read both.
"""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import socket
import sys
import threading
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any

from rushlight._base.errors import PACKAGE, code_location, describe_location, user_code
from rushlight._base.knobs import Knob

__all__ = ["FLIGHT", "FLIGHT_DUMPS", "FLIGHT_FILE", "FLIGHT_SIGNAL", "FLIGHT_SIZE", "WAITS", "FlightRecorder"]


def _from(names: tuple[str, ...], default: str) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), default)


FLIGHT_SIZE: Knob[int] = Knob(
    "flight_size", env="RUSHLIGHT_FLIGHT_SIZE", kind=int,
    default=lambda: int(_from(("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"), "2000")),
    doc="How many operations of process groups the flight recorder keeps; 0: none. PyTorch's TORCH_FR_BUFFER_SIZE is read too.",
)  # fmt: skip
FLIGHT_FILE: Knob[str] = Knob(
    "flight_file", env="RUSHLIGHT_FLIGHT_FILE", kind=str,
    default=lambda: _from(("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"), ""),
    doc="Where the flight recorder writes: the path without the rank, which is added. Empty: in the user's cache. PyTorch's TORCH_FR_DUMP_TEMP_FILE is read too.",
)  # fmt: skip
FLIGHT_DUMPS: Knob[bool] = Knob(
    "flight_dumps", env="RUSHLIGHT_FLIGHT_DUMPS", kind=bool,
    default=lambda: _from(("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT"), "1").lower() in ("1", "true", "yes", "y"),
    doc="Whether the flight recorder writes its file when an operation times out or a rank fails.",
)  # fmt: skip

FLIGHT_SIGNAL: Knob[str] = Knob(
    "flight_signal", env="RUSHLIGHT_FLIGHT_SIGNAL", kind=str, default="",
    doc="A signal, as USR2, on which a process of a job writes the file of its flight recorder and goes on.",
)  # fmt: skip

VERSION = "2.10"  # of the format
MOST_TOLD = 6  # unfinished operations that a rank tells others of
WAITS = "waits in "
# Names of operations in PyTorch's files, where they are others.
_NAMES = {
    "all_gather_into_tensor": "_all_gather_base", "reduce_scatter_tensor": "_reduce_scatter_base", "all_to_all_single": "all_to_all",
    "all_reduce_coalesced": "allreduce_coalesced", "all_gather_coalesced": "ALLGATHER_coalesced", "barrier": "all_reduce_barrier",
}  # fmt: skip


class FlightRecorder:
    """A ring of operations, oldest first."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self.ring: deque[Any] | None = None
        self.rank = 0  # in the whole job
        self.groups: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.written: str | None = None
        self.thread, self.alone = 0, True  # whether one thread asked for all operations, and which
        self.crossed: Any = None  # an operation that was given up, as another rank waits in another group
        self.taps: list[list[Any]] = []  # lists to which operations are added too

    def note(self, operation: Any, number: int) -> None:
        """An operation was asked for; `number` is its place among those of its kind in the group."""
        operation.created = time.monotonic()
        if operation.line is None:
            operation.line = user_code(3)
        here = threading.get_ident()
        if here != self.thread:
            self.thread, self.alone = here, not self.thread
        ring = self.ring
        if ring is None:
            ring = self.ring = deque(maxlen=max(FLIGHT_SIZE.get(), 0))
        operation.record = next(self.numbers), number
        ring.append(operation)
        for tap in self.taps:
            tap.append(operation)

    def clear(self) -> None:
        """Forget all operations; numbers begin anew, and the size of the ring is read again."""
        self.ring, self.numbers, self.written = None, itertools.count(), None

    def operations(self) -> list[Any]:
        """The operations that are kept, oldest first."""
        while True:
            try:
                return list(self.ring or ())
            except RuntimeError:  # another thread has added one
                pass

    # ***** in words *****

    def doing(self) -> str:
        """Unfinished operations of this process, a line each, those first for which its program stands still;
        else the line of its program, and what it did last.
        """
        operations = self.operations()
        if operations and self.crossed is operations[-1]:  # others that wait are told the same
            return f"{WAITS}{self.crossed.text()} at {self.crossed.where()}"
        unfinished = sorted((o for o in operations if not o.done), key=lambda o: -o.record[0] if o.blocks() else 1)[
            :MOST_TOLD
        ]
        if unfinished:
            waits = WAITS if self.alone else ""
            return "\n".join(f"{waits if o.blocks() else ''}{o.text()} at {o.where()}" for o in unfinished)
        last = f"; its last operation was {operations[-1].text()} at {operations[-1].where()}" if operations else ""
        return f"it is at {_main_line()}{last}"

    # ***** in a file *****

    def entries(self) -> list[dict[str, Any]]:
        """The operations as PyTorch's flight recorder describes them."""
        base = time.time() - time.monotonic()
        return [_entry(operation, base) for operation in self.operations()]

    def state(self) -> dict[str, Any]:
        """Everything that a file holds."""
        operations = self.operations()
        groups = {o.group.name: o.group for o in operations} | dict(self.groups)
        return {
            "version": VERSION,
            "pg_config": {
                name: {"name": name, "desc": g.description, "ranks": str(list(g.ranks))} for name, g in groups.items()
            },
            "pg_status": {name: _status(g, operations) for name, g in groups.items()},
            "entries": self.entries(),
            "rank": self.rank,
            "host_name": socket.gethostname(),
            "clock": {"monotonic": time.monotonic(), "time": time.time()},
            "doing": self.doing(),
        }

    def path(self) -> str:
        """The file of this rank."""
        prefix = FLIGHT_FILE.get()
        if not prefix:
            cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
            prefix = os.path.join(cache, "rushlight", "flight", "rank_")
        return f"{prefix}{self.rank}"

    def dump(self, path: str | None = None) -> str:
        """Write the file, whole or not at all; its path."""
        path = path or self.path()
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        unfinished = f"{path}.{os.getpid()}.{threading.get_ident()}"
        with open(unfinished, "wb") as file:
            pickle.dump(self.state(), file, protocol=2)
        os.replace(unfinished, path)
        return path

    def dump_on_signal(self) -> None:
        """Write the file on the signal that the environment names; in the main thread alone, where handlers can be set."""
        name = FLIGHT_SIGNAL.get()
        if name and threading.current_thread() is threading.main_thread():
            signal.signal(signal.Signals["SIG" + name.upper().removeprefix("SIG")], lambda *_: self.dump())

    def dump_after_failure(self) -> str:
        """Write the file once, if that is wanted; words about it for the error's text."""
        if self.written is None:
            self.written = ""
            if FLIGHT_DUMPS.get() and FLIGHT_SIZE.get() > 0 and self.ring:
                try:
                    self.written = self.dump()
                except OSError:
                    return ""
        return f" (the last operations of this rank are in {self.written})" if self.written else ""


def _main_line() -> str:
    """The line of the program at which the main thread is."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    inner = frame
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    frame = frame or inner
    if frame is None:
        return "<no line>"
    return describe_location((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))


def torch_name(operation: Any) -> str:
    """The name of an operation as PyTorch's flight recorder has it: `gloo:all_reduce`, `gloo:send 0->1`."""
    name, _, rest = operation.name.partition("(")
    name = _NAMES.get(name, name)
    group = operation.group
    if name in ("send", "recv"):
        other = rest.rstrip(")").split(" ")[-1]
        place = group.ranks.index(int(other)) if other.isdigit() else -1
        name = f"send {group.rank}->{place}" if name == "send" else f"recv {group.rank}<-{place}"
    return f"{'nccl' if group.backend == 'nccl' else 'gloo'}:{name}"


def _entry(operation: Any, base: float) -> dict[str, Any]:
    record, number = operation.record
    group, message = operation.group, not operation.number
    inputs = [] if callable(operation.inputs) else operation.inputs
    code, line, function = code_location(operation.line)
    name = torch_name(operation)
    outputs = operation.outputs if name.partition(":")[2].partition(" ")[0] != "send" else inputs
    state = "completed" if operation.done and operation.error is None else "started" if operation.began else "scheduled"

    def stamp(seconds: float) -> int | None:
        return int(1e9 * (base + seconds)) if seconds else None

    return {
        "frames": [{"name": function, "filename": code, "line": line}],
        "record_id": record,
        "pg_id": group.number,
        "process_group": (group.name, group.description),
        "collective_seq_id": 0 if message else number,
        "p2p_seq_id": number if message else 0,
        "op_id": record,
        "profiling_name": name,
        "time_created_ns": stamp(operation.created),
        "time_discovered_started_ns": stamp(operation.began),
        "time_discovered_completed_ns": stamp(operation.ended),
        "duration_ms": 1e3 * (operation.ended - operation.began) if operation.ended else None,
        "blocked_ms": 1e3 * operation.blocked,
        "input_sizes": [tuple(x.shape) for x in inputs] or [()],
        "input_dtypes": [x.dtype.name for x in inputs] or [""],
        "output_sizes": [tuple(x.shape) for x in outputs] or [()],
        "output_dtypes": [x.dtype.name for x in outputs] or [""],
        "nbytes": operation.nbytes,
        "reduction": operation.name.partition("(")[2].rstrip(")"),
        "state": state,
        "error": None if operation.error is None else f"{type(operation.error).__name__}: {operation.error}",
        "retired": operation.done,
        "is_p2p": message,
        "timeout_ms": int(1e3 * group.timeout),
    }


def _status(group: Any, operations: list[Any]) -> dict[str, int]:
    own = [o for o in operations if o.group is group and o.number]

    def last(kept: list[Any]) -> int:
        return max((o.number for o in kept), default=-1)

    return {
        "last_enqueued_collective": last(own),
        "last_started_collective": last([o for o in own if o.began]),
        "last_completed_collective": last([o for o in own if o.done and o.error is None]),
    }


FLIGHT = FlightRecorder()
