"""What the machine can do at best, measured by routines that do nothing else: `python bench/limits.py`.

| limit | how it is measured |
| --- | --- |
| `flops[dtype]`: multiplications and additions a second | the tile of our products over panels in the first cache |
| `copy`: bytes a second, read and written, by size of the footprint | the C library's `memcpy`, each thread its own part |
| `call`: seconds that any call from Python costs | a built-in function of two arguments |

The routines take the same thread pool as our kernels; the figures are the best of many short runs.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import rushlight as rl
from rushlight._backends.cpu.gemm.blas import host_tiles
from rushlight._backends.cpu.runtime import stubs
from rushlight._backends.cpu.runtime.runtime import runtime
from rushlight._native import extern, jit, memcpy, native
from rushlight._native.compiled import compile_native, compile_text
from rushlight._native.target import host_target

FOOTPRINTS = (1 << 18, 1 << 22, 1 << 24, 1 << 26, 1 << 29)  # bytes that are read and written together
_DEPTH = 256
_ROUNDS = 400


@dataclass(frozen=True)
class Limits:
    """`flops[dtype]` a second, `copy[footprint]` bytes a second, `call` seconds."""

    flops: dict[str, float]
    copy: dict[int, float]
    call: float

    def seconds(self, flops: float, moved: float, dtype: str = "float32") -> float:
        """The least time for so much work: arithmetic or memory, whichever takes longer."""
        footprint = next((f for f in FOOTPRINTS if f >= moved), FOOTPRINTS[-1])
        return max(flops / self.flops[dtype], moved / self.copy[footprint], self.call)


def best(run: Callable[[], Any], seconds: float = 0.3) -> float:
    """The shortest of the runs that fit into a while."""
    run()
    shortest, end = math.inf, time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest


def _loaded(function: Any, symbol: str, imports: dict[str, int]) -> Any:
    image = jit.load(compile_native([function]), [symbol], {**runtime().symbols, **imports})
    return stubs.make_kernel_callable(image[symbol], symbol), image


def _constants(pieces: int, *words: int) -> Any:
    return (ctypes.c_int64 * (8 + len(words)))(pieces, 0, 0, 0, 0, 0, 0, 0, *words)


def measure_flops(threads: int, kind: str) -> float:
    """Floating point operations a second of a kind's tile on panels that stay in the first cache."""
    tile = host_tiles(kind)[0]
    steps = 2 if kind == "bf16" else 1  # of k in a word
    step = extern(tile.symbol, "void(ptr, ptr, ptr, i64, i64, i64)")
    cell = 8 if kind == "f64" else 4
    panels = cell * _DEPTH * (tile.rows + tile.columns)

    @native("i32(ptr, ptr, i64)", name="peak_flops")
    def peak_flops(bufs, ints, piece):  # type: ignore[no-untyped-def]
        a = bufs.ptr[0] + piece * ints.i64[8]
        for _ in range(ints.i64[9]):
            step(a, a + ints.i64[10], a + ints.i64[11], ints.i64[12], ints.i64[13], 0)
        return 0

    image = jit.load(compile_text(tile.text), (tile.symbol, tile.transpose_symbol))
    kernel, kept = _loaded(peak_flops, "peak_flops", {tile.symbol: image[tile.symbol]})
    each = panels + cell * tile.rows * tile.columns + 4096
    memory = rl.zeros(each * threads // 4 + 1024)
    ints = _constants(threads, each, _ROUNDS, cell * _DEPTH * tile.rows, panels, tile.columns, _DEPTH)
    took = best(lambda: kernel(ctypes.addressof(ints), memory.data_ptr()))
    assert kept is not None  # the code that runs
    return 2.0 * steps * threads * _ROUNDS * _DEPTH * tile.rows * tile.columns / took


def measure_copy(threads: int) -> dict[int, float]:
    """Bytes read and written a second, for each footprint."""

    @native("i32(ptr, ptr, i64)", name="peak_copy")
    def peak_copy(bufs, ints, piece):  # type: ignore[no-untyped-def]
        n = ints.i64[8]
        for _ in range(ints.i64[9]):
            memcpy(bufs.ptr[0] + piece * n, bufs.ptr[1] + piece * n, n)
        return 0

    kernel, kept = _loaded(peak_copy, "peak_copy", {})
    found = {}
    for footprint in FOOTPRINTS:
        each = footprint // 2 // threads
        to, source = (rl.zeros(footprint // 8 + 1024) for _ in range(2))
        to.fill_(1), source.fill_(1)
        rounds = max(1, (1 << 24) // footprint)
        ints = _constants(threads, each, rounds)
        seconds = best(partial(kernel, ctypes.addressof(ints), to.data_ptr(), source.data_ptr()))
        found[footprint] = 2.0 * each * threads * rounds / seconds
    assert kept is not None
    return found


def measure_call() -> float:
    """Seconds of one call of a built-in function."""
    add, n = operator.add, 2000

    def calls() -> None:
        for _ in range(n):
            add(1, 2)

    return best(calls, 0.1) / n


def measure(threads: int) -> Limits:
    """All limits for a number of threads."""
    before = rl.get_num_threads()
    rl.set_num_threads(threads)
    try:
        flops = {
            name: measure_flops(threads, kind)
            for name, kind in (("float32", "f32"), ("float64", "f64"), ("bfloat16", "bf16"))
        }
        return Limits(flops, measure_copy(threads), measure_call())
    finally:
        rl.set_num_threads(before)


def show(limits: Limits, threads: int) -> str:
    sizes = ", ".join(
        f"{f >> 20 or f'{f >> 10} KB'}{' MB' if f >> 20 else ''} {rate / 1e9:.0f}" for f, rate in limits.copy.items()
    )
    machine = " ".join(word for word in host_target().model.split() if not word.isdigit()) or host_target().arch
    flops = ", ".join(f"{rate / 1e9:.0f} GFLOP/s of {name}" for name, rate in limits.flops.items())
    return f"{machine}, {threads} threads: {flops}; copying GB/s (read and written) of {sizes}; {limits.call * 1e9:.0f} ns a call"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=rl.get_num_threads())
    threads = parser.parse_args().threads
    print(show(measure(threads), threads))


if __name__ == "__main__":
    main()
