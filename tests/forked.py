"""Programs in forks of one process that has imported the package: an interpreter's start and the import are paid for once.

For programs whose start is not what a test is about.  The process does nothing but import, so that a fork of it is like a new interpreter.
"""

from __future__ import annotations

import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


class Forked:
    """`run(script)`: what a script prints and how it ends, as `subprocess.run` tells it."""

    def __init__(self) -> None:
        self.server: subprocess.Popen[bytes] | None = None

    def run(self, script: Path, *, cwd: Path, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        if self.server is None or self.server.poll() is not None:
            self.server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            self._send({"script": str(script), "cwd": str(cwd), "out": str(out), "err": str(err)})
            until = time.monotonic() + timeout
            pid = self._receive(until)
            try:
                status = self._receive(until)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._receive(time.monotonic() + 60)
                raise
            return subprocess.CompletedProcess([str(script)], status, out.read_text(), err.read_text())

    def close(self) -> None:
        """End the process.  It may not see the end of its input: processes that tests left hold the pipe, too."""
        if self.server is not None:
            self.server.kill()
            self.server.wait()
            for pipe in (self.server.stdin, self.server.stdout):
                assert pipe is not None
                pipe.close()

    def _send(self, what: dict[str, str]) -> None:
        assert self.server is not None and self.server.stdin is not None
        self.server.stdin.write(json.dumps(what).encode() + b"\n")
        self.server.stdin.flush()

    def _receive(self, until: float) -> int:
        assert self.server is not None and self.server.stdout is not None
        ready, _, _ = select.select([self.server.stdout], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            raise TimeoutError("the program takes too long")
        return int.from_bytes(self.server.stdout.read(4), "little", signed=True)


def serve() -> dict[str, str] | None:
    """Fork for each script that is asked for.  Returns what to run in the fork, and None in the process itself at the end."""
    import llvmlite.binding
    import numpy

    import rushlight

    rushlight.empty(0)  # loads what the first call loads
    assert llvmlite.binding and numpy
    for line in sys.stdin.buffer:
        pid = os.fork()
        if not pid:
            asked: dict[str, str] = json.loads(line)
            return asked
        _tell(pid)
        _tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    return None


def _tell(number: int) -> None:
    os.write(1, number.to_bytes(4, "little", signed=True))


def become(asked: dict[str, str]) -> dict[str, Any]:
    """Be the interpreter that `python SCRIPT` starts."""
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, asked["out"], os.O_WRONLY | os.O_CREAT),
        (2, asked["err"], os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(asked["cwd"])
    sys.argv, sys.path[0] = [asked["script"]], str(Path(asked["script"]).parent)
    return runpy.run_path(asked["script"], run_name="__main__")


if __name__ == "__main__":
    program = serve()
    if program is not None:
        become(program)
