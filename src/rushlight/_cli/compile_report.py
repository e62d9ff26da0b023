"""`python -m rushlight compile-report SCRIPT [ARGUMENTS]`: run a program, and list graphs, breaks and speed-ups of what
it compiles.

The program runs twice, each time in a process of its own: as it is, and with every compiled function running eagerly.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

from rushlight._base.alias import install
from rushlight._base.importing import import_whole
from rushlight._cli import runner

__all__ = ["main", "text_of"]

_CHILD = "--collect-into"


def main(arguments: list[str]) -> int:
    """Run the program and print the report; returns the program's exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m rushlight compile-report", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--json", metavar="FILE", help="write what was found as JSON, too")
    parser.add_argument("--once", action="store_true", help="leave out the eager run, and with it the speed-ups")
    parser.add_argument(_CHILD, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("script", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    try:
        given = parser.parse_args(arguments)
    except SystemExit as done:
        return int(done.code or 0)
    if given.collect_into:
        how, path = given.collect_into
        return _collect(how, path, given.script, given.arguments)
    status, compiled = _child("compiled", given.script, given.arguments)
    if compiled is None:
        return status or 1
    eager = None if given.once or status else _child("eager", given.script, given.arguments, quiet=True)[1]
    print(text_of(compiled, eager), flush=True)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump({"compiled": compiled, "eager": eager}, file, indent=1)
    return status


def _child(how: str, script: str, arguments: Sequence[str], quiet: bool = False) -> tuple[int, dict[str, Any] | None]:
    """The program's exit status, and what was collected in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "found.json")
        words = [sys.executable, "-m", "rushlight", "compile-report", _CHILD, how, path, script, *arguments]
        status = subprocess.run(words, stdout=subprocess.DEVNULL if quiet else None, check=False).returncode
        if not os.path.exists(path):
            return status, None
        with open(path, encoding="utf-8") as file:
            return status, json.load(file)


def _collect(how: str, path: str, script: str, arguments: Sequence[str]) -> int:
    """Run the program here, and write what its compiled functions did."""
    install()
    report = import_whole("rushlight.compiler.report")
    if how == "eager":
        import_whole("rushlight.compiler").set_stance("force_eager")
    with report.collecting() as found:
        try:
            return runner.run_script(script, list(arguments))
        finally:
            with open(path, "w", encoding="utf-8") as file:
                json.dump(found.plain(), file)


def _steady(times: Sequence[float]) -> float:
    """The time of a call in microseconds once everything is compiled: the median of the second half."""
    return statistics.median(times[len(times) // 2 :]) * 1e6


def text_of(compiled: Mapping[str, Any], eager: Mapping[str, Any] | None) -> str:
    """The report in lines."""
    lines = ["", f"{len(compiled['times'])} compiled functions, {compiled['graphs']} graphs"]
    for name, times in compiled["times"].items():
        if not times:
            lines.append(f"  {name}: never called")
            continue
        line = f"  {name}: {len(times)} calls, the first {times[0] * 1e3:.1f} ms, then {_steady(times):.1f} us"
        other = (eager or {}).get("times", {}).get(name)
        if other:
            line += f"; eager {_steady(other):.1f} us, {_steady(other) / _steady(times):.2f} times as long"
        lines.append(line)
    for title, rows in (
        (
            "breaks",
            [f"{where}: {reason.splitlines()[0]} ({count} times)" for where, reason, count in compiled["breaks"]],
        ),
        ("compiled again", [f"{text} ({count} times)" for text, count in compiled["recompilations"].items()]),
        ("not compiled", [f"{text} ({count} times)" for text, count in compiled["failures"].items()]),
    ):
        lines.append(f"{title}: {'none' if not rows else ''}".rstrip())
        lines += [f"  {row}" for row in rows]
    return "\n".join(lines)
