"""The store server: one loop over all connections, that answers requests, lets clients wait, and starts MPI jobs.

It runs in a process of its own (see `launch.store_process`), never in a thread of a rank: importing MPI holds the
interpreter lock, and waits for answers of this server.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable

from rushlight._distributed.launch.pmi import Jobs
from rushlight._distributed.launch.watch import Watch
from rushlight._distributed.stores.connection import Connection, Malformed
from rushlight._distributed.stores.table import Table
from rushlight._distributed.stores.wire import (
    KEY_PREFIX,
    LONGEST_KEY,
    LONGEST_VALUE,
    MAGIC,
    MOST_KEYS,
    MOST_RANKS,
    OURS,
    Query,
    as_integer_field,
    as_list,
    as_text,
)

__all__ = ["Server"]

_READY, _NOT_READY = b"\0", b"\1"
_STOP_WAITING, _WAIT_CANCELED = b"\0", b"\1"
_TICK = 0.25
_CROWDED = 0.01  # seconds of rest when no more connections can be opened
_MOST_ACCEPTED = 256  # connections accepted before others are served


class Server:
    """Serves a listening socket: `step` in a loop, until the owner says otherwise."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.connections: set[Connection] = set()
        self.table = Table()
        self.jobs = Jobs()
        self.watch = Watch()
        self._waits: dict[str, list[Connection]] = {}  # clients that wait for a key
        self._barriers: dict[str, list[Connection]] = {}
        self._next_tick = 0.0
        self._answers: dict[int, Callable[[Connection], None]] = {
            Query.SET: self._set,
            Query.COMPARE_SET: self._compare_set,
            Query.GET: self._get,
            Query.ADD: self._add,
            Query.CHECK: self._check,
            Query.WAIT: self._wait,
            Query.COUNT_KEYS: lambda client: client.send(as_integer_field(self.table.count())),
            Query.DELETE_KEY: self._delete_key,
            Query.APPEND: self._append,
            Query.MULTI_GET: self._multi_get,
            Query.MULTI_SET: self._multi_set,
            Query.CANCEL_WAIT: self._cancel_wait,
            Query.PING: lambda client: client.send(client.read_bytes(4)),
            Query.QUEUE_PUSH: self._queue_push,
            Query.QUEUE_POP: self._queue_pop,
            Query.QUEUE_LENGTH: self._queue_length,
            Query.LIST_KEYS: self._list_keys,
            Query.BARRIER: self._barrier,
            Query.WHO: lambda client: client.send(as_text(OURS)),
            Query.JOIN: self._join,
            Query.MISSING: self._missing,
            Query.WATCH: self._be_watched,
        }

    # ***** the loop *****

    def step(self) -> None:
        """Serve what has come; returns at the latest after a tick."""
        for key, events in self.selector.select(_TICK):
            if key.fileobj is self.listener:
                self._accept()
                continue
            client: Connection | None = key.data
            if client is None:  # the owner's lifeline
                continue
            if events & selectors.EVENT_WRITE:
                client.flush()
            if events & selectors.EVENT_READ and client.open:
                self._serve(client)
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + _TICK
            self.watch.tick(now)
        for client in [client for client in self.connections if not client.open]:
            self._forget(client)

    def stop_listening(self) -> None:
        """Accept nobody from now on; the port is free."""
        if self.listener.fileno() >= 0:
            self.selector.unregister(self.listener)
            self.listener.close()

    def _accept(self) -> None:
        for _ in range(_MOST_ACCEPTED):
            try:
                connected, _ = self.listener.accept()
            except BlockingIOError:
                return
            except OSError:  # too many open files: others go first
                time.sleep(_CROWDED)
                return
            client = Connection(connected, self.selector)
            client.serve = self._request
            self.connections.add(client)

    def _serve(self, client: Connection) -> None:
        """Answer all whole requests that have come; what is malformed ends the connection."""
        client.receive()
        try:
            client.serve_all()
        except Malformed as error:
            client.fail(str(error))

    def _forget(self, client: Connection) -> None:
        self.connections.discard(client)
        self._no_longer_waiting(client)
        client.forgotten()

    def _request(self, client: Connection) -> None:
        kind = client.read_byte()
        if kind == Query.VALIDATE:
            if int.from_bytes(client.read_bytes(4), "little") != MAGIC:
                raise Malformed("no client of a store")
            client.validated = True
            return
        answer = self._answers.get(kind) if client.validated else None
        if answer is None:
            raise Malformed(f"no request has the number {kind}")
        answer(client)

    # ***** keys and values *****

    def _key(self, client: Connection) -> str:
        return client.read_text(LONGEST_KEY)

    def _keys(self, client: Connection) -> list[str]:
        return [self._key(client) for _ in range(client.read_integer(0, MOST_KEYS))]

    def _set(self, client: Connection) -> None:
        key = self._key(client)
        self.table.values[key] = client.read_value(LONGEST_VALUE)
        self._wake(key)

    def _compare_set(self, client: Connection) -> None:
        key, expected = self._key(client), client.read_value(LONGEST_VALUE)
        client.send(as_text(self.table.compare_set(key, expected, client.read_value(LONGEST_VALUE))))
        self._wake(key)

    def _get(self, client: Connection) -> None:
        client.send(as_text(self.table.values.get(self._key(client), b"")))

    def _add(self, client: Connection) -> None:
        key, amount = self._key(client), client.read_integer()
        try:
            total = self.table.add(key, amount)
        except ValueError as error:
            raise Malformed(str(error)) from None
        client.send(as_integer_field(total))
        self._wake(key)

    def _check(self, client: Connection) -> None:
        client.send(_READY if self.table.has(self._keys(client)) else _NOT_READY)

    def _delete_key(self, client: Connection) -> None:
        client.send(as_integer_field(self.table.delete(self._key(client))))

    def _append(self, client: Connection) -> None:
        key, value = self._key(client), client.read_value(LONGEST_VALUE)
        if len(self.table.values.get(key, b"")) + len(value) > LONGEST_VALUE:
            raise Malformed("the value grows too long")
        self.table.append(key, value)
        self._wake(key)

    def _multi_get(self, client: Connection) -> None:
        client.send(b"".join(as_text(self.table.values.get(key, b"")) for key in self._keys(client)))

    def _multi_set(self, client: Connection) -> None:
        pairs = []
        for _ in range(client.read_integer(0, MOST_KEYS)):
            key = self._key(client)
            pairs.append((key, client.read_value(LONGEST_VALUE)))
        self.table.values.update(pairs)
        for key, _ in pairs:
            self._wake(key)

    def _list_keys(self, client: Connection) -> None:
        keys = [key.encode() for key in self.table.keys() if key.startswith(KEY_PREFIX)]
        client.send(as_list(keys))

    # ***** waiting *****

    def _wait(self, client: Connection) -> None:
        absent = {key for key in self._keys(client) if not self.table.has([key])}
        if not absent:
            client.send(_STOP_WAITING)
            return
        self._no_longer_waiting(client)
        client.absent = absent
        for key in absent:
            self._waits.setdefault(key, []).append(client)

    def _wake(self, key: str) -> None:
        for client in self._waits.pop(key, ()):
            client.absent.discard(key)
            if not client.absent:
                client.send(_STOP_WAITING)

    def _cancel_wait(self, client: Connection) -> None:
        self._no_longer_waiting(client)
        client.send(_WAIT_CANCELED)

    def _no_longer_waiting(self, client: Connection) -> None:
        for key in client.absent:
            clients = self._waits.get(key, [])
            if client in clients:
                clients.remove(client)
            if not clients:
                self._waits.pop(key, None)
        client.absent = set()
        if client.barrier:
            self._barriers[client.barrier].remove(client)
            client.barrier = ""

    def _queue_push(self, client: Connection) -> None:
        key = self._key(client)
        self.table.push(key, client.read_value(LONGEST_VALUE))
        self._wake(key)

    def _queue_pop(self, client: Connection) -> None:
        key = self._key(client)
        length = self.table.queue_length(key)
        value = self.table.pop(key)
        client.send(as_integer_field(length) + (b"" if value is None else as_text(value)))

    def _queue_length(self, client: Connection) -> None:
        client.send(as_integer_field(self.table.queue_length(self._key(client))))

    def _barrier(self, client: Connection) -> None:
        key, size = self._key(client), client.read_integer(1, MOST_RANKS)
        count = self.table.add(key, 1)
        arrived = self._barriers.setdefault(key, [])
        arrived.append(client)
        client.barrier = key
        if count >= size:
            for other in self._barriers.pop(key):
                other.barrier = ""
                other.send(_STOP_WAITING)

    # ***** jobs: ranks of an MPI world, and who of them lives *****

    def _join(self, client: Connection) -> None:
        name, rank, size = client.read_text(LONGEST_KEY), client.read_integer(), client.read_integer(1, MOST_RANKS)
        host = client.read_text(LONGEST_KEY)
        self.jobs.join(client, name, (rank, size), host)

    def _missing(self, client: Connection) -> None:
        client.send(as_text(self.jobs.missing(client.read_text(LONGEST_KEY)).encode()))

    def _be_watched(self, client: Connection) -> None:
        name, rank, size = client.read_text(LONGEST_KEY), client.read_integer(), client.read_integer(1, MOST_RANKS)
        self.watch.join(client, name, (rank, size))
