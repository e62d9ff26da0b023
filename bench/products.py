"""Matrix products by our own kernels beside the BLAS library, on one thread: `python bench/products.py [--kinds f32,f64]`.

Both are the kernels that `a @ b` runs, called through the same stub, in turn; the figures are the best of many calls.
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from typing import Any

import rushlight as rl
from rushlight._backends.cpu.blas import blas, gemm_ints, gemm_kernel, host_tiles
from rushlight._backends.cpu.target import host_target

SIZES = (
    (64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (64, 1024, 256), (1024, 64, 256),
    (32, 768, 768), (512, 512, 64),
)  # fmt: skip
DTYPES = {"f32": rl.float32, "f64": rl.float64}


def best(call: Callable[[], Any], work: int) -> float:
    """The shortest of some calls, in seconds."""
    times = []
    for _ in range(max(5, min(200, 300_000_000 // work))):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(kind: str, m: int, n: int, k: int, a_turned: bool, b_turned: bool) -> tuple[float, float]:
    """GFLOP/s of the library and of our own kernel."""
    a, b, c = (rl.ones(size, dtype=DTYPES[kind]) for size in (m * k, k * n, m * n))
    ints = gemm_ints(
        kind, m, n, k, a_strides=(1, m) if a_turned else (k, 1), b_strides=(1, k) if b_turned else (n, 1), allocate=False
    )
    words = (ctypes.c_int64 * len(ints))(*ints)
    at = ctypes.addressof(words)
    rates = []
    for generated in (False, True):
        kernel = gemm_kernel(kind, generated)
        kernel(at, c.data_ptr(), a.data_ptr(), b.data_ptr())
        rates.append(2e-9 * m * n * k / best(lambda: kernel(at, c.data_ptr(), a.data_ptr(), b.data_ptr()), 2 * m * n * k))  # noqa: B023
    return rates[0], rates[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="f32,f64")
    kinds = parser.parse_args().kinds.split(",")
    rl.set_num_threads(1)
    print(f"{host_target()}\nlibrary: {blas().path}")
    for kind in kinds:
        print(f"{kind}: tiles of {', '.join(f'{t.rows} x {t.columns}' for t in host_tiles(kind))}; GFLOP/s on one thread")
        print(f"{'m':>6}{'n':>6}{'k':>6}  {'':12}{'library':>9}{'own':>9}{'ratio':>8}")
        for size in SIZES:
            for label, turned in (("", (False, False)), ("B transposed", (False, True)), ("A transposed", (True, False))):
                theirs, ours = measure(kind, *size, *turned)
                print(f"{size[0]:6}{size[1]:6}{size[2]:6}  {label:12}{theirs:9.1f}{ours:9.1f}{ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
