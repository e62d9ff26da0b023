"""First passes of whole models: with an empty kernel cache, in a second process, and steady, beside PyTorch.

    python bench/first_pass.py                          # all models of models.py
    python bench/first_pass.py --only tiny_t5 --rounds 5 --json out.json

Every figure is of a process of its own that builds the model and then times its passes; importing and building are columns apart.
An empty cache is a new folder, the second process finds what the first one left there.  The lowest of some rounds
counts, in turn with PyTorch's; a process before them that is not counted writes bytecode and reads files.  Both
sides begin from the same seed, and first losses that differ are printed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from models import MODELS

ROOT = Path(__file__).resolve().parents[1]
STEADY = 7  # passes after the first two whose median counts
GOALS = {"tiny_t5": "0.1 s again, 0.6 s empty"}  # seconds; of the others a multiple of PyTorch's first pass
OTHERS = "1.5 x again, 3 x empty"


def work(module: str, name: str, threads: int) -> None:
    """The process that is measured: prints a line of JSON."""
    clock = time.perf_counter
    began = clock()
    t = importlib.import_module(module)
    imported = clock()
    t.set_num_threads(threads)
    t.manual_seed(0)
    step = MODELS[name](t)
    times = [clock()]
    built = times[0] - imported
    value = None
    for _ in range(2 + STEADY):
        found = step()
        times.append(clock())
        value = float(found) if value is None else value
    passes = [b - a for a, b in itertools.pairwise(times)]
    answer = {"import": imported - began, "build": built, "first": passes[0], "second": passes[1]}
    print(json.dumps({**answer, "steady": statistics.median(passes[2:]), "value": value}))


def measured(module: str, name: str, threads: int, cache: str) -> dict[str, float]:
    """What one process says."""
    env = {**os.environ, "RUSHLIGHT_CACHE_DIR": cache, "RUSHLIGHT_NOTICES": "0"}
    env |= {"OMP_NUM_THREADS": str(threads), "RUSHLIGHT_NUM_THREADS": str(threads)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, __file__, "--work", module, name, str(threads)]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} with {module} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(name: str, peer: str | None, threads: int, rounds: int) -> dict[str, dict[str, float]]:
    """The lowest figures of each of `empty`, `again` (the second process) and the peer."""
    answers: dict[str, list[dict[str, float]]] = {"empty": [], "again": []}
    for turn in range(rounds + 1):
        with tempfile.TemporaryDirectory() as cache:
            both = {way: measured("rushlight", name, threads, cache) for way in ("empty", "again")}
            if peer:
                both[peer] = measured(peer, name, threads, cache)
        for way, answer in both.items() if turn else ():
            answers.setdefault(way, []).append(answer)
    return {way: {key: min(a[key] for a in found) for key in found[0]} for way, found in answers.items()}


def machine(threads: int, peer: str | None) -> str:
    """What the figures were taken on."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.machine()
    )
    versions = [f"Python {platform.python_version()}"]
    if peer:
        versions.append(f"{peer} {importlib.import_module('importlib.metadata').version(peer)}")
    shipped = any((ROOT / "src" / "rushlight" / "_native" / "packs").glob("*.pack"))
    code = "with the object code that a wheel carries" if shipped else "without a wheel's object code (make wheel)"
    return f"{model}, {os.cpu_count()} cores, {threads} threads; {', '.join(versions)}; {code}"


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def row(name: str, found: dict[str, dict[str, float]], peer: str | None) -> str:
    empty, again = found["empty"], found["again"]
    seconds = [empty["first"], again["first"], again["second"], again["steady"], again["import"], again["build"]]
    cells = [f"{name:20s}", *(f"{value:8.3f}" for value in seconds)]
    if peer:
        theirs = found[peer]
        cells += [f"{theirs[key]:8.3f}" for key in ("first", "steady", "import")]
        pairs = (
            (empty["first"], theirs["first"]),
            (again["first"], theirs["first"]),
            (again["steady"], theirs["steady"]),
        )
        cells += [f"{a / b:7.2f}" for a, b in pairs]
    return " ".join([*cells, "", GOALS.get(name, "" if name.startswith("tiny") else OTHERS)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models whose name matches this regular expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer", default="torch", help="the module to compare with")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work[0], options.work[1], int(options.work[2]))
        return
    peer = options.peer if importlib.util.find_spec(options.peer) is not None else None
    print(machine(options.threads, peer))
    heads = ["empty", "again", "2nd", "steady", "import", "build"]
    theirs = ["first", "steady", "import"] if peer else []
    ratios = ["empty/", "again/", "steady/"] if peer else []
    print(
        f"{'seconds':20s} "
        + " ".join([*(f"{h:>8s}" for h in (*heads, *theirs)), *(f"{h:>7s}" for h in ratios), " goal"])
    )
    results: dict[str, Any] = {}
    for name in (name for name in MODELS if re.search(options.only, name)):
        results[name] = found = measure(name, peer, options.threads, options.rounds)
        print(row(name, found, peer), flush=True)
        if peer and abs(found["empty"]["value"] - found[peer]["value"]) > 1e-2 * abs(found[peer]["value"]):
            print(f"  first results differ: {found['empty']['value']:.5g} and {found[peer]['value']:.5g}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
