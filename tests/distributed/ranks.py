"""A pool of ranks: processes of one job that run functions sent to them, started once for a session.

A function is named by its module and name, and called with `(rank, size, *arguments)` on every rank.  What it returns is
pickled; an exception comes back as text.  Whoever takes too long is killed.
"""

from __future__ import annotations

import importlib
import os
import pickle
import select
import struct
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
START = "import sys; from tests.distributed.ranks import serve; serve(*map(int, sys.argv[1:]))"


class RankError(AssertionError):
    """What went wrong on ranks: rank -> traceback."""

    def __init__(self, errors: dict[int, str]) -> None:
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in errors.items()))
        self.errors = errors


class Ranks:
    """`size` processes that are one job."""

    def __init__(self, size: int, **environment: str) -> None:
        from rushlight._distributed.engines.progress_native import bound
        from rushlight._distributed.launch.monitor import start_beat
        from rushlight._host.stubs import bind
        from rushlight.distributed import TCPStore

        for name in ("start", "test", "wait", "run", "poll"):  # compiled here once, and found by the ranks
            bound(name)
        bind(start_beat)
        self.size, self.environment = size, environment
        self.closed = False
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
        env = {**kept, "PYTHONPATH": paths, "RUSHLIGHT_NUM_THREADS": "1", "RUSHLIGHT_FLIGHT_DUMPS": "0", **environment}
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-c", START, str(rank), str(size), str(self.store.port)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=env,
            )
            for rank in range(size)
        ]  # fmt: skip
        self._collect(time.monotonic() + 120)

    def run(self, function: Any, *arguments: Any, timeout: float = 40.0, fails: bool = False) -> list[Any]:
        """The results of a function on every rank.  RankError for what raised, unless `fails`: then the text of each
        exception, None for a rank that ended.
        """
        if self.closed:  # a test before this one took too long
            self.__init__(self.size, **self.environment)  # type: ignore[misc]
        message = pickle.dumps((function.__module__, function.__qualname__, arguments))
        for process in self.processes:
            _write(process.stdin, message)
        found = self._collect(time.monotonic() + timeout)
        if fails:
            return [None if one is None else one[1] for one in found]
        errors = {rank: "ended" if one is None else one[1] for rank, one in enumerate(found) if one is None or one[0]}
        if errors:
            raise RankError(errors)
        return [one[1] for one in found]

    def _collect(self, until: float) -> list[Any]:
        found: dict[int, Any] = {}
        while len(found) < self.size:
            waiting = {self.processes[k].stdout: k for k in range(self.size) if k not in found}
            ready, _, _ = select.select(list(waiting), [], [], max(until - time.monotonic(), 0))
            if not ready:
                late = sorted(waiting.values())
                self.close()
                raise RankError(dict.fromkeys(late, "took too long"))
            for stream in ready:
                found[waiting[stream]] = _read(stream)
        return [found[rank] for rank in range(self.size)]

    def close(self) -> None:
        """End all ranks: they go by themselves where they can.  `run` starts new ones."""
        self.closed = True
        for process in self.processes:
            for stream in (process.stdin, process.stdout):
                try:
                    stream.close()
                except OSError:
                    pass
        until = time.monotonic() + 5
        for process in self.processes:
            try:
                process.wait(max(until - time.monotonic(), 0.01))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _write(stream: Any, message: bytes) -> None:
    stream.write(struct.pack("q", len(message)) + message)
    stream.flush()


def _read(stream: Any) -> Any:
    """A message; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    return pickle.loads(stream.read(struct.unpack("q", head)[0]))


def serve(rank: int, size: int, port: int) -> None:
    """The life of a rank."""
    import rushlight as torch

    given, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what programs print

    store = torch.distributed.TCPStore("127.0.0.1", port)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=size)
    _write(answers, pickle.dumps(None))
    while (message := _read(given)) is not None:
        module, name, arguments = message
        try:
            result = (False, getattr(importlib.import_module(module), name)(rank, size, *arguments))
        except BaseException as error:
            result = (True, f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
        _write(answers, pickle.dumps(result))
    torch.distributed.destroy_process_group()
