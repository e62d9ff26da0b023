"""What a GPU gives, in one run of under ten minutes: first whether our kernels are right on it, then how fast they are beside PyTorch
and Triton, where these are installed.

    python bench/cuda.py --out FOLDER            # on a machine with a GPU
    RUSHLIGHT_CUDA=emulated python bench/cuda.py --out FOLDER --dry   # small sizes, no times: does the script itself work?
    python bench/cuda.py --out FOLDER --resume OLD/cuda.json          # goes on where a run ended

This process never touches the GPU.  Sections (`bench/cuda_sections.py`) run one after the other, each in a process of its own with its
share of time, and each row has a limit.  A row whose process dies or hangs is written down as failed; a new process goes on behind it.
`cuda.json` in the folder is replaced after each row, so whatever ends the run, what was measured is kept.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).resolve().parent / "cuda_sections.py"


class Section(NamedTuple):
    """A section of the run: its rows, seconds for all of them and for one, and settings of its process."""

    title: str
    rows: str
    seconds: float
    row_seconds: float = 30
    settings: tuple[tuple[str, str], ...] = ()


def _products(title: str, **settings: str) -> Section:
    return Section(title, "products", 40, 30, tuple(settings.items()))


# The most important first: what comes last may find no time left.
PLAN = (
    Section("correctness", "correctness", 90),
    Section("kernels", "kernels", 40),
    Section("rows", "rows", 120),
    Section("host", "host", 40),
    _products("products mma", RUSHLIGHT_CUDA_GEMM="ours", RUSHLIGHT_CUDA_PRODUCTS="mma"),
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
    _products("products library", RUSHLIGHT_CUDA_GEMM="library"),
    Section("models", "models", 120, 60),
    Section("primitives", "primitives", 90, 20),
    Section("triton", "triton", 90, 60),
    Section("start", "start", 60, 60),
    Section("compile", "compile", 20),
    # Were these wrong, they would hang the card: nothing but themselves comes behind them.
    Section("warpgroups", "warpgroups", 60, 15),
    _products("products wgmma", RUSHLIGHT_CUDA_GEMM="ours", RUSHLIGHT_CUDA_PRODUCTS="wgmma"),
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
)
_START = 60.0  # seconds until a process must have begun its first row
_DEATHS = 4  # of processes of one section without a row between them


class Report:
    """Numbers by section and name, on disk at any time."""

    def __init__(self, folder: Path, resume: Path | None = None) -> None:
        self.file, self.start = folder / "cuda.json", time.monotonic()
        self.data: dict[str, Any] = {"machine": {}, "sections": {}}
        folder.mkdir(parents=True, exist_ok=True)
        if resume is not None:
            self.data = json.loads(resume.read_text())
            for rows in self.data["sections"].values():  # what failed is tried again
                for name in [name for name, values in rows.items() if "failed" in values]:
                    del rows[name]

    def put(self, section: str, name: str, **values: Any) -> None:
        self.data["sections"].setdefault(section, {})[name] = values
        shown = "  ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items())
        print(f"{self.elapsed():6.1f} s  {section}/{name}: {shown}", flush=True)
        self.write()

    def write(self) -> None:
        """Replace the file as a whole: a run that is killed meanwhile leaves the one before."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(self.data, indent=1) + "\n")
        fresh.replace(self.file)

    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def known(self) -> list[tuple[str, str]]:
        return [(heading, name) for heading, rows in self.data["sections"].items() for name in rows]

    def wrong(self) -> list[str]:
        return [
            f"{heading}/{name}" for heading, rows in self.data["sections"].items() for name, values in rows.items()
            if "failed" in values or values.get("right") is False
        ]  # fmt: skip


class Worker:
    """A process of a section, and its lines."""

    def __init__(self, section: Section, known: list[tuple[str, str]], dry: bool) -> None:
        environment = {**os.environ, **dict(section.settings)}
        command = [sys.executable, str(FILE), section.rows, *(["--dry"] if dry else [])]
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
    deaths = 0
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
                    row, deaths, limit = None, 0, time.monotonic() + _START
        except TimeoutError:
            if time.monotonic() >= end:
                left = f", in {row[0]}/{row[1]}" if row else ""
                report.put("sections", section.title, ended=f"its time was over{left}")
                return
            report.put(*(row or ("sections", section.title)), failed=f"{what}: killed")
            deaths += row is None
            continue
        finally:
            worker.end()
        if row is not None:
            report.put(*row, failed=f"its process ended with status {status}")
        elif status == 0:
            return
        elif status != 3:  # 3: the device no longer answered, the row is known
            deaths += 1
    report.put("sections", section.title, failed=f"{_DEATHS} processes ended before a row")


# Sections that rushlight and PyTorch both have, and the figures by which they are compared.
COMPARED = {"rows": ("ms",), "models": ("ms",), "triton": ("cold", "ms"), "host": ("us",), "start": ("s",)}


def ratios(report: Report) -> None:
    """Their time over ours, where both have one."""
    sections = report.data["sections"]
    for name, keys in COMPARED.items():
        ours, theirs = (sections.get(f"{name} {label}", {}) for label in ("rushlight", "torch"))
        for key in keys:
            for row, values in ours.items():
                if key in values and key in theirs.get(row, {}):
                    report.put(f"torch's time over ours, {key}", row, ratio=theirs[row][key] / values[key])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--dry", action="store_true", help="small sizes, no times, no limits")
    parser.add_argument("--only", default="", help="sections whose title contains this")
    parser.add_argument("--seconds", type=float, default=560, help="when the last row must have ended")
    parser.add_argument("--resume", type=Path, help="the cuda.json of an earlier run, whose rows are kept")
    given = parser.parse_args()
    report = Report(given.out, given.resume)
    end = time.monotonic() + (given.seconds if not given.dry else 1e9)
    for section in PLAN:
        if given.only not in section.title:
            continue
        if time.monotonic() > end - 5:
            report.put("sections", section.title, ended="no time was left")
            continue
        try:
            run_section(report, section, given.dry, end)
        except Exception as error:
            report.put("sections", section.title, failed=f"{type(error).__name__}: {str(error)[:400]}")
    ratios(report)
    wrong = report.wrong()
    print(f"{len(wrong)} rows failed: {', '.join(wrong)}" if wrong else "all rows ran", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
