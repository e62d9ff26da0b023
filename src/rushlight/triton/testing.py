"""`triton.testing`: time kernels, compare results, draw tables of both."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import rushlight
from rushlight._interface.base import numpy as np

__all__ = [
    "Benchmark",
    "Mark",
    "assert_close",
    "do_bench",
    "do_bench_cudagraph",
    "get_dram_gbps",
    "get_max_simd_tflops",
    "get_max_tensorcore_tflops",
    "nvsmi",
    "perf_report",
]


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    grad_to_none: Sequence[Any] | None = None,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "mean",
) -> Any:
    """Milliseconds that `fn()` takes, called for about `rep` ms after `warmup` ms.

    `return_mode` is "mean", "median", "min", "max" or "all"; `quantiles` (0 to 1) give a list in its place.  Gradients
    of `grad_to_none` are dropped before each call.
    """
    if return_mode not in ("min", "max", "mean", "median", "all"):
        raise ValueError(f"return_mode is min, max, mean, median or all, not {return_mode!r}")
    fn()
    estimate = max(min(_timed(fn) for _ in range(3)), 1e-4)
    for _ in range(int(warmup / estimate)):
        fn()
    times = []
    for _ in range(max(1, min(int(rep / estimate), 100_000))):
        for tensor in grad_to_none or ():
            tensor.grad = None
        times.append(_timed(fn))
    if quantiles is not None:
        found = [float(q) for q in np.quantile(times, list(quantiles))]
        return found[0] if len(found) == 1 else found
    return times if return_mode == "all" else float(getattr(np, return_mode)(times))


do_bench_cudagraph = do_bench


def _timed(fn: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    fn()
    if rushlight.cuda.is_available():
        rushlight.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def assert_close(x: Any, y: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = "") -> None:
    """AssertionError unless |x - y| <= atol + rtol |y| everywhere (1e-2 and 0 unless given)."""
    a, b = (_array(value) for value in (x, y))
    np.testing.assert_allclose(
        a, b, atol=1e-2 if atol is None else atol, rtol=0.0 if rtol is None else rtol, err_msg=err_msg, equal_nan=True
    )


def _array(value: Any) -> Any:
    if isinstance(value, rushlight.Tensor):
        value = value.detach().cpu()
        return (value.float() if value.dtype is rushlight.bfloat16 else value).numpy()
    return np.asarray(value)


# ***** tables of measurements *****


class Benchmark:
    """Specification of a measurement by `perf_report`: `x_names` take `x_vals`, `line_arg` takes each of `line_vals`."""

    def __init__(
        self,
        x_names: Sequence[str],
        x_vals: Sequence[Any],
        line_arg: str,
        line_vals: Sequence[Any],
        line_names: Sequence[str],
        plot_name: str,
        args: dict[str, Any],
        xlabel: str = "",
        ylabel: str = "",
        x_log: bool = False,
        y_log: bool = False,
        styles: Any = None,
        **extra: Any,
    ) -> None:
        self.x_names, self.x_vals, self.line_arg, self.line_vals, self.line_names = (
            x_names,
            x_vals,
            line_arg,
            line_vals,
            line_names,
        )
        self.plot_name, self.args, self.xlabel, self.ylabel = plot_name, args, xlabel, ylabel
        self.x_log, self.y_log, self.styles, self.extra = x_log, y_log, styles, extra

    def measured(self, fn: Callable[..., Any], **kwargs: Any) -> list[tuple[list[Any], list[tuple[Any, Any, Any]]]]:
        """For each x its values, and of each line (mean, least, most); the last two are None where `fn` gives one number."""
        found = []
        for x in self.x_vals:
            xs = list(x) if isinstance(x, (tuple, list)) else [x] * len(self.x_names)
            named = dict(zip(self.x_names, xs, strict=True))
            values = [fn(**named, **{self.line_arg: line}, **self.args, **kwargs) for line in self.line_vals]
            found.append((xs, [tuple(v) if isinstance(v, (tuple, list)) else (v, None, None) for v in values]))
        return found

    def draw(self, measured: Sequence[tuple[list[Any], list[tuple[Any, Any, Any]]]]) -> Any:
        """A figure of matplotlib: a line for each of `line_vals`, with a band from the least to the most."""
        figure = _needed("matplotlib.pyplot", "plots").figure()
        axes, xs = figure.subplots(), [x[0] for x, _ in measured]
        for k, name in enumerate(self.line_names):
            means, least, most = zip(*(lines[k] for _, lines in measured), strict=True)
            color, style = self.styles[k] if self.styles else (None, None)
            axes.plot(xs, means, label=f"{name} ({self.ylabel})" if self.ylabel else name, color=color, ls=style)
            if None not in (*least, *most):
                axes.fill_between(xs, least, most, alpha=0.15, color=color)
        axes.legend()
        axes.set(
            xlabel=self.xlabel or self.x_names[0],
            ylabel=self.ylabel,
            xscale="log" if self.x_log else "linear",
            yscale="log" if self.y_log else "linear",
        )
        return figure


class Mark:
    """A function with benchmarks; `run` measures them."""

    def __init__(self, fn: Callable[..., Any], benchmarks: Any) -> None:
        self.fn, self.benchmarks = fn, benchmarks

    def run(
        self,
        show_plots: bool = False,
        print_data: bool = False,
        save_path: str = "",
        return_df: bool = False,
        **kwargs: Any,
    ) -> Any:
        """The rows of each benchmark (with `return_df` as frames of pandas), printed with `print_data`, as CSV files in
        `save_path`; plots are shown with `show_plots`, and saved there where matplotlib is installed.  Other keywords go to the
        function.  ImportError, with what to install, where matplotlib or pandas is asked for and not there.
        """
        several = isinstance(self.benchmarks, (list, tuple))
        results = []
        for bench in self.benchmarks if several else [self.benchmarks]:
            measured = bench.measured(self.fn, **kwargs)
            header, rows = (
                [*bench.x_names, *bench.line_names],
                [[*xs, *(v[0] for v in lines)] for xs, lines in measured],
            )
            if print_data:
                _print(bench.plot_name, header, rows)
            if save_path:
                _save(save_path, bench.plot_name, header, rows)
            if bench.plot_name and (show_plots or (save_path and find_spec("matplotlib") is not None)):
                figure = bench.draw(measured)
                if save_path:
                    figure.savefig(os.path.join(save_path, f"{bench.plot_name}.png"))
                if show_plots:
                    _needed("matplotlib.pyplot", "plots").show()
            results.append(_needed("pandas", "frames").DataFrame(rows, columns=header) if return_df else rows)
        return results if several else results[0]


def _needed(module: str, what: str) -> Any:
    """An optional module."""
    try:
        return import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        raise ImportError(f"{what} of perf_report need {name}: pip install 'rushlight[triton]'") from error


def _print(name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    print(f"{name}:")
    print("  ".join(f"{title:>12}" for title in header))
    for row in rows:
        print("  ".join(f"{value:12.6g}" if isinstance(value, float) else f"{value!s:>12}" for value in row))


def _save(folder: str, name: str, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}.csv"), "w") as file:
        file.writelines(",".join(map(str, row)) + "\n" for row in [header, *rows])


def perf_report(benchmarks: Benchmark | Sequence[Benchmark]) -> Callable[[Callable[..., Any]], Mark]:
    """Attach benchmarks to a function, whose `run` then measures them."""
    return lambda fn: Mark(fn, benchmarks)


# ***** what a GPU can do at most, by its data sheet *****

_PARTS = 4  # of a multiprocessor: each has a tensor core and a scheduler
# Additions and multiplications of such a part in a clock, from sm_80 on, by bytes of an element.
_TENSOR_CORE, _LANES = {4: 256, 2: 512, 1: 1024}, {4: 32, 2: 64}


def get_dram_gbps(device: int | None = None) -> float:
    """GB/s between a GPU and its memory: two transfers a clock over the width of the bus."""
    found = rushlight.cuda.get_device_properties(device)
    return float(found.memory_clock_rate * 2 * found.memory_bus_width / 8 * 1e-6)


def get_max_tensorcore_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """TFLOP/s of the tensor cores of a GPU at a clock in kHz.  RuntimeError for dtypes that they do not multiply."""
    return _most(_TENSOR_CORE, dtype, clock_rate, device)


def get_max_simd_tflops(dtype: Any, clock_rate: float, device: int | None = None) -> float:
    """TFLOP/s of all that is no tensor core.  RuntimeError for dtypes other than floats of 2 and 4 bytes."""
    return _most(_LANES, dtype, clock_rate, device)


def _most(rates: Mapping[int, int], dtype: Any, clock_rate: float, device: int | None) -> float:
    size = dtype.itemsize if hasattr(dtype, "itemsize") else dtype.primitive_bitwidth // 8
    found = rushlight.cuda.get_device_properties(device)
    if size not in rates:
        raise RuntimeError("dtype not supported")
    if found.major < 8:
        raise RuntimeError(f"rates are known from sm_80 on, not of sm_{found.major}{found.minor}")
    return float(found.multi_processor_count * _PARTS * rates[size] * clock_rate * 1e-9)


def nvsmi(attrs: Sequence[str]) -> list[int]:
    """Ask `nvidia-smi` about GPU 0, by its names of properties; FileNotFoundError where it is not installed."""
    command = ["nvidia-smi", "-i", "0", f"--query-gpu={','.join(attrs)}", "--format=csv,noheader,nounits"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [int(value) for value in told.replace("\n", ",").split(",") if value.strip()]
