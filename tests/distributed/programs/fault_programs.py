"""What the ranks of `test_faults` do wrong."""

from __future__ import annotations

import logging
import os
import signal
import time
from datetime import timedelta

import rushlight as torch
import rushlight.distributed as dist
from rushlight._distributed.groups.flight import FLIGHT_DUMPS, FLIGHT_FILE
from rushlight._distributed.groups.watch import LATE_AFTER
from rushlight.distributed import flight_recorder


def killed(rank: int, size: int, how: str) -> float:
    """Rank 1 is killed; the others find out, in whatever they do."""
    x = torch.ones(1000)
    dist.all_reduce(x)
    if rank == 1:
        if how == "in":
            dist.all_reduce(torch.ones(4_000_000), async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()
    try:
        if how == "async":
            dist.all_reduce(x, async_op=True).wait()
        elif how == "recv":
            dist.recv(x, 1)
        elif how == "group":
            dist.new_group([0, 1])
        elif how == "in":
            dist.all_reduce(torch.ones(4_000_000))
        else:
            dist.barrier()
    except RuntimeError as error:
        try:
            dist.all_reduce(x)
        except RuntimeError:
            dist.destroy_process_group()
            raise RuntimeError(f"{time.monotonic() - began:.3f} {type(error).__name__} {error}") from None
    raise AssertionError("no error")


def late(rank: int, size: int) -> str:
    """Rank 1 does not join: the others say so when their time is over, and what it does instead."""
    group = dist.new_group(range(size), timeout=timedelta(seconds=1.0))
    if rank == 1:
        time.sleep(2.5)
        return ""
    try:
        dist.broadcast(torch.ones(3, 2), 0, group=group)
        dist.all_reduce(torch.ones(3, 2), group=group)
    except RuntimeError as error:
        return str(error)
    raise AssertionError("no error")


class Kept(logging.Handler):
    """Keeps messages."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record.getMessage())


def recorded(rank: int, size: int, prefix: str) -> tuple[str, list[str], list[str]]:
    """Rank 1 is late for the third collective, and the others' patience is short: error, warnings, states of operations."""
    handler, log = Kept(), logging.getLogger("rushlight.distributed")
    log.addHandler(handler)
    flight_recorder.clear()
    group = dist.new_group(range(size), timeout=timedelta(seconds=20), group_desc="patient")
    error = ""
    for _ in range(2):
        dist.all_reduce(torch.ones(3, 2), group=group)
    dist.all_reduce(torch.ones(1), group=group, async_op=True).wait()
    group.set_timeout(timedelta(seconds=1.5))
    with FLIGHT_FILE.scoped(prefix), FLIGHT_DUMPS.scoped(True), LATE_AFTER.scoped(0.3):
        if rank == 1:
            time.sleep(3.5)  # it thinks
        else:
            try:
                dist.all_gather_into_tensor(torch.ones(2 * size), torch.ones(2), group=group)
            except RuntimeError as raised:
                error = str(raised)
            time.sleep(0.5)
    log.removeHandler(handler)
    entries = [e for e in flight_recorder.entries() if e["process_group"][1] == "patient"]
    return error, handler.kept, [e["state"] for e in entries]


def crossed(rank: int, size: int) -> str:
    """Ranks that use two groups in different orders, in debug mode."""
    one, two = dist.new_group(range(size)), dist.new_group(range(size))
    time.sleep(0.7 * rank)
    try:
        for group in (one, two) if rank else (two, one):
            dist.all_reduce(torch.ones(3), group=group)
    except RuntimeError as error:
        time.sleep(0.0 if rank else 1.5)  # the other one may find out later
        return str(error)
    raise AssertionError("no error")


def missing(rank: int, size: int) -> str:
    """Rank 1 does not come to a monitored barrier."""
    dist.monitored_barrier()
    if rank == 1:
        time.sleep(1.0)
    try:
        dist.monitored_barrier(timeout=timedelta(seconds=0.5), wait_all_ranks=True)
    except RuntimeError as error:
        dist.monitored_barrier()  # the next one is as good as ever
        return str(error)
    raise AssertionError("no error")


def mismatched(rank: int, size: int) -> list[str]:
    """Ranks that do different things, in debug mode."""
    found = []
    for here, there in (
        (lambda: dist.all_reduce(torch.ones(2)), lambda: dist.all_reduce(torch.ones(3))),
        (lambda: dist.all_reduce(torch.ones(2)), lambda: dist.broadcast(torch.ones(2), 0)),
        (lambda: dist.all_reduce(torch.ones(2)), lambda: dist.all_reduce(torch.ones(2, dtype=torch.float64))),
        (lambda: dist.all_reduce(torch.ones(2)), lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.MAX)),
    ):
        try:
            (there if rank else here)()
        except RuntimeError as error:
            found.append(str(error))
    x = torch.ones(2)
    dist.all_reduce(x)
    rows = [torch.empty(k) for k in range(size)]
    dist.all_gather(rows, torch.ones(rank))
    assert x.tolist() == [size] * 2
    return found


def interrupted(rank: int, size: int) -> None:
    """Ctrl-C while waiting; the group can be used afterwards."""
    if rank == 0:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            dist.all_reduce(torch.ones(2))
        except KeyboardInterrupt:
            pass
        else:
            raise AssertionError("not interrupted")
    else:
        time.sleep(0.6)
        dist.all_reduce(torch.ones(2))
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x.tolist() == [size] * 3


def abandoned(rank: int, size: int) -> None:
    """An exception of the program's own while a collective waits for a rank that does not join: nobody hangs."""
    group = dist.new_group(range(size))
    try:
        if rank:
            dist.all_reduce(torch.ones(10), group=group, async_op=True)
            raise ValueError("of the program")
    except ValueError:
        dist.destroy_process_group(group)
