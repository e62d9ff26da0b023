"""A program that is killed while it saves leaves the old file or the new one.  RUSHLIGHT_KILLS=1000 tries a thousand moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rushlight as torch

KILLS = int(os.environ.get("RUSHLIGHT_KILLS", "6"))

# Forks a child for every try, which saves over and over and says how long each time took.
_SAVER = """
import os, sys, time
import rushlight as torch

torch.ones(4) + 1
kind, path = sys.argv[1:]
state = {"a": torch.zeros(300_000), "b": torch.zeros(3, 100_000), "n": torch.zeros(5)}
step = 0

def save():
    if kind == "shards":
        from rushlight.serialization.sharded import save_sharded
        save_sharded(state, path, max_shard_size=(10**9, 10**6)[step % 3 > 0])
    else:
        torch.save(state, path, _use_new_zipfile_serialization=kind == "zip")

def say(what):
    os.write(1, f"{what}\\n".encode())  # a line is one write: two processes share the pipe

def timed():
    start = time.monotonic()
    save()
    say(time.monotonic() - start)

timed()
for line in sys.stdin:
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tell)
        os.read(told, 1)  # ends when the parent has said who this is
        end = time.monotonic() + 30  # nobody is left behind where the test itself ends early
        while time.monotonic() < end:
            step += 1
            for x in state.values():
                x.fill_(step)
            timed()
        os._exit(0)
    os.close(told)
    say(child)
    os.close(tell)
    os.waitpid(child, 0)
    say("dead")
"""


def state_of(kind: str, path: Path) -> dict[str, torch.Tensor]:
    if kind == "shards":
        from rushlight.serialization.sharded import load_sharded

        return load_sharded(path)
    return torch.load(path)  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["zip", "legacy", "shards"])
def test_killed_at_any_moment(kind: str, tmp_path: Path) -> None:
    if kind == "shards":
        pytest.importorskip("safetensors", reason="needs the extra 'safetensors'")
    path, rng, seen = tmp_path / "checkpoint", random.Random(3), set()
    saver = subprocess.Popen(
        [sys.executable, "-c", _SAVER, kind, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert saver.stdin is not None and saver.stdout is not None
    try:
        took = float(saver.stdout.readline())
        for _ in range(KILLS):
            saver.stdin.write("go\n")
            saver.stdin.flush()
            child = int(saver.stdout.readline())
            # Somewhere in a save that follows none, one or two whole ones, however long these take on this machine now.
            for _ in range(rng.randrange(3)):
                took = float(saver.stdout.readline())
            time.sleep(rng.random() * took)
            os.kill(child, signal.SIGKILL)
            while saver.stdout.readline() != "dead\n":
                assert saver.poll() is None
            state = state_of(kind, path)
            numbers = {value for x in state.values() for value in (x.min().item(), x.max().item())}
            assert len(numbers) == 1 and set(state) == {"a", "b", "n"}
            seen |= numbers
            for left in tmp_path.glob(".*.tmp"):
                left.unlink()
    finally:
        saver.stdin.close()
        saver.wait(60)
        saver.stdout.close()
    assert KILLS < 50 or len(seen) > 1, "no kill came after a save"
