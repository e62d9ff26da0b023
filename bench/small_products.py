"""Small matrix products: blocks over operands where they lie, beside the BLAS library and packing, size by size.

    python bench/small_products.py [--kind f64] [--sizes 1,2,4,8] [--worst 20]

Both kernels are called in turn, in one process on one thread; a figure is processor time, the least of several rounds.
Printed are, for each layout of the operands (n: rows side by side, t: transposed), the ratio of both times by the
number of multiplications, and the products where the blocks are slowest in comparison.  `SMALL_WORK` in
`_backends/cpu/gemm/blas.py` was chosen with it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable
from typing import Any

SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64)
LAYOUTS = ("nn", "nt", "tn", "tt")
MOST = 1 << 18  # multiplications of a measured product
CALLS, ROUNDS = 20, 25


def timed(call: Callable[..., Any], *args: Any) -> float:
    """Seconds of a call."""
    begun = time.process_time_ns()
    for _ in range(CALLS):
        call(*args)
    return (time.process_time_ns() - begun) / CALLS


def measured(kind: str, sizes: tuple[int, int, int], layout: str, buffers: list[Any]) -> tuple[float, float] | None:
    """Nanoseconds of both ways; None for products that are left to the library."""
    import numpy as np

    from rushlight._backends.cpu.gemm import blas
    from rushlight._backends.cpu.gemm.product_spec import ProductShape
    from rushlight._backends.cpu.gemm.small_native import is_small, small_ints
    from rushlight._backends.cpu.runtime import storage

    (m, n, k), size = sizes, 4 if kind == "f32" else 8
    strides = [
        (1, rows) if way == "t" else (columns, 1) for way, rows, columns in zip(layout, (m, k), (k, n), strict=True)
    ]
    shape = ProductShape(m, n, k, *strides)
    if not is_small(shape, size, MOST):
        return None
    usual = blas.gemm_ints(kind, shape, allocate=False)
    ways: list[tuple[Callable[..., Any], Any]] = []
    for call, ints in (
        (blas.gemm_kernel(kind, blas.prefers_own(kind)), usual),
        (blas.small_kernel(kind), small_ints(usual, shape, size)),
    ):
        words = np.array(ints, dtype=np.int64)
        ways.append((call, storage.from_owner(words.ctypes.data, words.nbytes, words)))
    addresses, best = [buffer.ctypes.data for buffer in buffers], [math.inf, math.inf]
    for _ in range(ROUNDS):
        for way, (call, held) in enumerate(ways):
            best[way] = min(best[way], timed(call, held, *addresses))
    return best[0], best[1]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--kind", default="f32", choices=("f32", "f64"))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="rows, columns and steps")
    parser.add_argument("--worst", type=int, default=15, help="how many products to name")
    chosen = parser.parse_args()
    import numpy as np

    import rushlight

    rushlight.set_num_threads(1)
    sizes = [int(size) for size in chosen.sizes.split(",")]
    dtype = "f4" if chosen.kind == "f32" else "f8"
    rng = np.random.default_rng(0)
    buffers = [rng.standard_normal(max(sizes) ** 2).astype(dtype) for _ in range(3)]
    for layout in LAYOUTS:
        rows: dict[int, list[float]] = {}
        found = []
        for m, n, k in itertools.product(sizes, repeat=3):
            if (both := measured(chosen.kind, (m, n, k), layout, buffers)) is not None:
                library, blocks = both
                found.append((blocks / library, (m, n, k), library, blocks))
                rows.setdefault((m * n * k).bit_length(), []).append(blocks / library)
        print(f"{chosen.kind} {layout}: multiplications, ratio of times: mean, least, most")
        for bits, ratios in sorted(rows.items()):
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"  < 2^{bits:<2d} {mean:6.2f} {min(ratios):6.2f} {max(ratios):6.2f}")
        for ratio, (m, n, k), library, blocks in sorted(found, reverse=True)[: chosen.worst]:
            print(f"  [{m}, {k}] @ [{k}, {n}]: {library:.0f} ns, by blocks {blocks:.0f} ns, {ratio:.2f}")


if __name__ == "__main__":
    main()
