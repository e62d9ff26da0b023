"""Within the store process: serve until the owner has gone, and a little longer for those who are still connected."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time

from rushlight._distributed.launch.store_process import allow_many_files
from rushlight._distributed.stores.server import Server

__all__ = ["serve"]

_LINGERS = 10.0  # seconds that other connections than those of ranks may outlive the owner


def serve(listener: int, lifeline: int) -> None:
    """Serve the listening socket with this descriptor until `lifeline` closes, and then those who are connected."""
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    allow_many_files()
    os.set_blocking(lifeline, False)
    server = Server(socket.socket(fileno=listener))
    server.selector.register(lifeline, selectors.EVENT_READ)
    parent = os.getppid()
    while os.getppid() == parent and not _ended(lifeline):
        server.step()
    server.selector.unregister(lifeline)
    server.stop_listening()
    until = time.monotonic() + _LINGERS
    while server.watch or (server.connections and time.monotonic() < until):
        server.step()


def _ended(lifeline: int) -> bool:
    try:
        return os.read(lifeline, 1) == b""
    except BlockingIOError:
        return False
