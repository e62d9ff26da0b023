"""`Monitor`: every rank knows within a second who died, and within three who was stopped.

Each rank is connected to the store process. A native thread sends signs of life, whatever the interpreter does; a Python
thread sleeps until there is news. Nothing is sent for a collective: a rank writes down what it does (`enter`), and says
so when another asks, which has waited for long (`notices`).
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from rushlight._base.lazy import LazyModule
from rushlight._distributed.errors import DistNetworkError, RankFailedError
from rushlight._distributed.launch.beat_native import BYTE, DESCRIPTOR, PERIOD, STOP, WORDS, start_beat
from rushlight._distributed.launch.watch import Event, Sign
from rushlight._distributed.stores.tcp_store import Client
from rushlight._distributed.stores.wire import LONGEST_NOTICE, MOST_RANKS, Query, as_integer_field, as_text

if TYPE_CHECKING:
    import ctypes
    import multiprocessing.util as finalizers

    from rushlight._host import stubs
else:
    ctypes = LazyModule("ctypes")
    finalizers = LazyModule("multiprocessing.util")
    stubs = LazyModule("rushlight._host.stubs")

__all__ = ["STORE", "Monitor"]

STORE = -1  # the `rank` of an error that says that the store process has gone
_PERIOD, _SLOW_PERIOD, _MANY = 0.5, 1.0, 1000  # seconds between signs of life, and in a world of so many ranks
_LEFT_FOR = 2.0  # seconds of waiting for a rank that has ended
_CONNECTS_WITHIN = 60.0
_FIRST_PAUSE = 0.005  # seconds between two looks at what the ranks said, doubled each time
_HEARS_WITHIN = 2.5  # seconds without a sign of the store process, which gives two every second
_LISTENS_FOR, _LATE = 0.5, 1.0  # seconds between two looks, and from how many on it was this process that stood still
_ALIVE: weakref.WeakSet[Monitor] = weakref.WeakSet()


class Monitor:
    """Watches the other ranks of a job for this rank, and lets it be watched.

    `address` and `job` are those of `connect`'s World. Close it before the process ends well; a process that ends
    without is a rank that died. Without `native` a Python thread gives the signs of life: for processes that never hold
    the interpreter for long, and need no native code otherwise. `lost` is called when the store process has gone, or
    cannot be reached.
    """

    def __init__(
        self,
        address: tuple[str, int],
        job: str,
        rank: int,
        world_size: int,
        native: bool = True,
        lost: Callable[[], None] | None = None,
    ) -> None:
        self.rank, self.world_size, self.lost = rank, world_size, lost
        self.failed: RankFailedError | None = None
        self.left: set[int] = set()  # ranks that have ended, and said so
        self.doing = ""  # what this rank does, in words, for others that ask
        self.tell: Callable[[], str] = lambda: self.doing  # where those words come from
        self.on_dump: Callable[[], Any] = lambda: None  # called when another rank asks all to write down what they did
        self._told: dict[int, str] = {}
        self._answered = threading.Event()
        self._asking = threading.Lock()
        self._closed = False
        self._client = Client(*address, _CONNECTS_WITHIN)
        place = as_integer_field(rank) + as_integer_field(world_size)
        self._client.send(bytes([Query.WATCH]) + as_text(job.encode()) + place)
        beat = _start_beating if native else _start_beating_in_python
        self._beat = beat(self._client.socket, _PERIOD if world_size < _MANY else _SLOW_PERIOD)
        threading.Thread(target=_listen, args=(weakref.ref(self), self._client), daemon=True, name="monitor").start()
        _ALIVE.add(self)
        _leave_child_process_well()

    def check(self, members: Collection[int] | None = None, waited: float = 0.0) -> None:
        """Raise RankFailedError if a rank has failed; cheap, for loops that wait.

        With `members` (global ranks) and the seconds that were waited for them, also if one of them has ended, and so
        will not come.
        """
        if self.failed is not None:
            raise RankFailedError(str(self.failed), self.failed.rank)
        if members is not None and waited > _LEFT_FOR and not self.left.isdisjoint(members):
            rank = min(self.left.intersection(members))
            raise RankFailedError(f"rank {rank} has ended, and rank {self.rank} waits for it in {self.doing}", rank)

    def enter(self, doing: str) -> None:
        """Write down what this rank does, in words: a collective's number, name and shapes, the line of the program."""
        self.doing = doing

    def notices(self, seconds: float = 0.5) -> dict[int, str]:
        """Current notices of the ranks, by rank: those that say so within the time."""
        limit, pause = time.monotonic() + seconds, _FIRST_PAUSE
        with self._asking:
            self._told = {}
            self._send(bytes([Sign.ASK]))
            while True:
                self._answered.clear()
                self._send(bytes([Sign.TELL]))
                self._answered.wait(max(limit - time.monotonic(), 0.0))
                if len(self._told) + len(self.left) + 1 >= self.world_size or time.monotonic() + pause > limit:
                    return {**self._told, self.rank: self.doing}
                time.sleep(pause)
                pause *= 2

    def ask_for_dumps(self) -> None:
        """Let every other rank write down what it did."""
        self._send(bytes([Sign.DUMP]))

    def close(self) -> None:
        """Say goodbye: this rank ends well."""
        self._end(bytes([Sign.GOODBYE]))

    def broken(self, why: str) -> None:
        """Tell the others that this rank fails, and why; for a rank that ends with an exception."""
        text = f"failed: {why}".encode()[: LONGEST_NOTICE - 4].decode("utf-8", "ignore").encode()
        self._end(bytes([Sign.BROKEN]) + as_text(text))

    def _end(self, last_words: bytes) -> None:
        if self._closed:
            return
        self._closed = True
        self._beat[STOP] = 1
        self._send(last_words)
        try:
            self._client.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        _ALIVE.discard(self)

    def _send(self, message: bytes) -> None:
        try:
            self._client.send(message)
        except (DistNetworkError, TimeoutError):
            pass  # the thread that listens says so

    def __del__(self) -> None:
        if hasattr(self, "_beat") and not self._closed:
            self._end(bytes([Sign.GOODBYE]))


# ***** the thread that listens *****


def _listen(monitor: weakref.ref[Monitor], client: Client) -> None:
    """Take news until the connection ends."""
    try:
        while True:
            kind = _next_event(client)
            with client.within(_HEARS_WITHIN):
                found = _read(kind, client)
            watched = monitor()
            if watched is None:
                return
            _take(watched, kind, found)
            del watched
    except TimeoutError:
        _lose(monitor(), f"it has given no sign of life for {_HEARS_WITHIN:g} s (stopped, or the network is cut)")
    except (DistNetworkError, OSError, ValueError, UnicodeDecodeError) as error:
        _lose(monitor(), str(error))


def _next_event(client: Client) -> int:
    """The next event; TimeoutError after `_HEARS_WITHIN` seconds of silence in which this process was awake."""
    quiet, looked = 0.0, time.monotonic()
    while True:
        try:
            with client.within(_LISTENS_FOR):
                return client.read(1)[0]
        except TimeoutError:
            now = time.monotonic()
            passed, looked = now - looked, now
            quiet = quiet + passed if passed < _LATE else 0.0
            if quiet >= _HEARS_WITHIN:
                raise


def _lose(monitor: Monitor | None, why: str) -> None:
    """The store process has gone."""
    if monitor is None or monitor._closed:
        return
    if monitor.failed is None:
        monitor.failed = RankFailedError(f"rank {monitor.rank} lost the store process: {why}", STORE)
    if monitor.lost is not None:
        monitor.lost()


def _read(kind: int, client: Client) -> list[tuple[int, str]]:
    """The ranks and texts of an event."""
    if kind in (Event.ASKED, Event.DUMP, Event.ALIVE):
        return []
    if kind not in (Event.FAILED, Event.LEFT, Event.NOTICES):
        raise ValueError(f"the store sent the event {kind}")
    count = client.read_integer() if kind == Event.NOTICES else 1
    if not 0 <= count <= MOST_RANKS:
        raise ValueError(f"the store sent {count} notices")
    return [(client.read_integer(), client.read_value().decode()) for _ in range(count)]


def _take(monitor: Monitor, kind: int, found: list[tuple[int, str]]) -> None:
    if kind == Event.DUMP:
        monitor.on_dump()
    elif kind == Event.ASKED:
        text = monitor.tell().encode()[: LONGEST_NOTICE - 4].decode("utf-8", "ignore").encode()
        monitor._send(bytes([Sign.NOTICE]) + as_text(text))
    elif kind == Event.NOTICES:
        monitor._told = dict(found)
        monitor._answered.set()
    elif kind == Event.LEFT:
        monitor.left.add(found[0][0])
    elif kind == Event.FAILED and monitor.failed is None:
        rank, why = found[0]
        monitor.failed = RankFailedError(f"rank {rank} {why}", rank)


# ***** the thread that beats *****


def _start_beating(connection: socket.socket, seconds: float) -> Any:
    """The beat's words; its thread has a descriptor of its own, so that no later file gets its number."""
    state = (ctypes.c_int64 * WORDS)()
    state[DESCRIPTOR], state[PERIOD], state[STOP] = os.dup(connection.fileno()), int(1e6 * seconds), 0
    state[BYTE] = Sign.ALIVE
    start = stubs.bind(start_beat)
    for used in (start, state):  # by a thread that outlives the interpreter: never freed
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(used))
    if start(ctypes.addressof(state)):
        raise RankFailedError("no thread can be started that gives signs of life", STORE)
    return state


def _start_beating_in_python(connection: socket.socket, seconds: float) -> Any:
    """The same by a Python thread."""
    state = [os.dup(connection.fileno()), 0, 0, 0]

    def beat() -> None:
        with socket.socket(fileno=state[DESCRIPTOR]) as own:
            while not state[STOP]:
                try:
                    own.send(bytes([Sign.ALIVE]))
                except BlockingIOError:  # nothing goes out: the other side will notice
                    pass
                except OSError:
                    return
                time.sleep(seconds)

    threading.Thread(target=beat, daemon=True, name="signs of life").start()
    return state


def _leave() -> None:
    """At the end of the process: goodbye, unless it ends by an exception."""
    error = getattr(sys, "last_value", None) or sys.exc_info()[1]
    if isinstance(error, SystemExit):
        error = (error.__context__ or error) if error.code else None
    for monitor in list(_ALIVE):
        if error is None:
            monitor.close()
        else:
            monitor.broken(f"{type(error).__name__}: {error}")


def _leave_child_process_well() -> None:
    """Processes of `multiprocessing` end without `atexit`; while their finalizers run, their exception is in flight."""
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        finalizers.Finalize(None, _leave, exitpriority=0)


def _forked() -> None:
    """In a child process: its copies of the connections must not outlive the rank."""
    for monitor in list(_ALIVE):
        monitor._closed = True
        os.close(monitor._beat[DESCRIPTOR])
        monitor._client.close()
    _ALIVE.clear()


atexit.register(_leave)
os.register_at_fork(after_in_child=_forked)
