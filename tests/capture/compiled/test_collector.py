"""The collector of cycles behind a compilation: what was made is old, and looked at before there is too much of it."""

from __future__ import annotations

import gc
import subprocess
import sys

from rushlight._base.collector import uncollected

PROGRAM = """
import gc
from rushlight._base import collector

def made(count):
    for _ in range(count):  # as many lists that only know themselves as that live
        lost = []
        lost.append(lost)
    return [[] for _ in range(count)]

gc.collect()
before = gc.get_stats()
with collector.uncollected():
    held = made(5000)
assert gc.isenabled() and gc.get_count()[0] < gc.get_threshold()[0]
assert gc.get_stats() == before, "nothing was walked"
assert gc.collect() >= 5000 and len(held) == 5000, "a full collection finds the cycles"

collector._MOST, full = 25_000, gc.get_stats()[2]["collections"]
for _ in range(4):
    with collector.uncollected():
        made(10_000)
assert gc.get_stats()[2]["collections"] == full + 1, "too much was looked at"

gc.freeze()
frozen = gc.get_freeze_count()
with collector.uncollected():
    others = made(5000)
assert gc.get_freeze_count() == frozen, "what a program froze stays frozen"
"""


def test_what_was_made_is_old() -> None:
    """In a process of its own: objects of this one are frozen."""
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)


def test_a_collector_that_is_off_stays_off() -> None:
    enabled = gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        if enabled:
            gc.enable()
