"""Matrix products by our own kernels beside the BLAS library, on one thread: `python bench/products.py [--kinds float32,bfloat16,int8]`.

Both are the kernels that `a @ b` runs (`torch._int_mm` for int8), called through the same stub, in turn; the figures are the best of many
calls.  The library has no products of narrow dtypes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import rushlight as rl
from rushlight._backends.cpu.gemm.blas import GEMM, blas, host_forms
from rushlight._backends.cpu.gemm.product_choice import product_call
from rushlight._backends.cpu.gemm.product_spec import ProductShape, ProductTypes
from rushlight._backends.cpu.launches import joined
from rushlight._native.target import host_target
from rushlight._types import dtype as dtypes

SIZES = (
    (64, 64, 64), (128, 128, 128), (256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (64, 1024, 256), (1024, 64, 256),
    (32, 768, 768), (512, 512, 64),
)  # fmt: skip
KINDS = ("float32", "float64", "bfloat16", "float16", "int8")


def best(call: Callable[[], Any], work: int) -> float:
    """The shortest of some calls, in seconds."""
    times = []
    for _ in range(max(5, min(200, 300_000_000 // work))):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(kind: str, m: int, n: int, k: int, a_turned: bool, b_turned: bool) -> tuple[float, float]:
    """GFLOP/s of the library (0: it has no such product) and of our own kernel."""
    dtype = getattr(dtypes, kind.upper())
    a, b = (rl.ones(size, dtype=getattr(rl, kind)) for size in (m * k, k * n))
    a_strides, b_strides = (1, m) if a_turned else (k, 1), (1, k) if b_turned else (n, 1)
    rates = [0.0, 0.0]
    for way in (0, 1) if kind in ("float32", "float64") else (1,):
        with GEMM.scoped(("blas", "generated")[way]):
            result, other = (dtypes.INT32, dtype) if kind == "int8" else (dtype, None)
            types, shape = ProductTypes(dtype, result, other), ProductShape(m, n, k, a_strides, b_strides)
            launches = product_call(types, shape)
        call, x, y = joined(launches), a.data_ptr(), b.data_ptr()
        call(x, y)
        rates[way] = 2e-9 * m * n * k / best(lambda: call(x, y), 2 * m * n * k)  # noqa: B023
    return rates[0], rates[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="float32,float64", help=f"some of {','.join(KINDS)}")
    kinds = parser.parse_args().kinds.split(",")
    rl.set_num_threads(1)
    print(f"{host_target()}\nlibrary: {blas().path}")
    for kind in kinds:
        dtype = getattr(dtypes, kind.upper())
        forms = host_forms(dtype, dtypes.INT32 if kind == "int8" else dtype, dtype) or ()
        tiles = ", ".join(
            f"{f.tile.rows} x {f.tile.columns}{f' ({f.tile.instruction})' if f.tile.instruction else ''}" for f in forms
        )
        print(f"{kind}: tiles of {tiles}; GFLOP/s on one thread")
        print(f"{'m':>6}{'n':>6}{'k':>6}  {'':12}{'library':>9}{'own':>9}{'ratio':>8}")
        for size in SIZES:
            for label, turned in (
                ("", (False, False)),
                ("B transposed", (False, True)),
                ("A transposed", (True, False)),
            ):
                theirs, ours = measure(kind, *size, *turned)
                beside = f"{theirs:9.1f}{ours:9.1f}{ours / theirs:8.2f}" if theirs else f"{'':9}{ours:9.1f}"
                print(f"{size[0]:6}{size[1]:6}{size[2]:6}  {label:12}{beside}")


if __name__ == "__main__":
    main()
