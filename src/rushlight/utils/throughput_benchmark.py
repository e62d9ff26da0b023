"""How many examples a model takes in a second, called by several threads."""

from __future__ import annotations

import random
import threading
from time import perf_counter_ns
from typing import Any

from rushlight._interface.base import LazyModule, free_after_fork

profiler: Any = LazyModule("rushlight.profiler")

__all__ = ["ExecutionStats", "ThroughputBenchmark", "format_time"]


def format_time(time_us: float | None = None, time_ms: float | None = None, time_s: float | None = None) -> str:
    """A time, given in one of three units, as text in the unit that fits.

    >>> format_time(time_ms=1500)
    '1.500s'
    """
    given = [(time_us, 1.0), (time_ms, 1e3), (time_s, 1e6)]
    values = [value * factor for value, factor in given if value is not None]
    if len(values) != 1:
        raise AssertionError("Expected only one of time_us, time_ms, time_s is given.")
    (us,) = values
    if us >= 1e6:
        return f"{us / 1e6:.3f}s"
    return f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


class BenchmarkConfig:
    """The configuration of a benchmark."""

    def __init__(self, threads: int, warmup: int, iterations: int, profile: str) -> None:
        self.num_calling_threads, self.num_warmup_iters, self.num_iters = threads, warmup, iterations
        self.profiler_output_path = profile


class ExecutionStats:
    """The outcome of `ThroughputBenchmark.benchmark`."""

    def __init__(self, c_stats: Any, benchmark_config: Any) -> None:
        self._c_stats, self.benchmark_config = c_stats, benchmark_config

    @property
    def latency_avg_ms(self) -> float:
        """Milliseconds of one call, on average."""
        return float(self._c_stats.latency_avg_ms)

    @property
    def num_iters(self) -> int:
        """How many calls were counted."""
        return int(self._c_stats.num_iters)

    @property
    def iters_per_second(self) -> float:
        """Calls in a second, all threads together."""
        return self.num_iters / self.total_time_seconds

    @property
    def total_time_seconds(self) -> float:
        """Seconds of all calls, shared out to the threads."""
        return self.num_iters * (self.latency_avg_ms / 1000.0) / self.benchmark_config.num_calling_threads

    def __str__(self) -> str:
        return (
            f"Average latency per example: {format_time(time_ms=self.latency_avg_ms)}\n"
            f"Total number of iterations: {self.num_iters}\n"
            f"Total number of iterations per second (across all threads): {self.iters_per_second:.2f}\n"
            f"Total time: {format_time(time_s=self.total_time_seconds)}"
        )


class _Measured:
    def __init__(self, latency_avg_ms: float, num_iters: int) -> None:
        self.latency_avg_ms, self.num_iters = latency_avg_ms, num_iters


class ThroughputBenchmark:
    """Calls a model from several threads with inputs drawn from those that were added.

    >>> bench = torch.utils.ThroughputBenchmark(torch.nn.Linear(2, 2))
    >>> bench.add_input(torch.ones(1, 2))
    >>> bench.benchmark(num_calling_threads=2, num_warmup_iters=1, num_iters=4).num_iters
    4
    """

    def __init__(self, module: Any) -> None:
        if not callable(module):
            raise TypeError(
                f"ThroughputBenchmark: expected a module or another callable, found {type(module).__name__}"
            )
        self._module = module
        self._inputs: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def run_once(self, *args: Any, **kwargs: Any) -> Any:
        """One call; its result."""
        return self._module(*args, **kwargs)

    def add_input(self, *args: Any, **kwargs: Any) -> None:
        """Add arguments of a call."""
        self._inputs.append((args, kwargs))

    def benchmark(
        self,
        num_calling_threads: int = 1,
        num_warmup_iters: int = 10,
        num_iters: int = 100,
        profiler_output_path: str = "",
    ) -> ExecutionStats:
        """Call the model `num_iters` times in all, after `num_warmup_iters` calls by each thread; AssertionError
        without inputs.
        """
        if not self._inputs:
            raise AssertionError("Please provide benchmark inputs: add_input(...)")
        config = BenchmarkConfig(num_calling_threads, num_warmup_iters, num_iters, profiler_output_path)
        run = _Run(self._module, self._inputs, config)
        if not profiler_output_path:
            return ExecutionStats(run.measure(), config)
        with profiler.profile() as prof:
            measured = run.measure()
        prof.export_chrome_trace(profiler_output_path)
        return ExecutionStats(measured, config)


class _Run:
    """One measurement: threads that begin together and take calls from a common counter."""

    def __init__(self, module: Any, inputs: list[Any], config: BenchmarkConfig) -> None:
        self.module, self.inputs, self.config = module, inputs, config
        self.left = config.num_iters
        self.lock, self.gate = free_after_fork(threading.RLock()), threading.Barrier(config.num_calling_threads)
        self.times: list[int] = []
        self.errors: list[BaseException] = []

    def measure(self) -> _Measured:
        threads = [threading.Thread(target=self._work, args=(i,)) for i in range(self.config.num_calling_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]
        return _Measured(sum(self.times) / max(len(self.times), 1) / 1e6, len(self.times))

    def _work(self, seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(self.config.num_warmup_iters):
                args, kwargs = draw.choice(self.inputs)
                self.module(*args, **kwargs)
            self.gate.wait()
            while self._take():
                args, kwargs = draw.choice(self.inputs)
                began = perf_counter_ns()
                self.module(*args, **kwargs)
                self.times.append(perf_counter_ns() - began)
        except threading.BrokenBarrierError:
            return
        except BaseException as error:
            self.errors.append(error)
            self.gate.abort()

    def _take(self) -> bool:
        with self.lock:
            self.left -= 1
            return self.left >= 0
