"""The store process: a small Python process around a store server, which ends when nobody needs it any more.

Its owner binds the port and hands it over, so clients may connect at once. It shares a pipe with its owner: when that
closes (the owner ends, however it does), the port is free at once, and the process ends with its last connection.
"""

from __future__ import annotations

import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import weakref

from rushlight._distributed.errors import DistNetworkError

__all__ = ["StoreProcess", "allow_many_files", "listen"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# The package by its name alone: what `rushlight/__init__.py` loads is not needed, and would take a while.
BARE = (
    "import sys, types; package = sys.modules['rushlight'] = types.ModuleType('rushlight'); package.__path__ = [sys.argv[1]]\n"
    "from rushlight._distributed.launch.serving import serve; serve(int(sys.argv[2]), int(sys.argv[3]))"
)
_BACKLOG = 4096
LOOPBACK = ("localhost", "127.0.0.1", "::1")


def listen(host: str, port: int, descriptor: int | None = None) -> socket.socket:
    """A listening socket: on loopback for names of it, else on all addresses; DistNetworkError if the port is taken.

    With `descriptor`, the socket that it is, which must listen on `port` (0: whichever).
    """
    if descriptor is not None:
        taken = socket.socket(fileno=os.dup(descriptor))
        if port and taken.getsockname()[1] != port:
            raise DistNetworkError(f"the listening socket has the port {taken.getsockname()[1]}, not {port}")
        taken.listen(_BACKLOG)
        return taken
    local = host in LOOPBACK or host.startswith("127.")
    try:
        if not local and socket.has_dualstack_ipv6():
            return socket.create_server(("", port), family=socket.AF_INET6, backlog=_BACKLOG, dualstack_ipv6=True)
        family = socket.AF_INET6 if host == "::1" else socket.AF_INET
        address = "127.0.0.1" if host == "localhost" else host if local else ""
        return socket.create_server((address, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, str(error.errno))
        raise DistNetworkError(
            f"The server socket has failed to listen on any local network address. host: {host}, port: {port}, name: {code},"
            f" message: {os.strerror(error.errno).lower() if error.errno else error}"
        ) from None


def allow_many_files(count: int | None = None) -> None:
    """Let this process open more files: `count` of them, or as many as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if count is None else min(count, hard)
    if soft != resource.RLIM_INFINITY and wanted > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class StoreProcess:
    """Owns a store process that serves `listener`; `close` lets it end."""

    def __init__(self, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        read, lifeline = os.pipe()
        files = (listener.fileno(), read)
        command = [sys.executable, "-I", "-S", "-c", BARE, _PACKAGE, *map(str, files)]
        try:
            self._process = subprocess.Popen(
                command, pass_fds=files, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
            )
        finally:
            os.close(read)
            listener.close()
        self._end = weakref.finalize(self, _let_end, self._process, lifeline, os.getpid())

    def kill(self) -> None:
        """End the process at once, also one that is stopped: the port is free afterwards."""
        self._process.kill()
        self._process.wait()
        self._end()

    def close(self) -> None:
        """Free the port, and let the process end when the last client has gone."""
        self._end()


def _let_end(process: subprocess.Popen[bytes], lifeline: int, owner: int) -> None:
    """Close the pipe, which tells the process that its owner has gone; a child of the owner's leaves it alone."""
    if os.getpid() != owner:
        return
    os.close(lifeline)
    process.send_signal(signal.SIGCONT)  # one that is stopped would not notice
    try:
        threading.Thread(target=process.wait, daemon=True).start()  # leaves no zombie
    except RuntimeError:  # the interpreter ends
        process.returncode = 0
