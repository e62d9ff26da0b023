"""Measures rushlight beside PyTorch, row by row in turn, and prints medians, ratios and claims.  See README.md."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import startup
from rows import ROWS

HERE = Path(__file__).resolve().parent


class Worker:
    """A process that measures one framework."""

    def __init__(self, module: str, threads: int, budget: float) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        argv = [sys.executable, str(HERE / "worker.py"), module, "--threads", str(threads), "--budget", str(budget)]
        self.module = module
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.version = self._read()["version"]

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the process died", "version": "?"}

    def ask(self, name: str) -> dict[str, Any]:
        """Measure one row."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return {"error": "the process died"}
        return self._read()

    def close(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # it is gone already
        self.process.wait(30)


def show_time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.0f} ns"


def show_row(name: str, ours: float | None, theirs: float | None, claim: float, note: str = "") -> str:
    ratio = theirs / ours if ours and theirs else None
    verdict = "" if ratio is None else "holds" if ratio >= claim else "missed"
    cells = [
        f"{name:36s}",
        f"{show_time(ours) if ours else note or 'n/a':>10s}",
        f"{show_time(theirs) if theirs else 'n/a':>10s}",
        f"{f'{ratio:.2f}' if ratio else '':>7s}",
        f"{claim:>6g}  {verdict}",
    ]
    return " ".join(cells)


def lowest(rows: list[dict[str, Any]]) -> float | None:
    medians = [r["median"] for r in rows if "median" in r]
    return min(medians) if medians else None


def measure_rows(args: argparse.Namespace, peer: str | None, results: dict[str, Any]) -> None:
    """The rows that run inside a living process."""
    names = [name for name in ROWS if re.search(args.only, name)]
    if not names:
        return
    modules = ["rushlight", *([peer] if peer else [])]
    workers = [Worker(module, args.threads, args.budget) for module in modules]
    print("  ".join(f"{w.module} {w.version}" for w in workers) + f", {args.threads} threads", flush=True)
    for name in names:
        answers: dict[str, list[dict[str, Any]]] = {w.module: [] for w in workers}
        for turn in range(args.rounds):
            for w in workers[:: 1 if turn % 2 else -1]:
                answers[w.module].append(w.ask(name))
        ours, theirs = lowest(answers["rushlight"]), lowest(answers.get(peer or "", []))
        error = next((r["error"] for r in answers["rushlight"] if "error" in r), "")
        results[name] = {"rushlight": ours, "peer": theirs, "claim": ROWS[name].claim, "error": error}
        print(show_row(name, ours, theirs, ROWS[name].claim, "failed"), error, flush=True)
    for w in workers:
        w.close()


def measure_startup(args: argparse.Namespace, peer: str | None, results: dict[str, Any]) -> None:
    """The rows that are whole processes."""
    alone = startup.python_alone(args.rounds)
    for name, (claim, _) in startup.PROGRAMS.items():
        if not re.search(args.only, name):
            continue
        ours = startup.wall_time("rushlight", name, args.rounds)
        theirs = startup.wall_time(peer, name, args.rounds) if peer else None
        if name == "startup/import":  # what the import adds to Python itself
            ours, theirs = max(ours - alone, 1e-4), theirs and theirs - alone
        results[name] = {"rushlight": ours, "peer": theirs, "claim": claim}
        print(show_row(name, ours, theirs, claim), flush=True)
    if re.search(args.only, "startup/new_kernel"):
        took = startup.new_kernel_median()
        results["startup/new_kernel"] = {"rushlight": took}
        print(
            f"{'startup/new_kernel':36s} {show_time(took):>10s}   claim: under 25 ms: {'holds' if took < 0.025 else 'missed'}"
        )
    if re.search(args.only, "startup/installed_size"):
        size = startup.installed_megabytes("rushlight", "numpy", "llvmlite")
        results["startup/installed_size"] = {"rushlight": size}
        print(
            f"{'startup/installed_size':36s} {size:7.0f} MB   claim: under 300 MB: {'holds' if size < 300 else 'missed'}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="rows whose name matches this regular expression")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of samples for a row and round")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peer", default="torch", help="the module to compare with")
    parser.add_argument("--json", type=Path, help="write the figures into this file")
    args = parser.parse_args()
    peer = args.peer if importlib.util.find_spec(args.peer) is not None else None
    if peer is None:
        print(f"{args.peer} is not installed: figures without ratios")
    results: dict[str, Any] = {}
    print(f"{'row':36s} {'rushlight':>10s} {peer or '':>10s} {'ratio':>7s} {'claim':>6s}")
    measure_rows(args, peer, results)
    measure_startup(args, peer, results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
