"""A measurement: a statement, its times, and statistics over them."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

import rushlight
from rushlight._interface.base import trace_marks

__all__ = [
    "Measurement",
    "TaskSpec",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "trim_sigfig",
    "unit_to_english",
]

_MOST_FIGURES = 4
_LEAST_INTERVAL = 25e-9
_SUSPICIOUS, _WILD = 0.1, 0.25  # interquartile ranges, as parts of the median
_UNITS = {"ns": ("nanosecond", 1e-9), "us": ("microsecond", 1e-6), "ms": ("millisecond", 1e-3), "s": ("second", 1.0)}


@dataclass(repr=False, eq=True, frozen=True)
class TaskSpec:
    """A statement that is timed, and how it is described."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement."""
        if self.label is None and "\n" in self.stmt:
            part = f" ({self.sub_label})" if self.sub_label else ""
            return f"stmt:{part}\n{textwrap.indent(self.stmt, '  ')}"
        return (self.stmt if self.label is None else self.label) + (f": {self.sub_label}" if self.sub_label else "")

    def setup_str(self) -> str:
        """The setup as text; empty for none."""
        if not self.setup or self.setup == "pass":
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        """Title, description and setup."""
        parts = [part for part in (self.title, self.description or "", self.setup_str()) if part]
        return "\n".join(part + "\n" if "\n" in part else part for part in parts)


_TASK_FIELDS = frozenset(field.name for field in fields(TaskSpec))


def _quantile(ordered: list[float], q: float) -> float:
    """Linear between neighbours, as `torch.quantile`."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


@dataclass(init=True, repr=False)
class Measurement:
    """Times of a statement: `raw_times` in seconds, each of `number_per_run` executions.

    What the `TaskSpec` has (`label`, `num_threads`, ...) is an attribute too.

        >>> from rushlight.utils.benchmark import Measurement, TaskSpec
        >>> m = Measurement(10, [2e-5, 3e-5, 4e-5], TaskSpec("x + y", "pass"))
        >>> f"{m.median:.1e}", m.num_threads
        ('3.0e-06', 1)
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name in _TASK_FIELDS:
            return getattr(self.__dict__["task_spec"], name)
        raise AttributeError(f"'Measurement' object has no attribute '{name}'")

    @property
    def times(self) -> list[float]:
        """Seconds of one execution."""
        return [t / self.number_per_run for t in self.raw_times]

    def _at(self, q: float) -> float:
        return _quantile(sorted(self.times), q) if self.raw_times else -1.0

    @property
    def median(self) -> float:
        """The middle of the times."""
        return self._at(0.5)

    @property
    def mean(self) -> float:
        """Their average."""
        return statistics.fmean(self.times) if self.raw_times else -1.0

    @property
    def iqr(self) -> float:
        """From the first quarter of the times to the third."""
        return self._at(0.75) - self._at(0.25)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median mean something: between 1 and 4."""
        ordered = sorted(self.times)
        middle = ordered[len(ordered) // 4 : math.ceil(3 * len(ordered) / 4)]
        interval = max(1.645 * statistics.pstdev(middle) / math.sqrt(len(middle)), _LEAST_INTERVAL)
        return min(max(math.floor(math.log10(self.median / interval)), 1), _MOST_FIGURES)

    def meets_confidence(self, threshold: float = _SUSPICIOUS) -> bool:
        """Whether the interquartile range is less than this part of the median."""
        return self.iqr / self.median < threshold

    @property
    def has_warnings(self) -> bool:
        """Whether the times are so far from each other that something else must have run."""
        return bool(self._warning())

    def _warning(self) -> str:
        if not self.raw_times or self.meets_confidence(_SUSPICIOUS):
            return ""
        why = (
            "This could indicate system fluctuation."
            if self.meets_confidence(_WILD)
            else "This suggests significant environmental influence."
        )
        return f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% of the median measurement.\n           {why}"

    @property
    def title(self) -> str:
        """See `TaskSpec.title`."""
        return self.task_spec.title

    @property
    def env(self) -> str | None:
        """The name of the environment."""
        return self.task_spec.env

    @property
    def as_row_name(self) -> str:
        """The name of a row of a table."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        count, threads = len(self.raw_times), self.task_spec.num_threads
        several = count > 1
        lines = [object.__repr__(self), self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if several else ''}{self.median / scale:.2f} {unit}")
        if count >= 4:
            lines.append(
                f"  IQR:    {self.iqr / scale:.2f} {unit} ({self._at(0.25) / scale:.2f} to {self._at(0.75) / scale:.2f})"
            )
        lines.append(
            f"  {count} measurement{'s' if several else ''}, {self.number_per_run} runs {'per measurement,' if several else ','} "
            f"{threads} thread{'s' if threads > 1 else ''}"
        )
        return "\n".join([*lines, *filter(None, [self._warning()])]).strip()

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each statement, with the times of all."""
        groups: dict[TaskSpec, list[float]] = {}
        for measurement in measurements:
            groups.setdefault(measurement.task_spec, []).extend(measurement.times)
        return [Measurement(1, times, task) for task, times in groups.items()]


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a number of seconds reads well, and its length in seconds."""
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(math.floor(math.log10(t) / 3), "s")
    return unit, _UNITS[unit][1]


def unit_to_english(u: str) -> str:
    """The name of a unit."""
    return _UNITS[u][0]


def trim_sigfig(x: float, n: int) -> float:
    """A number with `n` digits that count.

    >>> trim_sigfig(1234.5, 2)
    1200.0
    """
    if n != int(n):
        raise AssertionError("Number of significant figures must be an integer")
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return float(round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Each element once, in the order of their first."""
    return list(dict.fromkeys(elements))


@contextmanager
@trace_marks.changes_later_calls
def set_torch_threads(n: int) -> Iterator[None]:
    """Inside, kernels run on `n` threads."""
    before = rushlight.get_num_threads()
    try:
        rushlight.set_num_threads(n)
        yield
    finally:
        rushlight.set_num_threads(before)
