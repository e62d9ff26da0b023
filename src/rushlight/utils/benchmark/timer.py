"""`Timer`: how long a statement takes, measured so that the numbers can be trusted."""

from __future__ import annotations

import enum
import statistics
import textwrap
import timeit
from collections.abc import Callable
from time import perf_counter as timer
from typing import Any, NoReturn

import rushlight
from rushlight.utils.benchmark.callgrind import CopyIfCallgrind, collect
from rushlight.utils.benchmark.measurement import Measurement, TaskSpec, set_torch_threads

__all__ = ["Language", "Timer", "timer"]

Callback = Callable[[int, float], Any]
_MOST = 2**31 - 1


class Language(enum.Enum):
    """In which language a statement is."""

    PYTHON = 0
    CPP = 1


def _neat(code: str) -> str:
    """Code without the indentation that it had inside of a function."""
    return textwrap.dedent(code).removeprefix("\n").rstrip()


class Timer:
    """Times a statement, on one thread unless `num_threads` says more, after it has run once or more.

    `setup` runs first, `globals` are names that both know (`torch` is always one); `label`, `sub_label`, `description`
    and `env` say where the result goes in a table of `Compare`.

        >>> from rushlight.utils.benchmark import Timer
        >>> measured = Timer("x + 1", setup="x = torch.ones(4)").timeit(10)
        >>> measured.number_per_run, measured.median > 0
        (10, True)
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if not isinstance(stmt, str):
            raise ValueError("Currently only a `str` stmt is supported.")
        if language in (Language.CPP, "cpp", "c++"):
            raise NotImplementedError(
                "Timer: language=Language.CPP compiles C++ against PyTorch's headers, and rushlight has none"
            )
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError(f"Invalid language `{language}`.")
        if global_setup:
            raise ValueError(
                f"global_setup is C++ only, got `{global_setup}`. Most likely this code can simply be moved to `setup`."
            )
        self._globals = {"torch": rushlight, **(globals or {})}
        stmt, setup = _neat(stmt), _neat(setup)
        self._timer = timeit.Timer(stmt, setup, timer, CopyIfCallgrind.unwrap_all(self._globals))
        self._task_spec = TaskSpec(
            stmt=stmt, setup=setup, global_setup=global_setup, label=label, sub_label=sub_label, description=description, env=env,
            num_threads=num_threads,
        )  # fmt: skip

    def _timeit(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def _measured(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """One measurement of `number` executions, after a hundredth as many that are not counted."""
        with set_torch_threads(self._task_spec.num_threads):
            self._timeit(max(int(number // 100), 2))
            return self._measured(number, [self._timeit(number)])

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        """NotImplementedError, as in PyTorch: `blocked_autorange` repeats."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Callback | None = None) -> NoReturn:
        """NotImplementedError, as in PyTorch: `blocked_autorange` finds a number."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def _block_size(self, least_seconds: float) -> int:
        """How many executions a measurement needs so that reading the clock does not matter."""
        with set_torch_threads(self._task_spec.num_threads):
            overhead = statistics.median(self._timeit(0) for _ in range(5))
            number = 1
            while True:
                taken = self._timeit(number)
                if (
                    (overhead / taken <= 1e-4 and taken >= least_seconds / 1000)
                    or taken > least_seconds
                    or number * 10 > _MOST
                ):
                    return number
                number *= 10

    def _measure(
        self,
        number: int,
        least: float,
        most: float | None,
        enough: Callable[[list[float]], bool],
        callback: Callback | None,
    ) -> Measurement:
        times: list[float] = []
        total, done = 0.0, False
        with set_torch_threads(self._task_spec.num_threads):
            while total < least or not done:
                times.append(self._timeit(number))
                total += times[-1]
                if callback is not None:
                    callback(number, times[-1])
                done = enough(times)
                if most and total > most:
                    break
        return self._measured(number, times)

    def blocked_autorange(self, callback: Callback | None = None, min_run_time: float = 0.2) -> Measurement:
        """Blocks of executions, each so long that the clock does not matter, for `min_run_time` seconds in all."""
        return self._measure(self._block_size(min_run_time), min_run_time, None, lambda times: True, callback)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callback | None = None,
    ) -> Measurement:
        """Blocks until the interquartile range is below `threshold` of the median, for at most `max_run_time` seconds."""
        number = self._block_size(0.05)

        def steady(times: list[float]) -> bool:
            return len(times) > 3 and self._measured(number, times).meets_confidence(threshold)

        return self._measure(number, min_run_time, max_run_time, steady, callback)

    def collect_callgrind(
        self,
        number: int = 100,
        *,
        repeats: int | None = None,
        collect_baseline: bool = True,
        retain_out_file: bool = False,
    ) -> Any:
        """How many instructions `number` executions take, counted by Valgrind in a process of its own: a
        `CallgrindStats`, or as many as `repeats` says.

        Needs `valgrind` and `callgrind_annotate` (OSError names what is missing).  Names in `globals` must be wrapped
        in `CopyIfCallgrind`.  Kernels are those for the processor that Valgrind imitates.
        """
        if repeats is not None and repeats < 1:
            raise ValueError("If specified, `repeats` must be >= 1")
        self._timeit(1)
        found = collect(self._task_spec, self._globals, number, repeats or 1, collect_baseline, retain_out_file)
        return found[0] if repeats is None else found
