"""One connection between two workers: how they prove to each other that they belong to one job, what they send, and a
thread that reads.

Both sides know the job's token, which never travels here: each answers the other's random bytes with a keyed hash of
them (HMAC-SHA256).  Nothing else is read before.
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
import threading
import time
from typing import Any

from rushlight._base.forking import free_after_fork
from rushlight._distributed.calls.frames import Frame, packed_frame

__all__ = ["ANSWERS_WITHIN", "Link", "Stranger", "greet", "welcome"]

_HELLO = b"rushlight calls 1"
_IDS = struct.Struct("<II")
_NONCE, _MAC = 16, 32
ANSWERS_WITHIN = 10.0  # seconds for each step of the greeting
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 5))
_MOST_BUFFERS = 512  # that one call of the system takes


class Stranger(Exception):
    """The other side does not know the job's token."""


def _proof(token: bytes, side: bytes, *facts: bytes) -> bytes:
    return hmac.digest(token, side + b"".join(facts), "sha256")


def _exactly(connection: socket.socket, size: int) -> bytes:
    found, until = b"", time.monotonic() + ANSWERS_WITHIN
    while len(found) < size:
        connection.settimeout(max(until - time.monotonic(), 0.01))  # also for one that comes byte by byte
        came = connection.recv(size - len(found))
        if not came:
            raise Stranger("the connection ended within the greeting")
        found += came
    return found


def greet(connection: socket.socket, token: bytes, me: int, other: int) -> None:
    """The side that has connected: Stranger unless worker `other` answers."""
    hello = _exactly(connection, len(_HELLO) + _NONCE)
    if not hello.startswith(_HELLO):
        raise Stranger("what listens there is no worker")
    theirs, ours, ids = hello[len(_HELLO) :], os.urandom(_NONCE), _IDS.pack(me, other)
    connection.sendall(ids + ours + _proof(token, b"client", theirs, ours, ids))
    if not hmac.compare_digest(_exactly(connection, _MAC), _proof(token, b"server", theirs, ours, ids)):
        raise Stranger("the worker there belongs to another job")
    connection.settimeout(None)


def welcome(connection: socket.socket, token: bytes, me: int) -> int:
    """The side that listens: who has connected, Stranger for one without the token."""
    ours = os.urandom(_NONCE)
    connection.sendall(_HELLO + ours)
    message = _exactly(connection, _IDS.size + _NONCE + _MAC)
    ids, theirs, proof = message[: _IDS.size], message[_IDS.size : -_MAC], message[-_MAC:]
    if not hmac.compare_digest(proof, _proof(token, b"client", ours, theirs, ids)):
        raise Stranger("a stranger has connected")
    who, asked = _IDS.unpack(ids)
    if asked != me:
        raise Stranger(f"worker {who} wanted worker {asked}, and this is worker {me}")
    connection.sendall(_proof(token, b"server", ours, theirs, ids))
    connection.settimeout(None)
    return int(who)


class Link:
    """A connection whose two sides know each other."""

    def __init__(self, connection: socket.socket, peer: int) -> None:
        self.socket, self.peer = connection, peer
        self._sending = free_after_fork(threading.Lock())
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        self.stream = connection.makefile("rb", buffering=64 << 10)

    def send(self, frame: Frame) -> None:
        """Send a frame: it is with the system when this returns, and its parts may change; OSError if the other side
        has gone.
        """
        buffers = packed_frame(frame)
        with self._sending:
            if len(buffers) == 1:
                self.socket.sendall(buffers[0])
            else:
                _send_all(self.socket, buffers)

    def close(self) -> None:
        """End the connection; the thread that reads wakes up."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was faster
        self.socket.close()


def _send_all(connection: socket.socket, buffers: list[Any]) -> None:
    left = [memoryview(buffer) for buffer in buffers]
    while left:
        sent = connection.sendmsg(left[:_MOST_BUFFERS])
        done = 0
        while done < len(left) and sent >= left[done].nbytes:
            sent -= left[done].nbytes
            done += 1
        left = left[done:]
        if sent:
            left[0] = left[0][sent:]
