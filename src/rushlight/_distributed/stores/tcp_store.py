"""`TCPStore`: keys and values in a store process, reached over TCP."""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

from rushlight._distributed.errors import DistNetworkError, DistStoreError, QueueEmptyError
from rushlight._distributed.launch.store_process import StoreProcess, allow_many_files, listen
from rushlight._distributed.stores.store import DEFAULT_TIMEOUT, Store, as_bytes, seconds_of
from rushlight._distributed.stores.wire import (
    COUNTER,
    INIT_KEY,
    KEY_PREFIX,
    LIMITS,
    LONGEST_KEY,
    LONGEST_VALUE,
    MAGIC,
    MOST_KEYS,
    OURS,
    Query,
    as_integer_field,
    as_list,
    as_text,
)

__all__ = ["Client", "TCPStore", "is_ours"]

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.5
_ANSWERS_WITHIN = 300.0  # seconds for an answer that waits for nobody
_STOP_WAITING, _READY = 0, 0
_SHARED: weakref.WeakValueDictionary[int, StoreProcess] = weakref.WeakValueDictionary()


class Client:
    """One connection to a store server: what is sent, and answers that are read."""

    def __init__(self, host: str, port: int, seconds: float) -> None:
        self.host, self.port = host, port
        self.socket = _connected(host, port, seconds)
        self.process = os.getpid()
        nonce = os.urandom(4)
        self.send(bytes([Query.VALIDATE]) + MAGIC.to_bytes(4, "little") + bytes([Query.PING]) + nonce)
        try:
            with self.within(min(seconds, _ANSWERS_WITHIN)):
                answer = self.read(4)
        except TimeoutError:
            raise DistNetworkError(f"the store at {host}, port {port}, has not answered within {seconds:g} s") from None
        if answer != nonce:
            raise DistNetworkError(f"what listens on {host}, port {port}, is no store")

    def send(self, data: bytes) -> None:
        """Send a request; DistNetworkError if the server has gone."""
        try:
            self.socket.sendall(data)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._lost(error) from None

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Reads inside take so long at most; then TimeoutError."""
        self.socket.settimeout(None if seconds == math.inf else max(seconds, 1e-3))
        try:
            yield
        finally:
            self.socket.settimeout(_ANSWERS_WITHIN)

    def read(self, count: int) -> bytes:
        """So many bytes of the answer."""
        found = bytearray(count)
        view, at = memoryview(found), 0
        while at < count:
            try:
                came = self.socket.recv_into(view[at:])
            except TimeoutError:
                raise
            except OSError as error:
                raise self._lost(error) from None
            if not came:
                raise self._lost(None)
            at += came
        return bytes(found)

    def read_integer(self) -> int:
        """A field of 64 bits."""
        value: int = COUNTER.unpack(self.read(8))[0]
        return value

    def read_value(self) -> bytes:
        """A value: its length and its bytes."""
        length = self.read_integer()
        if not 0 <= length <= LONGEST_VALUE:
            raise DistNetworkError(f"the store sent a value of {length} bytes")
        return self.read(length)

    def detach(self) -> int:
        """The connection's descriptor, blocking; it belongs to the caller."""
        self.socket.settimeout(None)
        return self.socket.detach()

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def give_up(self) -> None:
        """End the connection under whoever waits for an answer, on another thread: that one gets DistNetworkError."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def __del__(self) -> None:
        if hasattr(self, "socket"):
            self.socket.close()

    def _lost(self, error: OSError | None) -> DistNetworkError:
        why = "it closed the connection" if error is None else str(error)
        return DistNetworkError(f"lost the store process at {self.host}, port {self.port}: {why}")


def _connected(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to a server that may still be starting; DistNetworkError after so many seconds."""
    limit, pause = time.monotonic() + seconds, _FIRST_PAUSE
    while True:
        left = limit - time.monotonic()
        try:
            connected = socket.create_connection((host, port), None if left == math.inf else max(left, 1e-3))
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connected.settimeout(_ANSWERS_WITHIN)
            return connected
        except OSError as error:
            if not isinstance(error, ConnectionRefusedError):  # looking up a name hides that no file can be opened
                allow_many_files()
            if time.monotonic() + pause >= limit:
                raise DistNetworkError(
                    f"The client socket has timed out after {1000 * seconds:.0f}ms while trying to connect to ({host}, {port}): {error}"
                ) from None
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def is_ours(host: str, port: int, seconds: float) -> bool:
    """Whether the store at this address is a process of ours, which also starts MPI jobs and watches ranks."""
    client = Client(host, port, seconds)
    try:
        client.send(bytes([Query.WHO]))
        return client.read_value() == OURS
    except (DistNetworkError, TimeoutError):
        return False
    finally:
        client.close()


class TCPStore(Store):
    """A store in a process of its own, which its master starts, and which others reach over TCP.

    `port=0` lets the master choose one (see `port`). With `wait_for_workers` the master waits until `world_size` stores,
    its own included, are connected. The server listens on loopback if `host_name` is a name of it, else on all
    addresses. DistNetworkError when the port is taken or nobody answers within `timeout`; DistStoreError when a key is
    not set within it.

    >>> import rushlight as torch
    >>> master = torch.distributed.TCPStore("localhost", 0, world_size=2, is_master=True, wait_for_workers=False)
    >>> worker = torch.distributed.TCPStore("localhost", master.port, world_size=2)
    >>> worker.set("key", "value")
    >>> master.get("key")
    b'value'
    """

    __module__ = "torch.distributed"

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        self.set_timeout(timeout)
        self._process: StoreProcess | None = None
        if is_master:
            self._process = _SHARED.get(port) if multi_tenant else None
            if self._process is None:
                self._process = StoreProcess(listen(host_name, port, master_listen_fd))
            port = self._process.port
            if multi_tenant:  # a server that stores of this process share ends with the last of them
                _SHARED[port] = self._process
        self._host, self._port, self._world_size = host_name, port, world_size
        self._lock = threading.Lock()
        self._client: Client | None = Client(host_name, port, seconds_of(timeout))
        self._ask(bytes([Query.ADD]) + as_text(INIT_KEY.encode()) + as_integer_field(1), Client.read_integer)
        if wait_for_workers:
            self.wait_for_workers()

    def __repr__(self) -> str:
        return f"TCPStore(host={self._host!r}, port={self._port}, is_master={self.is_master})"

    def __reduce__(self) -> Any:
        raise TypeError("a TCPStore is a connection and is not pickled; connect anew with its host and port")

    @property
    def host(self) -> str:
        """The name of the server's host."""
        return self._host

    @property
    def port(self) -> int:
        """The server's port."""
        return self._port

    @property
    def is_master(self) -> bool:
        """Whether this store started the server."""
        return self._process is not None

    @property
    def libuvBackend(self) -> bool:
        """True, as in PyTorch; the server here is a Python process and knows no libuv."""
        return True

    def wait_for_workers(self) -> None:
        """As the master, wait until `world_size` stores are connected; DistStoreError after the timeout."""
        if not self.is_master or self._world_size is None:
            return
        seconds = seconds_of(self.timeout)
        limit, pause = time.monotonic() + seconds, 0.001
        question = bytes([Query.ADD]) + as_text(INIT_KEY.encode()) + as_integer_field(0)
        while (count := self._ask(question, Client.read_integer)) < self._world_size:
            if time.monotonic() >= limit:
                raise DistStoreError(
                    f"Timed out after {seconds:.0f} seconds waiting for clients. {count}/{self._world_size} clients joined."
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.02)

    def give_up(self) -> None:
        """Let whoever waits for the server have DistNetworkError: it is known to be out of reach."""
        client = self._client
        if client is not None:
            client.give_up()

    def kill_server(self) -> None:
        """As the master, end the store process at once: it is out of reach."""
        if self._process is not None:
            self._process.kill()

    def clone(self) -> TCPStore:
        """A store on a connection of its own, so that another thread need not wait for this one's waits."""
        return TCPStore(self._host, self._port, None, False, self.timeout, wait_for_workers=False)

    # ***** asking *****

    def _ask(self, request: bytes, read: Callable[[Client], T]) -> T:
        """Send, and read the answer."""
        with self._connection() as client:
            client.send(request)
            return read(client)

    def _tell(self, request: bytes) -> None:
        """Send a request without an answer, and a ping behind it: on return every other connection sees the change."""
        nonce = os.urandom(4)
        if self._ask(request + bytes([Query.PING]) + nonce, lambda client: client.read(4)) != nonce:
            raise DistNetworkError(f"the store process at {self._host}, port {self._port} answered another request")

    @contextmanager
    def _connection(self) -> Iterator[Client]:
        """The connection, one thread at a time; anew after a fork, and after an answer was left unread."""
        with self._lock:
            if self._client is not None and self._client.process != os.getpid():
                self._client = None  # the parent's; closing would not end it
            if self._client is None:
                self._client = Client(self._host, self._port, seconds_of(self.timeout))
            try:
                yield self._client
            except (DistStoreError, QueueEmptyError):
                raise
            except BaseException as error:
                self._client.close()
                self._client = None
                if isinstance(error, TimeoutError):
                    raise DistNetworkError(
                        f"the store process at {self._host}, port {self._port} does not answer"
                    ) from None
                raise

    def _await(self, client: Client, request: bytes, seconds: float, what: str) -> None:
        """Send a request whose answer waits for others; DistStoreError after the time limit."""
        client.send(request)
        try:
            with client.within(seconds):
                client.read(1)
            return
        except TimeoutError:
            client.send(bytes([Query.CANCEL_WAIT]))
        if client.read(1)[0] == _STOP_WAITING:  # it came at the last moment
            client.read(1)
            return
        raise DistStoreError(f"{what.split()[0]} timeout after {1000 * seconds:.0f}ms, {what.split(' ', 1)[1]}")

    def _await_keys(self, client: Client, names: list[bytes], seconds: float) -> None:
        what = b"wait keys: " + b", ".join(names[:64])
        self._await(client, bytes([Query.WAIT]) + as_list(names), seconds, what.decode())

    # ***** what a store can do *****

    def set(self, key: str, value: str | bytes, /) -> None:
        self._tell(bytes([Query.SET]) + as_text(_name(key)) + as_text(_value(value)))

    def get(self, key: str, /) -> bytes:
        name = _name(key)
        with self._connection() as client:
            self._await_keys(client, [name], seconds_of(self.timeout))
            client.send(bytes([Query.GET]) + as_text(name))
            return client.read_value()

    def add(self, key: str, value: int, /) -> int:
        return self._ask(bytes([Query.ADD]) + as_text(_name(key)) + as_integer_field(value), Client.read_integer)

    def check(self, keys: Sequence[str], /) -> bool:
        return self._ask(bytes([Query.CHECK]) + as_list(_names(keys)), lambda client: client.read(1)[0] == _READY)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None, /) -> None:
        with self._connection() as client:
            self._await_keys(client, _names(keys), seconds_of(self.timeout if timeout is None else timeout))

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes, /) -> bytes:
        values = as_text(_value(expected_value)) + as_text(_value(desired_value))
        return self._ask(bytes([Query.COMPARE_SET]) + as_text(_name(key)) + values, Client.read_value)

    def delete_key(self, key: str, /) -> bool:
        return self._ask(bytes([Query.DELETE_KEY]) + as_text(_name(key)), Client.read_integer) > 0

    def num_keys(self) -> int:
        return self._ask(bytes([Query.COUNT_KEYS]), Client.read_integer)

    def list_keys(self) -> list[str]:
        def read(client: Client) -> list[str]:
            return [client.read_value().decode() for _ in range(client.read_integer())]

        keys = self._ask(bytes([Query.LIST_KEYS]), read)
        return [key.removeprefix(KEY_PREFIX) for key in keys if key.startswith(KEY_PREFIX)]

    def append(self, key: str, value: str | bytes, /) -> None:
        self._tell(bytes([Query.APPEND]) + as_text(_name(key)) + as_text(_value(value)))

    def multi_get(self, keys: Sequence[str], /) -> list[bytes]:
        names = _names(keys)
        with self._connection() as client:
            self._await_keys(client, names, seconds_of(self.timeout))
            client.send(bytes([Query.MULTI_GET]) + as_list(names))
            return [client.read_value() for _ in names]

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes], /) -> None:
        if len(keys) != len(values):
            raise ValueError(f"multi_set() got {len(keys)} keys and {len(values)} values")
        pairs = [as_text(name) + as_text(_value(value)) for name, value in zip(_names(keys), values)]
        self._tell(bytes([Query.MULTI_SET]) + as_integer_field(len(pairs)) + b"".join(pairs))

    def queue_push(self, key: str, value: str | bytes, /) -> None:
        self._tell(bytes([Query.QUEUE_PUSH]) + as_text(_name(key)) + as_text(_value(value)))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        name, limit = _name(key), time.monotonic() + seconds_of(self.timeout)
        with self._connection() as client:
            while True:  # another client may be faster
                if block:
                    self._await_keys(client, [name], limit - time.monotonic())
                client.send(bytes([Query.QUEUE_POP]) + as_text(name))
                if client.read_integer():
                    return client.read_value()
                if not block:
                    raise QueueEmptyError("queue is empty")

    def queue_len(self, key: str, /) -> int:
        return self._ask(bytes([Query.QUEUE_LENGTH]) + as_text(_name(key)), Client.read_integer)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        request = bytes([Query.BARRIER]) + as_text(_name(key)) + as_integer_field(world_size)
        seconds = seconds_of(self.timeout if timeout is None else timeout)
        with self._connection() as client:
            self._await(client, request, seconds, f"barrier key: {key}")

    def has_extended_api(self) -> bool:
        return True


def _name(key: str) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"keys are str, not {type(key).__name__}")
    name = KEY_PREFIX.encode() + key.encode()
    if len(name) > LONGEST_KEY:
        raise ValueError(f"a store holds {LIMITS}; this key has {len(name)} bytes")
    return name


def _names(keys: Sequence[str]) -> list[bytes]:
    if isinstance(keys, str) or len(keys) > MOST_KEYS:
        raise TypeError(f"expected a list of keys; a store holds {LIMITS}")
    return [_name(key) for key in keys]


def _value(value: str | bytes) -> bytes:
    found = as_bytes(value)
    if len(found) > LONGEST_VALUE:
        raise ValueError(f"a store holds {LIMITS}; this value has {len(found)} bytes")
    return found
