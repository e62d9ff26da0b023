"""The connections of one worker to the others: made when first needed, answered when they come, and who has gone.

Frames are read by one thread for each connection and given to `receive`, which must not wait.  Sending happens on the
thread that asks for it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
import weakref
from collections.abc import Callable

from rushlight._base.forking import free_after_fork
from rushlight._distributed.calls.frames import Frame, FrameType, Malformed, read_frame
from rushlight._distributed.calls.links import ANSWERS_WITHIN, Link, Stranger, greet, welcome
from rushlight._distributed.errors import DistNetworkError

__all__ = ["Network", "WorkerGoneError", "address_of_interface", "interface_towards"]

_MOST_UNKNOWN = 128  # connections that have not shown the token yet
_LOOPBACK = ("localhost", "127.0.0.1", "::1", "")
_SIOCGIFADDR = 0x8915


class WorkerGoneError(RuntimeError):
    """A message for a worker that has died, or has left."""


def interface_towards(host: str, port: int) -> str:
    """This machine's address on the way to a store: loopback if the store is there."""
    if host in _LOOPBACK or host.startswith("127."):
        return "127.0.0.1"
    kind, _, _, _, address = socket.getaddrinfo(host, port or 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        probe.connect(address)  # nothing is sent
        return str(probe.getsockname()[0])


def address_of_interface(name: str) -> str:
    """The IPv4 address of an interface; DistNetworkError where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
        except OSError as error:
            raise DistNetworkError(f"no address of the interface {name!r}: {error}") from None
    return socket.inet_ntoa(found[20:24])


class Network:
    """Sockets of worker `me`, for receiving and sending.

    `address_of` gives a worker's host and port, `name_of` what errors call it; `receive(peer, frame)` and
    `lost(peer, why)` are called on threads that read.
    """

    def __init__(
        self, me: int, token: bytes, host: str, *, address_of: Callable[[int], tuple[str, int]], name_of: Callable[[int], str],
        receive: Callable[[int, Frame], None], lost: Callable[[int, str], None],
    ) -> None:  # fmt: skip
        self.me, self._token = me, token
        self._address_of, self._name_of, self._receive, self._lost = address_of, name_of, receive, lost
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=1024)
        self.address: tuple[str, int] = (host, self._listener.getsockname()[1])
        self._lock = free_after_fork(threading.Lock())
        self._links: dict[int, Link] = {}
        self._open: set[Link] = set()
        self._gone: dict[int, str] = {}
        self.left: set[int] = set()  # those among them that said goodbye
        self._unknown = 0
        self._closed = False
        _OPEN.add(self)
        self._thread("accept", self._accept)

    def _thread(self, what: str, target: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=target, args=arguments, name=f"rpc-{what}", daemon=True).start()

    # ***** sending *****

    def send(self, peer: int, frame: Frame) -> None:
        """Send a frame; WorkerGoneError if the worker has died, or cannot be reached."""
        link = self._links.get(peer) or self._connect(peer)
        try:
            link.send(frame)
        except OSError as error:
            self._end(link, f"{error}")
            raise self._refusal(peer, str(error)) from None

    def reach(self, peer: int) -> None:
        """Connect to a worker, if there is no connection; WorkerGoneError if it has died."""
        if peer not in self._links:
            self._connect(peer)

    def _refusal(self, peer: int, why: str) -> WorkerGoneError:
        return WorkerGoneError(f"{self._name_of(peer)} is gone: {self._gone.get(peer, why)}")

    def _connect(self, peer: int) -> Link:
        if peer in self._gone:
            raise self._refusal(peer, "")
        if self._closed:
            raise WorkerGoneError("this worker has shut down")
        host, port = self._address_of(peer)
        try:
            connection = socket.create_connection((host, port), ANSWERS_WITHIN)
        except OSError as error:
            why = f"nobody answers at {host}, port {port} ({error})"
            self._note_gone(peer, why)
            raise self._refusal(peer, why) from None
        try:
            greet(connection, self._token, self.me, peer)
        except (Stranger, OSError) as error:
            connection.close()
            raise DistNetworkError(f"{self._name_of(peer)} at {host}, port {port}: {error}") from None
        return self._begin(connection, peer)

    def _begin(self, connection: socket.socket, peer: int) -> Link:
        """Remember a connection, and read from it; where two workers have connected to each other, both stay."""
        link = Link(connection, peer)
        with self._lock:
            if self._closed:
                link.close()
                raise WorkerGoneError("this worker has shut down")
            self._open.add(link)
            chosen = self._links.setdefault(peer, link)
        self._thread(f"read-{peer}", self._read, link)
        return chosen

    # ***** receiving *****

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self._unknown >= _MOST_UNKNOWN:
                connection.close()
                continue
            with self._lock:
                self._unknown += 1
            self._thread("greet", self._greeted, connection)

    def _greeted(self, connection: socket.socket) -> None:
        try:
            peer = welcome(connection, self._token, self.me)
            self._begin(connection, peer)
        except (Stranger, OSError, WorkerGoneError):
            connection.close()
        finally:
            with self._lock:
                self._unknown -= 1

    def _read(self, link: Link) -> None:
        why = "its connection was closed"
        try:
            while (frame := read_frame(link.stream)) is not None:
                if frame.kind == FrameType.GOODBYE:
                    self._leave(link)
                    return
                self._receive(link.peer, frame)
                del frame  # its memory is free while the thread waits
        except (Malformed, OSError, ValueError) as error:
            why = f"its connection was closed ({error})"
        finally:
            link.stream.close()
        self._end(link, why)

    def _leave(self, link: Link) -> None:
        self.left.add(link.peer)
        self._note_gone(link.peer, "it has shut down")
        self._drop(link)

    def _drop(self, link: Link) -> None:
        with self._lock:
            self._open.discard(link)
            if self._links.get(link.peer) is link:
                del self._links[link.peer]
        link.close()

    def _end(self, link: Link, why: str) -> None:
        self._drop(link)
        if not self._closed:
            self._note_gone(link.peer, f"it died, or {why}")

    def _note_gone(self, peer: int, why: str) -> None:
        with self._lock:
            first = peer not in self._gone
            self._gone.setdefault(peer, why)
        if first:
            self._lost(peer, self._gone[peer])

    @property
    def gone(self) -> dict[int, str]:
        """Workers that have died or left, and how."""
        return self._gone

    # ***** the end *****

    def close(self) -> None:
        """Say goodbye, and end all connections; the port is free."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            links = list(self._open)
        _shut(self._listener)
        for link in links:
            try:
                link.send(Frame(FrameType.GOODBYE, 0, (), []))
            except OSError:
                pass  # it has gone too
            self._drop(link)

    def _forget(self) -> None:
        """In a forked process: the connections are the parent's."""
        self._closed = True
        self._listener.close()
        for link in self._open:
            if link.socket.fileno() >= 0:
                os.close(link.socket.detach())


def _shut(listener: socket.socket) -> None:
    """Close a listener, and wake the thread that accepts."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # not every system wakes it so
    listener.close()


_OPEN: weakref.WeakSet[Network] = weakref.WeakSet()


def _forget_all() -> None:
    for network in list(_OPEN):
        network._forget()


os.register_at_fork(after_in_child=_forget_all)
