"""Whether an agent is alive, for those who ask by HTTP."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["HealthCheckServer", "create_healthcheck_server"]


class HealthCheckServer:
    """Answers requests at a port of loopback: 200 if `alive_callback()`, a time in seconds, is at most `timeout` ago, else 503.

    >>> import time, urllib.request
    >>> from rushlight.distributed.elastic.agent.server.health_check_server import create_healthcheck_server
    >>> server = create_healthcheck_server(lambda: int(time.time()), 0, 60)
    >>> server.start()
    >>> urllib.request.urlopen(f"http://127.0.0.1:{server.port}/").status
    200
    >>> server.stop()
    """

    def __init__(self, alive_callback: Callable[[], int], port: int, timeout: int) -> None:
        self._alive, self._timeout, self._wanted = alive_callback, timeout, port
        self._server: ThreadingHTTPServer | None = None

    @property
    def port(self) -> int:
        """The port; that of the server where 0 was asked for."""
        return self._wanted if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Answer from now on, on a thread."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self._wanted), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="health-check", daemon=True).start()

    def stop(self) -> None:
        """Answer no more; the port is free."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def alive(self) -> bool:
        """Whether the last sign of life is young enough."""
        return time.time() - self._alive() <= self._timeout


def _handler(server: HealthCheckServer) -> Any:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            alive = server.alive()
            self.send_response(200 if alive else 503)
            self.end_headers()
            self.wfile.write(b"alive\n" if alive else b"no sign of life\n")

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    return Handler


def create_healthcheck_server(alive_callback: Callable[[], int], port: int, timeout: int) -> HealthCheckServer:
    """A server that is not started yet."""
    return HealthCheckServer(alive_callback, port, timeout)
