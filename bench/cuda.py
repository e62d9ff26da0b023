"""What a GPU gives, in one run of under nine minutes: first whether our kernels are right on it, then how fast they are beside PyTorch
and Triton, where these are installed.

    python bench/cuda.py --out FOLDER            # on a machine with a GPU
    RUSHLIGHT_CUDA=emulated python bench/cuda.py --out FOLDER --dry   # small sizes, no times: does the script itself work?
    python bench/cuda.py --out FOLDER --resume OLD/cuda.json          # in under four minutes: what failed, and what found no time

This process never touches the GPU.  Sections (`bench/cuda_sections.py`) run in processes of their own, each with its share of time, and
each row has a limit.  A row whose process dies or hangs is written down as failed; a new process goes on behind it.  `cuda.json` in the
folder is replaced after each row, so whatever ends the run, what was measured is kept.

What is not timed runs together first: correctness, and PyTorch's and our compilers, whose caches later sections find filled.  Where none
of the unit kernels is right, the run ends there.  A section that was complete and without faults is not begun again by `--resume`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parent / "cuda_sections.py"


class Section(NamedTuple):
    """A section of the run: its rows, seconds for all of them and for one, settings and further options of its process, and
    whether it runs together with its neighbours.
    """

    title: str
    rows: str
    seconds: float
    row_seconds: float = 30
    settings: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    together: bool = False


def _products(title: str, **settings: str) -> Section:
    return Section(title, "products", 30, 20, tuple(settings.items()))


_TOGETHER = 100.0  # seconds for all that runs first
_MODELS = ("gpt2", "resnet50", "llama1b")


def _warm(side: str, rows: str, **settings: str) -> Section:
    options = ("--side", side, "--only", rows)
    return Section(f"warm {side} {rows}".strip(), "warm", _TOGETHER, _TOGETHER, tuple(settings.items()), options, True)


# The most important first: what comes last may find no time left.  The sections up to `products library` have 540 seconds in all,
# where each runs to its limit.
PLAN = (
    Section("correctness", "correctness", _TOGETHER, together=True),
    Section("primitives", "primitives", _TOGETHER, 20, together=True),
    # who computes a product is measured later, when nothing runs beside it
    *(
        _warm("rushlight", rows, RUSHLIGHT_CUDA_GEMM="ours", RUSHLIGHT_CUDA_CONVOLUTIONS="ours")
        for rows in (*_MODELS, "row ")
    ),
    *(_warm("torch", model) for model in _MODELS),
    Section("rows", "rows", 90, 20),
    Section("host", "host", 25),
    Section("models", "models", 130, 40),
    Section("triton", "triton", 40, 30),
    Section("start", "start", 40, 40),
    # Were these wrong, they would hang: they come behind what must be known.
    Section("warpgroups", "warpgroups", 45, 15),
    _products("products wgmma", RUSHLIGHT_CUDA_GEMM="ours", RUSHLIGHT_CUDA_PRODUCTS="wgmma"),
    _products("products library", RUSHLIGHT_CUDA_GEMM="library"),
    _products("products mma", RUSHLIGHT_CUDA_GEMM="ours", RUSHLIGHT_CUDA_PRODUCTS="mma"),
    Section("kernels", "kernels", 40),
    _products(
        "products wgmma walk",
        RUSHLIGHT_CUDA_GEMM="ours",
        RUSHLIGHT_CUDA_PRODUCTS="wgmma",
        RUSHLIGHT_CUDA_SCHEDULE="walk",
    ),
    _products(
        "products wgmma stretches",
        RUSHLIGHT_CUDA_GEMM="ours",
        RUSHLIGHT_CUDA_PRODUCTS="wgmma",
        RUSHLIGHT_CUDA_SCHEDULE="stretches",
    ),
    _products(
        "products walk", RUSHLIGHT_CUDA_GEMM="ours", RUSHLIGHT_CUDA_PRODUCTS="mma", RUSHLIGHT_CUDA_SCHEDULE="walk"
    ),
    _products(
        "products parts", RUSHLIGHT_CUDA_GEMM="ours", RUSHLIGHT_CUDA_PRODUCTS="mma", RUSHLIGHT_CUDA_SCHEDULE="parts"
    ),
    _products(
        "products stretches",
        RUSHLIGHT_CUDA_GEMM="ours",
        RUSHLIGHT_CUDA_PRODUCTS="mma",
        RUSHLIGHT_CUDA_SCHEDULE="stretches",
    ),
    Section("compile", "compile", 20),
)
_START = 75.0  # seconds until a process must have begun its first row: it may be the first that reads PyTorch from a slow disk
_DEATHS = 3  # of processes of one section without a row between them
FIRST_RUN, RESUMED = 520.0, 220.0  # seconds until the last row must have ended


class Report:
    """Numbers by section and name, on disk at any time; `complete` are titles of sections that ended without a fault."""

    def __init__(self, folder: Path, resume: Path | None = None) -> None:
        self.file, self.start = folder / "cuda.json", time.monotonic()
        self.data: dict[str, Any] = {"machine": {}, "complete": [], "sections": {}}
        self._lock = threading.RLock()  # of sections that run together
        folder.mkdir(parents=True, exist_ok=True)
        if resume is not None:
            self.data |= json.loads(resume.read_text())
            for rows in self.data["sections"].values():  # what failed, or was wrong, is tried again
                for name in [name for name, values in rows.items() if _is_wrong(values) or "ended" in values]:
                    del rows[name]

    def put(self, section: str, name: str, **values: Any) -> None:
        shown = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        with self._lock:
            self.data["sections"].setdefault(section, {})[name] = values
            print(f"{self.elapsed():6.1f} s  {section}/{name}: {shown}", flush=True)
            self.write()

    def end_section(self, title: str) -> None:
        """All rows of a section are known, and none failed."""
        with self._lock:
            self.data["complete"].append(title)
            self.write()

    def write(self) -> None:
        """Replace the file as a whole: a run that is killed meanwhile leaves the one before."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self.data, indent=1) + "\n")
        fresh.replace(self.file)

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def known(self) -> list[tuple[str, str]]:
        with self._lock:
            return [(heading, name) for heading, rows in self.data["sections"].items() for name in rows]

    def wrong(self) -> list[str]:
        return [
            f"{heading}/{name}" for heading, rows in self.data["sections"].items() for name, values in rows.items()
            if _is_wrong(values)
        ]  # fmt: skip

    def hopeless(self) -> bool:
        """Whether unit kernels ran, and none is right."""
        units = self.data["sections"].get("units", {}).values()
        return bool(units) and not any(values.get("right") for values in units)


def _is_wrong(values: dict[str, Any]) -> bool:
    return "failed" in values or values.get("right") is False


class Worker:
    """A process of a section, and its lines."""

    def __init__(self, section: Section, known: list[tuple[str, str]], dry: bool) -> None:
        environment = {**os.environ, **dict(section.settings)}
        command = [sys.executable, str(FILE), section.rows, *section.options, *(["--dry"] if dry else [])]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it ended at once: its status says so
            self.process.stdin.write(json.dumps(known).encode())
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.output, self.pending = self.process.stdout, b""

    def line(self, until: float) -> list[Any] | None:
        """The next line; None at the end.  TimeoutError where none came in time."""
        while b"\n" not in self.pending:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.output], [], [], left)[0]:
                raise TimeoutError
            got = os.read(self.output.fileno(), 1 << 16)
            if not got:
                return None
            self.pending += got
        line, _, self.pending = self.pending.partition(b"\n")
        found: list[Any] = json.loads(line)
        return found

    def end(self) -> int:
        """End the process, and those that it started; its status."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.output.close()
        try:
            return self.process.wait(10)
        except subprocess.TimeoutExpired:  # the driver holds it: nothing more can be done from here
            return -1


def run_section(report: Report, section: Section, dry: bool, end: float) -> None:
    """Run a section's rows until all are known, its time is over, or its processes die without a row."""
    end = min(end, time.monotonic() + (section.seconds if not dry else 1e9))
    deaths, faults = 0, 0
    while deaths < _DEATHS:
        worker, row, status = Worker(section, report.known(), dry), None, 0
        limit, what = time.monotonic() + (_START if not dry else 600), "does not start"
        try:
            while True:
                line = worker.line(min(end, limit))
                if line is None:
                    status = worker.process.wait()
                    break
                if line[0] == "machine":
                    report.data["machine"].update(line[1])
                elif line[0] == "begin":
                    row, what = (line[1], line[2]), "ran past its limit"
                    limit = time.monotonic() + (section.row_seconds if not dry else 600)
                else:
                    report.put(line[1], line[2], **line[3])
                    faults += _is_wrong(line[3])
                    row, deaths, limit = None, 0, time.monotonic() + (_START if not dry else 600)
        except TimeoutError:
            if time.monotonic() >= end:
                left = f", in {row[0]}/{row[1]}" if row else ""
                report.put("sections", section.title, ended=f"its time was over{left}")
                return
            report.put(*(row or ("sections", section.title)), failed=f"{what}: killed")
            faults += 1
            deaths += 2 * (row is None)  # a device that hangs costs much each time
            continue
        finally:
            worker.end()
        if row is not None:
            report.put(*row, failed=f"its process ended with status {status}")
            faults += 1
        elif status == 0:
            if not faults:
                report.end_section(section.title)
            return
        elif status != 3:  # 3: the device no longer answered, the row is known
            deaths += 1
    report.put("sections", section.title, failed=f"{_DEATHS} processes ended before a row")


# Sections that rushlight and PyTorch both have, and the figures by which they are compared.
COMPARED = {"rows": ("ms",), "models": ("ms",), "triton": ("cold", "ms"), "host": ("us",), "start": ("s",)}


def ratios(report: Report) -> None:
    """Their time over ours, where both have one; for what moves bytes, its rate as a share of the best copy's."""
    sections = report.data["sections"]
    pairs = [(f"{name} rushlight", f"{name} torch", key) for name, keys in COMPARED.items() for key in keys]
    pairs += [(heading, "rows torch", "ms") for heading in sections if heading.startswith("products ")]
    for mine, other, key in pairs:
        theirs = sections.get(other, {})
        heading = f"torch's time over ours, {mine.removesuffix(' rushlight')}, {key}"
        for row, values in list(sections.get(mine, {}).items()):
            if key in values and key in theirs.get(row, {}):
                report.put(heading, row, ratio=theirs[row][key] / values[key])
    sides = [sections.get(f"rows {label}", {}) for label in ("rushlight", "torch")]
    copied = max((side["copy"].get("GB/s", 0.0) for side in sides if "copy" in side), default=0.0)
    for row, values in list(sides[0].items()) if copied else ():
        if "GB/s" in values:
            report.put("share of the best copy's rate", row, share=values["GB/s"] / copied)


def run(report: Report, only: str, dry: bool, end: float) -> None:
    """All sections whose title contains `only`, those that are complete left out; what is told to run together does."""
    chosen = [s for s in PLAN if only in s.title and s.title not in report.data["complete"]]
    for together, sections in itertools.groupby(chosen, lambda section: section.together):
        for stage in [list(sections)] if together and not dry else [[section] for section in sections]:
            if time.monotonic() > end - 5:
                for section in stage:
                    report.put("sections", section.title, ended="no time was left")
                continue
            threads = [threading.Thread(target=_guarded, args=(report, s, dry, end)) for s in stage]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if any(s.rows == "correctness" for s in stage) and report.hopeless():
                report.put("sections", "run", failed="no unit kernel is right: nothing else was tried")
                return


def _guarded(report: Report, section: Section, dry: bool, end: float) -> None:
    try:
        run_section(report, section, dry, end)
    except Exception as error:
        report.put("sections", section.title, failed=f"{type(error).__name__}: {str(error)[:400]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--dry", action="store_true", help="small sizes, no times, no limits")
    parser.add_argument("--only", default="", help="sections whose title contains this")
    parser.add_argument(
        "--seconds",
        type=float,
        help=f"when the last row must have ended: {FIRST_RUN:.0f}, {RESUMED:.0f} of a run that goes on",
    )
    parser.add_argument("--resume", type=Path, help="the cuda.json of an earlier run, whose rows are kept")
    given = parser.parse_args()
    report = Report(given.out, given.resume)
    seconds = given.seconds or (FIRST_RUN if given.resume is None else RESUMED)
    run(report, given.only, given.dry, time.monotonic() + (seconds if not given.dry else 1e9))
    ratios(report)
    wrong = report.wrong()
    print(f"{len(wrong)} rows failed: {', '.join(wrong)}" if wrong else "all rows ran", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
