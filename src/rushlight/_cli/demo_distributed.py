"""`python -m rushlight demo --distributed`: a GPT on one process, by DDP and by `fully_shard`; a rank is killed on the way."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from rushlight._base.errors import install_command

__all__ = ["main"]

_NEEDS = {"tqdm": "examples", "mpi4py": "mpi"}
_KINDS = {"one": "one process", "ddp": "DDP", "fsdp": "FSDP2"}
_RANKS, _KILL_AT, _EVERY = 2, 6, 2  # a rank dies in the backward pass of this step; checkpoints every so many steps
_ROUNDING = 1e-5  # sums may be taken in another order
_WITHIN = 1800.0  # seconds for one job, on a slow machine too


class Run(NamedTuple):
    """Outcome of one job: its losses by step, in both attempts, and the times of events."""

    losses: dict[int, float]  # the last attempt's, and those of the first up to the checkpoint
    again: dict[int, tuple[float, float]]  # steps that were done twice: both losses
    median: float  # seconds of a step
    named: str  # the line in which the launcher names the failed rank
    after: float | None  # seconds from the kill to that line
    resumed: tuple[int, float] | None  # the first step of the second attempt, and seconds from the kill to its end


def main(script: Path, out: Path, size: str, steps: int) -> int:
    """Run the three jobs and print a table; the exit status is 1 if a loss differs from that of one process."""
    absent = sorted({extra for module, extra in _NEEDS.items() if find_spec(module) is None})
    if absent:
        print(f"the demo of several processes needs more: {install_command(','.join(absent))}", file=sys.stderr)
        return 1
    if steps < _KILL_AT:
        print(f"a rank is killed in step {_KILL_AT}: ask for as many --steps", file=sys.stderr)
        return 2
    runs = {}
    for how in _KINDS:
        folder = out / how
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        print(f"\n--- {_title(how)} ---", flush=True)
        try:
            lines = _job(how, [str(script), "--how", how, "--size", size, "--steps", str(steps), "--out", str(folder)])
        finally:
            for checkpoint in folder.glob("step*"):  # a gigabyte
                shutil.rmtree(checkpoint)
        runs[how] = _read(folder, lines)
    return _report(runs, steps)


def _title(how: str) -> str:
    return (
        _KINDS[how]
        if how == "one"
        else f"{_KINDS[how]}, {_RANKS} ranks; rank {_RANKS - 1} is killed in step {_KILL_AT}"
    )


def _job(how: str, words: list[str]) -> list[tuple[float, str]]:
    """Run a job and show what it prints: its lines, and when they came."""
    command = [sys.executable, "-m", "rushlight"]
    if how == "one":
        words = [*words, "--every", "1000000"]
    else:
        command += ["-m", "rushlight.distributed.run", "--standalone", f"--nproc-per-node={_RANKS}", "--max-restarts=1"]
        words = [*words, "--every", str(_EVERY), "--kill-at", str(_KILL_AT)]
    paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    lines: list[tuple[float, str]] = []
    process = subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.append((time.time(), line.rstrip()))
            print(line, end="", flush=True)
    except BaseException:
        process.terminate()
        raise
    if process.wait(_WITHIN):
        raise SystemExit(f"the job ended with status {process.returncode}")
    return lines


def _read(folder: Path, lines: list[tuple[float, str]]) -> Run:
    """Read the journals of a job's ranks."""
    records = [json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()]
    first = [r for r in records if "step" in r and r["attempt"] == 0]
    second = [r for r in records if "step" in r and r["attempt"] == 1]
    before = {r["step"]: r["loss"] for r in first}
    after = {r["step"]: r["loss"] for r in second}
    killed = next((r["time"] for r in records if "killed" in r), None)
    named = next(((when, text) for when, text in lines if "failed (exit code" in text), (None, ""))
    return Run(
        {**before, **after},
        {step: (before[step], after[step]) for step in before.keys() & after.keys()},
        statistics.median(r["seconds"] for r in first),
        named[1],
        None if killed is None or named[0] is None else named[0] - killed,
        None if killed is None or not second else min((r["step"], r["time"] - killed) for r in second),
    )


def _report(runs: dict[str, Run], steps: int) -> int:
    """Print the losses beside each other, and what became of the killed rank."""
    print("\n" + f"{'step':>4}" + "".join(f"{_KINDS[how]:>16}" for how in runs))
    worst = 0.0
    for step in range(1, steps + 1):
        cells, note = "", ""
        for run in runs.values():
            cells += f"{run.losses[step]:16.8f}"
            worst = max(worst, abs(run.losses[step] - runs["one"].losses[step]))
            if step in run.again:
                note = "   done twice: before the kill, and again from the checkpoint"
                worst = max(worst, abs(run.again[step][0] - run.again[step][1]))
        print(f"{step:4}{cells}{note}")
    print(
        "a step"
        + "".join(f"{run.median:12.2f} s" if how == "one" else f"{run.median:14.2f} s" for how, run in runs.items())
    )
    for how, run in runs.items():
        if run.after is not None and run.resumed is not None:
            print(f"{_KINDS[how]}: torchrun said after {run.after:.2f} s: {run.named}")
            print(
                f"{'':{len(_KINDS[how])}}  step {run.resumed[0]} was done again {run.resumed[1]:.1f} s after the kill"
            )
    lost = [how for how, run in runs.items() if how != "one" and (run.resumed is None or not run.again)]
    if lost:
        print(f"no rank was killed, or nothing was done again: {', '.join(lost)}")
    print("the losses are equal, bit for bit" if not worst else f"the losses differ by up to {worst:.2g}")
    return 1 if worst > _ROUNDING or lost else 0
