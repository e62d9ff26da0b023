"""A table of measurements beside each other."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Sequence

from rushlight.utils.benchmark.measurement import Measurement, ordered_unique, select_unit, trim_sigfig, unit_to_english

__all__ = ["Colorize", "Compare"]

_GREEN, _BRIGHT_GREEN, _RED, _BRIGHT_RED = "\033[34m", "\033[92m", "\033[2m\033[91m", "\033[31m"
_BOLD, _END = "\033[1m", "\033[0m"


class Colorize(enum.Enum):
    """Comparisons that the colours of a table show: nothing, a column, or a row."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


class _Looks:
    """How a table is to look."""

    def __init__(self) -> None:
        self.trim, self.warn, self.colorize = False, False, Colorize.NONE


Cells = Sequence["Measurement | None"]


class _Column:
    """The numbers of a column: so wide, with so many decimals."""

    def __init__(self, cells: Cells, scale: float, looks: _Looks) -> None:
        present = [m for m in cells if m is not None]
        digits = [math.ceil(math.log10(m.median / scale)) for m in present]
        decimals = (
            min(max(m.significant_figures - d, 0) for m, d in zip(present, digits, strict=True)) if looks.trim else 1
        )
        self.decimals, self.width = decimals, max(digits) + decimals + bool(decimals)
        self.trim, self.scale = looks.trim, scale
        self.note_width = 7 if looks.warn and any(m.has_warnings for m in present) else 0

    def text(self, measured: Measurement | None) -> str:
        """A cell."""
        if measured is None:
            return " " * len(self._format(1.0, ""))
        value = measured.median / self.scale
        if self.trim:
            value = trim_sigfig(value, measured.significant_figures)
        spread = (
            f" (! {measured.iqr / measured.median * 100:.0f}%)" if self.note_width and measured.has_warnings else ""
        )
        return self._format(value, spread)

    def _format(self, value: float, note: str) -> str:
        return f"{value:>{max(self.width, 0)}.{self.decimals}f}{note:>{self.note_width}}"


def _painted(text: str, value: float, best: float) -> str:
    """Green for the best and what is near it, red for what is far from it."""
    if value <= best * 1.01 or value <= best + 100e-9:
        return _BRIGHT_GREEN + _BOLD + text + _END * 2
    if value <= best * 1.1:
        return _GREEN + _BOLD + text + _END * 2
    if value >= best * 5:
        return _BRIGHT_RED + _BOLD + text + _END * 2
    return _RED + text + _END * 2 if value >= best * 2 else text


class _Table:
    """Measurements of one label: a row for each statement, threads and environment, a column for each description."""

    def __init__(self, results: Sequence[Measurement], looks: _Looks) -> None:
        self.looks, self.label, self.results = looks, results[0].task_spec.label, results
        self.unit, self.scale = select_unit(min(m.median for m in results))
        keys = ordered_unique((m.task_spec.num_threads, m.env, m.as_row_name) for m in results)
        self.rows = sorted(keys, key=lambda key: (key[0], key[1] or ""))
        self.heads = ordered_unique(m.task_spec.description for m in results)
        self.cells: dict[object, list[Measurement | None]] = {key: [None] * len(self.heads) for key in self.rows}
        for m in results:
            self.cells[m.task_spec.num_threads, m.env, m.as_row_name][self.heads.index(m.task_spec.description)] = m
        self.columns = [
            _Column([self.cells[key][i] for key in self.rows], self.scale, looks) for i in range(len(self.heads))
        ]

    def _names(self) -> list[str]:
        """Labels of the rows: the environment, where there are several and it changes, and the statement."""
        environments = {str(m.env) for m in self.results}
        width = max(map(len, environments)) + 4 if len(environments) > 1 else 4
        before: tuple[int, str | None] = (-1, "")
        names = []
        for threads, env, name in self.rows:
            shown = f"({env})" if len(environments) > 1 and (threads, env) != before else ""
            names.append("  " + shown.ljust(width) + name)
            before = (threads, env)
        return names

    def _best(self, key: tuple[int, str | None, str], column: int) -> float | None:
        """The best value, with which a cell is compared."""
        if self.looks.colorize is Colorize.ROWWISE:
            group = self.cells[key]
        else:
            group = [self.cells[other][column] for other in self.rows if other[0] == key[0]]
        return min((m.median for m in group if m is not None), default=None)

    def _row(self, key: tuple[int, str | None, str], name: str, widths: Sequence[int]) -> str:
        parts = [name.ljust(widths[0])]
        for i, (measured, column) in enumerate(zip(self.cells[key], self.columns, strict=True)):
            text = column.text(measured).center(widths[i + 1])
            best = self._best(key, i)
            if self.looks.colorize is not Colorize.NONE and measured is not None and best is not None:
                text = _painted(text, measured.median, best)
            parts.append(text)
        return "  |  ".join(parts)

    def render(self) -> str:
        """The table as text."""
        names = self._names()
        texts = [[column.text(self.cells[key][i]) for key in self.rows] for i, column in enumerate(self.columns)]
        heads = [str(head) if head is not None else "" for head in self.heads]
        widths = [
            max(map(len, names)),
            *[max(len(head), *map(len, cells)) for head, cells in zip(heads, texts, strict=True)],
        ]
        top = "  |  ".join(word.center(width) for word, width in zip(["", *heads], widths, strict=True))
        lines, threads = [f"[{f' {self.label or str()} '.center(len(top) - 2, '-')}]", top], -1
        for key, name in zip(self.rows, names, strict=True):
            if key[0] != threads:
                threads = key[0]
                lines.append(f"{threads} threads: ".ljust(len(top), "-"))
            lines.append(self._row(key, name, widths))
        lines += ["", f"Times are in {unit_to_english(self.unit)}s ({self.unit}).", ""]
        if self.looks.warn and any(m.has_warnings for m in self.results):
            lines.insert(-1, "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.")
        return "\n".join(lines)


class Compare:
    """Measurements as tables: one for each label, rows by `sub_label` (or statement), columns by `description`.

    >>> from rushlight.utils.benchmark import Compare, Measurement, TaskSpec
    >>> def measured(words, seconds):
    ...     return Measurement(1, [seconds], TaskSpec("f()", "pass", label="speed", description=words))
    >>> print(Compare([measured("before", 4e-3), measured("after.", 2e-3)]))
    [----------- speed -----------]
               |  before  |  after.
    1 threads: --------------------
          f()  |   4.0    |   2.0
    <BLANKLINE>
    Times are in milliseconds (ms).
    <BLANKLINE>
    """

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self._looks = _Looks()
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements; ValueError for anything else."""
        added = list(results)
        for result in added:
            if not isinstance(result, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(result)} instead.")
        self._results += added

    def trim_significant_figures(self) -> None:
        """Show only digits that mean something."""
        self._looks.trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Paint what is fast and what is slow in a column, or in a row."""
        self._looks.colorize = Colorize.ROWWISE if rowwise else Colorize.COLUMNWISE

    def highlight_warnings(self) -> None:
        """Mark measurements whose times are far from each other."""
        self._looks.warn = True

    def __str__(self) -> str:
        groups: dict[str | None, list[Measurement]] = {}
        for result in Measurement.merge(self._results):
            groups.setdefault(result.task_spec.label, []).append(result)
        return "\n".join(_Table(group, self._looks).render() for group in groups.values())

    def print(self) -> None:
        """Print the tables."""
        print(str(self))
