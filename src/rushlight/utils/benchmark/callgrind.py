"""Counting instructions with Valgrind's callgrind, and what can be done with the counts."""

from __future__ import annotations

import os
import pickle
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import rushlight
from rushlight._tensor_str import PRINT_OPTS
from rushlight.utils.benchmark.measurement import TaskSpec

__all__ = ["CallgrindStats", "CopyIfCallgrind", "FunctionCount", "FunctionCounts", "collect"]

_TOOLS = ("valgrind", "callgrind_annotate")
_ROWS = 18


class FunctionCount(NamedTuple):
    """How many instructions a function took."""

    count: int  # type: ignore[assignment]
    function: str


@dataclass(repr=False, eq=False, frozen=True)
class FunctionCounts:
    """Instructions of many functions, the most first; they add, subtract and can be filtered.

    >>> from rushlight.utils.benchmark import FunctionCount, FunctionCounts
    >>> before = FunctionCounts((FunctionCount(30, "a.c:f"), FunctionCount(5, "a.c:g")), inclusive=False)
    >>> after = FunctionCounts((FunctionCount(12, "a.c:f"), FunctionCount(5, "a.c:g")), inclusive=False)
    >>> [tuple(row) for row in after - before]
    [(-18, 'a.c:f')]
    """

    _data: tuple[FunctionCount, ...]
    inclusive: bool
    truncate_rows: bool = True
    _linewidth: int | None = None

    def __iter__(self) -> Iterator[FunctionCount]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, item: Any) -> Any:
        found: Any = self._data[item]
        return FunctionCounts(found, self.inclusive, truncate_rows=False) if isinstance(item, slice) else found

    def __repr__(self) -> str:
        width = max((len(str(c)) + (c < 0) for c, _ in self), default=0)
        room = max((self._linewidth or PRINT_OPTS.linewidth) - width - 4, 40)
        lines = [f"  {count:>{width}}  {_middle_cut(name, room)}" for count, name in self]
        if self.truncate_rows and len(lines) > _ROWS:
            lines[_ROWS // 2 : -_ROWS // 2] = ["...".rjust(width + 2)]
        if not self.inclusive:
            lines += ["", f"Total: {self.sum()}"]
        return "\n".join([object.__repr__(self), *lines])

    def _with(self, counts: dict[str, int]) -> FunctionCounts:
        rows = sorted((FunctionCount(c, name) for name, c in counts.items() if c), reverse=True)
        return FunctionCounts(tuple(rows), self.inclusive)

    def _joined(self, other: FunctionCounts, sign: int) -> FunctionCounts:
        if self.inclusive != other.inclusive:
            raise AssertionError("Cannot merge inclusive and exclusive counts.")
        counts: dict[str, int] = {}
        for rows, factor in ((self, 1), (other, sign)):
            for count, name in rows:
                counts[name] = counts.get(name, 0) + factor * count
        return self._with(counts)

    def __add__(self, other: FunctionCounts) -> FunctionCounts:
        return self._joined(other, 1)

    def __sub__(self, other: FunctionCounts) -> FunctionCounts:
        return self._joined(other, -1)

    def __mul__(self, other: float) -> FunctionCounts:
        return self._with({name: int(count * other) for count, name in self})

    def transform(self, map_fn: Callable[[str], str]) -> FunctionCounts:
        """The counts under other names; those that get the same name are added."""
        counts: dict[str, int] = {}
        for count, name in self:
            counts[map_fn(name)] = counts.get(map_fn(name), 0) + count
        return self._with(counts)

    def filter(self, filter_fn: Callable[[str], bool]) -> FunctionCounts:
        """Those whose names `filter_fn` takes."""
        return FunctionCounts(tuple(row for row in self if filter_fn(row.function)), self.inclusive)

    def sum(self) -> int:
        """All together."""
        return sum(count for count, _ in self)

    def denoise(self) -> FunctionCounts:
        """Without the look-ups of names in CPython, which differ from run to run."""
        return self.filter(lambda name: "dictobject.c:lookdict_unicode" not in name)


def _middle_cut(name: str, room: int) -> str:
    if len(name) <= room:
        return name
    left = (room - 5) // 2
    return f"{name[:left]} ... {name[-(room - left - 5) :]}"


_PREFIXES = (
    (r"^.+build/\.\./", "build/../"),
    (r"^.+/build/aten/", "build/aten/"),
    (r"^.+/Python/", "Python/"),
    (r"^.+/Objects/", "Objects/"),
    (r"\s\[.+\]$", ""),
)


def _stripped(name: str) -> str:
    for pattern, word in _PREFIXES:
        name = re.sub(pattern, word, name)
    return name


@dataclass(repr=False, eq=False, frozen=True)
class CallgrindStats:
    """Result of `Timer.collect_callgrind` for a statement, and for an empty one (`baseline`)."""

    task_spec: TaskSpec
    number_per_run: int
    built_with_debug_symbols: bool
    baseline_inclusive_stats: FunctionCounts
    baseline_exclusive_stats: FunctionCounts
    stmt_inclusive_stats: FunctionCounts
    stmt_exclusive_stats: FunctionCounts
    stmt_callgrind_out: str | None

    def __repr__(self) -> str:
        base, threads = self.baseline_exclusive_stats, self.task_spec.num_threads
        return "\n".join(
            [
                object.__repr__(self),
                self.task_spec.summarize(),
                f"  {'':>25}All{'':>10}Noisy symbols removed",
                f"    Instructions: {self.counts():>12}{'':>15}{self.counts(denoise=True):>12}",
                f"    Baseline:     {base.sum():>12}{'':>15}{base.denoise().sum():>12}",
                f"{self.number_per_run} runs per measurement, {threads} thread{'s' if threads > 1 else ''}",
            ]
        )

    def stats(self, inclusive: bool = False) -> FunctionCounts:
        """Instructions of every function; `inclusive` with those of what it calls."""
        return self.stmt_inclusive_stats if inclusive else self.stmt_exclusive_stats

    def counts(self, *, denoise: bool = False) -> int:
        """All instructions; `denoise` as `FunctionCounts.denoise`."""
        return (self.stmt_exclusive_stats.denoise() if denoise else self.stmt_exclusive_stats).sum()

    def delta(self, other: CallgrindStats, inclusive: bool = False) -> FunctionCounts:
        """Function by function, how many more than in `other`."""
        return self.stats(inclusive) - other.stats(inclusive)

    def as_standardized(self) -> CallgrindStats:
        """With names that lack what differs between two machines, such as paths."""
        names = ("baseline_inclusive_stats", "baseline_exclusive_stats", "stmt_inclusive_stats", "stmt_exclusive_stats")
        parts = {name: getattr(self, name).transform(_stripped) for name in names}
        return replace(self, stmt_callgrind_out=None, **parts)


# ***** names for the other process *****


class Serialization(Enum):
    """How a value gets into the other process."""

    PICKLE = 0
    TORCH = 1
    TORCH_JIT = 2


class CopyIfCallgrind:
    """Says that a copy of a value will do: `collect_callgrind` runs in another process.  ValueError for other kinds of
    values.

    Plain values and modules can be copied; `setup` is code that must run before.
    """

    def __init__(self, value: Any, *, setup: str | None = None) -> None:
        if isinstance(value, (str, bytes, bool, int, float, complex)):
            self._serialization = Serialization.PICKLE
        elif isinstance(value, rushlight.nn.Module):
            self._serialization = Serialization.TORCH
        else:
            names = "\n".join(["str", "bytes", "bool", "int", "float", "complex", "Module"])
            raise ValueError(
                f"Unsupported type: {type(value)}\n`collect_callgrind` restricts globals to the following types:\n{textwrap.indent(names, '  ')}"
            )
        self._value, self._setup = value, setup

    @property
    def value(self) -> Any:
        """The value."""
        return self._value

    @property
    def setup(self) -> str | None:
        """Code that must run before the value can be read."""
        return self._setup

    @property
    def serialization(self) -> Serialization:
        """How it gets into the other process."""
        return self._serialization

    @staticmethod
    def unwrap_all(globals: dict[str, Any]) -> dict[str, Any]:
        """Names with their values themselves."""
        return {name: value.value if isinstance(value, CopyIfCallgrind) else value for name, value in globals.items()}


# ***** running *****


def _require_valgrind() -> None:
    if platform.machine() not in ("x86_64", "AMD64") or not sys.platform.startswith("linux"):
        raise OSError(
            f"Valgrind is not supported on this platform: {sys.platform} {platform.machine()} (needs Linux on x86-64)"
        )
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise OSError(
            f"Missing: {', '.join(missing)}. collect_callgrind counts instructions with Valgrind: install the system's package `valgrind`"
        )


def _copied(globals: dict[str, Any]) -> dict[str, CopyIfCallgrind]:
    found = {}
    for name, value in globals.items():
        if name == "torch" and value is rushlight:
            continue
        if not isinstance(value, CopyIfCallgrind):
            raise ValueError(
                "`collect_callgrind` requires that globals be wrapped in `CopyIfCallgrind` so that serialization is explicit."
            )
        found[name] = value
    return found


def collect(
    task: TaskSpec, globals: dict[str, Any], number: int, repeats: int, baseline: bool, retain: bool
) -> tuple[CallgrindStats, ...]:
    """Run a statement under callgrind, and read what it counted."""
    _require_valgrind()
    copied = _copied(globals)
    with tempfile.TemporaryDirectory(prefix="callgrind") as folder:
        out, job = Path(folder) / "callgrind.out", Path(folder) / "job"
        rushlight.save({name: value.value for name, value in copied.items()}, Path(folder) / "names")
        setup = "\n".join([*[textwrap.dedent(value.setup) for value in copied.values() if value.setup], task.setup])
        job.write_bytes(pickle.dumps((task.stmt, setup, number, repeats, baseline, task.num_threads, folder)))
        command = [
            "valgrind",
            "--tool=callgrind",
            f"--callgrind-out-file={out}",
            "--instr-atstart=no",
            "--collect-atstart=yes",
            "--dump-line=no",
        ]
        source = str(Path(rushlight.__file__).parent.parent)
        environment = {
            "RUSHLIGHT_VECTOR_BYTES": "32",
            **os.environ,
            "PYTHONPATH": os.pathsep.join([source, os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [*command, sys.executable, "-m", "rushlight.utils.benchmark.callgrind_process", str(job)],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        if done.returncode:
            raise OSError(f"Failed to collect callgrind profile:\n{done.stdout}\n{done.stderr}")
        runs = [_read(Path(f"{out}.{i + 1}"), retain) for i in range(repeats + baseline)]
    empty = FunctionCounts((), True), FunctionCounts((), False), None
    base = runs[repeats] if baseline else empty
    return tuple(
        CallgrindStats(task, number, False, base[0], base[1], inclusive, exclusive, text)
        for inclusive, exclusive, text in runs[:repeats]
    )


def _read(path: Path, retain: bool) -> tuple[FunctionCounts, FunctionCounts, str | None]:
    return _annotated(path, True), _annotated(path, False), path.read_text(encoding="utf-8") if retain else None


def _annotated(path: Path, inclusive: bool) -> FunctionCounts:
    """Output of `callgrind_annotate` for a file."""
    word = "yes" if inclusive else "no"
    command = ["callgrind_annotate", f"--inclusive={word}", "--threshold=100", "--show-percs=no", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    head, found, body = text.partition("file:function")
    total = re.search(r"^([0-9,]+)\s+PROGRAM TOTALS", head, re.MULTILINE)
    if not found or total is None:
        raise OSError(f"callgrind_annotate: unknown output for {path}:\n{text[:500]}")
    rows = []
    for line in body.splitlines()[1:]:
        row = re.match(r"^\s*([0-9,]+)\s+(.+:.+)$", line)
        if row is not None and row[1] != total[1]:
            rows.append(FunctionCount(int(row[1].replace(",", "")), row[2]))
    return FunctionCounts(tuple(sorted(rows, reverse=True)), inclusive)
