"""Workers that die: they are named within two seconds, and nothing is left of them.

Ten deaths are part of the suite; `RUSHLIGHT_TEST_DEATHS=1000` asks for as many.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight.utils.data import DataLoader, Dataset, IterableDataset

DEATHS = int(os.environ.get("RUSHLIGHT_TEST_DEATHS", "10"))
WAYS = ("kill", "term", "segv", "abort", "exit", "leave", "raise", "memory", "outside", "stream")
NAMED = {
    "kill": "killed by signal 9", "term": "killed by signal 15", "segv": "killed by signal 11", "abort": "killed by signal 6",
    "exit": "exit code 3", "leave": "SystemExit: 5", "raise": "ZeroDivisionError", "memory": "MemoryError", "outside": "killed by signal 9",
    "stream": "killed by signal 9",
}  # fmt: skip


def die(way: str) -> None:
    signals = {
        "kill": signal.SIGKILL,
        "term": signal.SIGTERM,
        "segv": signal.SIGSEGV,
        "abort": signal.SIGABRT,
        "stream": signal.SIGKILL,
    }
    if way in signals:
        os.kill(os.getpid(), signals[way])
    if way == "exit":
        os._exit(3)
    if way == "leave":
        sys.exit(5)
    if way == "raise":
        1 / 0
    if way == "memory":
        bytearray(1 << 60)


PATIENCE = 60  # seconds that a busy machine may take; nobody waits for as long as a worker sleeps


class Dying(Dataset[Any]):
    def __init__(self, way: str, at: int) -> None:
        self.way, self.at, self.parent = way, at, os.getpid()

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if index == self.at:
            if self.way == "outside":
                time.sleep(10 * PATIENCE)
            die(self.way)
        return torch.full((500,), float(index)), index


class DyingStream(IterableDataset[Any]):
    def __init__(self, dying: Dying) -> None:
        self.dying = dying

    def __iter__(self) -> Any:
        return (self.dying[k] for k in range(40))


def left_behind() -> tuple[int, int, int, list[str]]:
    """Child processes, open descriptors, mappings of shared memory, names in shared memory."""
    gc.collect()
    maps = Path("/proc/self/maps").read_text() if os.path.exists("/proc/self/maps") else ""
    handles = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    names = [name for name in os.listdir("/dev/shm") if "rushlight" in name] if os.path.isdir("/dev/shm") else []
    return len(multiprocessing.active_children()), handles, maps.count("memfd:rushlight"), names


def one_death(way: str, chance: random.Random) -> float:
    """Seconds between a death and the error."""
    dying = Dying(way, chance.randrange(40))
    dataset: Any = DyingStream(dying) if way == "stream" else dying
    loader = DataLoader(
        dataset, batch_size=chance.choice((1, 3)), num_workers=2, persistent_workers=chance.random() < 0.5,
        in_order=chance.random() < 0.8, prefetch_factor=chance.choice((1, 2)),
    )  # fmt: skip
    batches = iter(loader)
    if way == "outside":
        victim = chance.choice(batches._pool.links).process  # type: ignore[attr-defined]
        os.kill(victim.pid, signal.SIGKILL)
    start = time.monotonic()
    with pytest.raises((RuntimeError, ZeroDivisionError, MemoryError)) as caught:
        while True:
            start = time.monotonic()
            next(batches)
    took = time.monotonic() - start
    text = str(caught.value)
    assert "DataLoader worker" in text and NAMED[way] in text, (way, text)
    return took


@pytest.mark.slow
def test_deaths_are_named_and_leave_nothing() -> None:
    chance = random.Random(0)
    one_death("kill", chance)  # loads what is loaded once
    before = left_behind()
    for k in range(DEATHS):
        took = one_death(WAYS[k % len(WAYS)], chance)
        assert took < PATIENCE, (k, took)
    assert left_behind() == before
