"""One client of the store server: bytes that have come, bytes that wait to go, and how its requests are read."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable

from rushlight._distributed.stores.wire import COUNTER

__all__ = ["Connection", "Malformed"]

_PIECE = 1 << 18
_MOST_UNSENT = 256 << 20


class Malformed(Exception):
    """A client's message is no request."""


class _Incomplete(Exception):
    """The rest of a request has not come yet."""


class Connection:
    """A client: requests are read by `read_*` from what has come, answers are sent as the client takes them."""

    def __init__(self, connected: socket.socket, selector: selectors.BaseSelector) -> None:
        self.socket, self.selector = connected, selector
        connected.setblocking(False)
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connected, selectors.EVENT_READ, self)
        self.open = True
        self.validated = False
        self.serve: Callable[[Connection], None] = lambda client: None
        self.on_close: Callable[[Connection], None] | None = None
        self.absent: set[str] = set()  # keys that it waits for
        self.barrier = ""  # where it waits
        self._came, self._at, self._needed = bytearray(), 0, 0
        self._unsent = bytearray()

    # ***** reading *****

    def receive(self) -> None:
        """Take what has come; an end closes the connection, after what came before it is served."""
        try:
            piece = self.socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            self.close()
        self._came += piece

    def serve_all(self) -> None:
        """Serve every whole request; an incomplete one is begun anew when enough has come."""
        while len(self._came) > 0 and len(self._came) >= self._needed:
            self._at = self._needed = 0
            try:
                self.serve(self)
            except _Incomplete:
                return
            del self._came[: self._at]
        if not self._came:
            self._needed = 0

    def read_bytes(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self._at + count
        if end > len(self._came):
            self._needed = end
            raise _Incomplete
        found = bytes(memoryview(self._came)[self._at : end])
        self._at = end
        return found

    def read_byte(self) -> int:
        """The next byte."""
        return self.read_bytes(1)[0]

    def read_integer(self, low: int = -(1 << 63), high: int = (1 << 63) - 1) -> int:
        """The next integer; Malformed outside the bounds."""
        value: int = COUNTER.unpack(self.read_bytes(8))[0]
        if not low <= value <= high:
            raise Malformed(f"{value} is not within {low} and {high}")
        return value

    def read_value(self, longest: int) -> bytes:
        """The next value; Malformed if it is longer."""
        return self.read_bytes(self.read_integer(0, longest))

    def read_text(self, longest: int) -> str:
        """The next text; Malformed if it is longer or no UTF-8."""
        try:
            return self.read_value(longest).decode()
        except UnicodeDecodeError:
            raise Malformed("a key is no UTF-8") from None

    def read_line(self, longest: int) -> str:
        """The next line, without its end; Malformed if it is longer."""
        end = self._came.find(b"\n", self._at, self._at + longest)
        if end < 0:
            if len(self._came) - self._at >= longest:
                raise Malformed("a line is too long")
            self._needed = len(self._came) + 1
            raise _Incomplete
        return self.read_bytes(end + 1 - self._at)[:-1].decode("utf-8", "replace")

    # ***** writing *****

    def send(self, data: bytes) -> None:
        """Send, or keep until the client takes it; one that takes nothing is closed."""
        if not self.open:
            return
        self._unsent += data
        if len(self._unsent) > _MOST_UNSENT:
            self.close()
        elif len(self._unsent) == len(data):
            self.flush()

    def flush(self) -> None:
        """Send what is kept, as far as the client takes it."""
        try:
            sent = self.socket.send(self._unsent) if self._unsent else 0
        except BlockingIOError:
            sent = 0
        except OSError:
            self.close()
            return
        del self._unsent[:sent]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if self.selector.get_key(self.socket).events != events:
            self.selector.modify(self.socket, events, self)

    # ***** ending *****

    def fail(self, why: str) -> None:
        """End the connection of a client that does not keep to the protocol."""
        self.close()

    def close(self) -> None:
        """End the connection; `on_close` is called when the server comes to it."""
        if self.open:
            self.open = False
            self.selector.unregister(self.socket)
            self.socket.close()

    def forgotten(self) -> None:
        """Tell who wanted to know that the connection has ended."""
        if self.on_close is not None:
            self.on_close(self)
