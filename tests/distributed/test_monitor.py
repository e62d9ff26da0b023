"""Ranks that die, stop, fail or leave, as the others see it: several faults in the same few processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import rushlight.distributed as dist
from rushlight._distributed.errors import RankFailedError
from rushlight._distributed.launch.monitor import STORE, Monitor

# A rank that says what it is told to: its monitor's state, or how it ends.
RANK = """
import os, sys
from rushlight._distributed.launch.monitor import Monitor
port, job, rank, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
monitor = Monitor(("localhost", port), job, rank, size)
monitor.enter("all_reduce #7")
print("ready", flush=True)
word = sys.stdin.readline().strip()
if word == "fork" and os.fork() == 0:
    import time
    [os.close(descriptor) for descriptor in (0, 1, 2)]
    time.sleep(3)
if word == "raise":
    raise ValueError("bad data")
if word == "fork":
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def store():
    return dist.TCPStore("localhost", 0, is_master=True)


class Ranks:
    def __init__(self, store, job: str, size: int) -> None:
        self.monitor = Monitor(("localhost", store.port), job, 0, size)
        command = [sys.executable, "-c", RANK, str(store.port), job]
        self.processes = {
            rank: subprocess.Popen(
                [*command, str(rank), str(size)], stdin=-1, stdout=-1, stderr=subprocess.DEVNULL, text=True
            )
            for rank in range(1, size)
        }
        for process in self.processes.values():
            assert process.stdout.readline() == "ready\n"

    def tell(self, rank: int, word: str) -> None:
        self.processes[rank].stdin.write(word + "\n")
        self.processes[rank].stdin.flush()

    def failure(self) -> RankFailedError:
        limit = time.monotonic() + 30
        while time.monotonic() < limit:
            try:
                self.monitor.check()
            except dist.DistBackendError as error:
                return error
            time.sleep(0.01)
        raise AssertionError("nothing was noticed")

    def end(self) -> None:
        self.monitor.close()
        for process in self.processes.values():
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    "fault, says",
    [
        ("kill", "rank 1 died"),
        ("stop", "rank 1 has given no sign of life for "),
        ("raise", "rank 1 failed: ValueError: bad data"),
        ("fork", "rank 1 died"),
    ],
)
def test_a_rank_that_fails_is_named(store, fault, says) -> None:
    ranks = Ranks(store, fault, 2)
    try:
        ranks.monitor.check()
        if fault in ("kill", "stop"):
            os.kill(ranks.processes[1].pid, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        else:
            ranks.tell(1, fault)
        error = ranks.failure()
        assert error.rank == 1 and says in str(error)
    finally:
        ranks.end()


def test_ranks_say_what_they_do_and_that_they_end(store) -> None:
    ranks = Ranks(store, "notices", 2)
    try:
        ranks.monitor.enter("broadcast #8")
        assert ranks.monitor.notices(10) == {0: "broadcast #8", 1: "all_reduce #7"}
        ranks.tell(1, "end")
        ranks.processes[1].wait(10)
        limit = time.monotonic() + 5
        while not ranks.monitor.left and time.monotonic() < limit:
            time.sleep(0.01)
        ranks.monitor.check()
        ranks.monitor.check([0], waited=60)
        with pytest.raises(RankFailedError, match="rank 1 has ended, and rank 0 waits for it in broadcast #8"):
            ranks.monitor.check([0, 1], waited=60)
    finally:
        ranks.end()


def test_a_store_process_that_dies_is_named() -> None:
    store = dist.TCPStore("localhost", 0, is_master=True)
    ranks = Ranks(store, "alone", 1)
    store._process._process.kill()
    error = ranks.failure()
    assert error.rank == STORE and "lost the store process" in str(error)
    ranks.end()
