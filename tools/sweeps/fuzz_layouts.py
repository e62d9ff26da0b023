"""Runs random programs of hostile layouts (`tests/layout_programs.py`), each in a process forked for it, and reports those that end their process.

    python tools/sweeps/fuzz_layouts.py --count 100000 [--start 0] [--jobs 2] [--together 20] [--debug-malloc] [--compare]

`--debug-malloc` lets CPython check every block of memory (`PYTHONMALLOC=debug`); `--compare` asks PyTorch too, and prints programs of which a line
works in one and raises in the other, or gives another layout.  Programs are numbered: number n is the same on every machine.  Exit status 1 where a
process ended, or an error came out that no program expects; those that used up their time are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.layout_programs import MEMORY, UNEXPECTED, program, serve  # noqa: E402

# A loop over what a hostile size asked for
SLOW = (f"signal {signal.SIGXCPU}", f"signal {signal.SIGALRM}", f"signal {signal.SIGKILL}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--together", type=int, default=1, help="programs a process; where one ends they are run again, each alone"
    )
    parser.add_argument("--debug-malloc", action="store_true")
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--shown", type=int, default=40, help="disagreements that are printed")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(options.serve, range(options.start, options.start + options.count), options.together)
        return
    sys.exit(_run(options))


def _serve(name: str, seeds: range, together: int) -> None:
    module = __import__(name)
    for seed, outcome in serve(module, seeds, 0 if name == "torch" else MEMORY, together):
        print(json.dumps([seed, outcome]), flush=True)


def _results(name: str, start: int, count: int, together: int, debug: bool) -> Iterator[tuple[int, str]]:
    command = [
        sys.executable,
        __file__,
        "--serve",
        name,
        "--start",
        str(start),
        "--count",
        str(count),
        "--together",
        str(together),
    ]
    env = os.environ | ({"PYTHONMALLOC": "debug"} if debug else {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env) as served:
        assert served.stdout is not None
        for line in served.stdout:
            if line.startswith("["):
                seed, outcome = json.loads(line)
                yield seed, outcome


def _run(options: argparse.Namespace) -> int:
    begun, each = time.monotonic(), -(-options.count // options.jobs)
    starts = [options.start + k * each for k in range(options.jobs)]
    counts = [min(each, options.start + options.count - s) for s in starts]
    streams = [
        _results("rushlight", s, n, options.together, options.debug_malloc) for s, n in zip(starts, counts, strict=True)
    ]
    beside = [
        _results("torch", s, n, 1, False) if options.compare else None for s, n in zip(starts, counts, strict=True)
    ]
    ended, raised, apart = Counter[str](), Counter[str](), Counter[str]()
    done = bad = 0
    pending = list(zip(streams, beside, strict=True))
    while pending:
        for pair in list(pending):
            found = next(pair[0], None)
            if found is None:
                pending.remove(pair)
                continue
            done += 1
            seed, outcome = found
            bad += _report(seed, outcome, ended, raised)
            other = next(pair[1], None) if pair[1] is not None else None
            if other is not None:
                _compare(seed, outcome, other[1], apart, options.shown)
            if done % 1000 == 0:
                print(f"{done} programs, {bad} bad, {time.monotonic() - begun:.0f} s", flush=True)
    missing = options.count - done
    print(
        f"{done} programs in {time.monotonic() - begun:.0f} s, {missing} missing; ended by: {dict(ended)}; errors: {dict(raised.most_common())}"
    )
    if options.compare:
        print(f"apart from PyTorch: {sum(apart.values())} lines: {dict(apart.most_common(60))}")
    return int(bad > 0 or missing > 0)


def _report(seed: int, outcome: str, ended: Counter[str], raised: Counter[str]) -> bool:
    if outcome in SLOW:
        ended["too slow"] += 1
        return False
    if not outcome or outcome.startswith("signal"):
        ended[outcome or "nothing said"] += 1
        print(f"===== {seed}: {outcome or 'nothing said'}\n" + "\n".join(program(seed)), flush=True)
        return True
    bad = False
    for line, word in zip(program(seed), outcome.split("; "), strict=True):
        if not word.startswith("("):
            raised[word] += 1
        if word in UNEXPECTED:
            bad = True
            print(f"===== {seed}: {word} of `{line}` in\n" + "\n".join(program(seed)), flush=True)
    return bad


def _compare(seed: int, mine: str, theirs: str, apart: Counter[str], shown: int) -> None:
    """Count the first line of a program that comes to something else."""
    if theirs.startswith("signal") or not theirs:
        return
    for line, a, b in zip(program(seed), mine.split("; "), theirs.split("; "), strict=False):
        if a != b and (a.startswith("(") or b.startswith("(")):
            apart[line.partition("(")[0][:30]] += 1
            if sum(apart.values()) <= shown:
                print(f"----- {seed}: `{line}` is {a}, PyTorch's {b} in\n" + "\n".join(program(seed)), flush=True)
            return


if __name__ == "__main__":
    main()
