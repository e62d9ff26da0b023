"""Programs of random calls, linked, beside the same calls one after another: not one byte may differ.

    python tools/compiled/linked_programs.py --kind chains --first 0 --count 1000 --threads 2
    python tools/compiled/linked_programs.py --kind products
    python tools/compiled/linked_programs.py --kind convolutions

`chains` mix element-wise calls, reductions, norms, softmax, products and views in float32, float64 and bfloat16; the others put
random work behind products and convolutions of many sizes and layouts.  A few of them are in the test-suite.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.kernels.call_programs import Calls, Stored
from tests.kernels.test_linked_programs import narrowed, random_program

import rushlight as torch
from rushlight._prims import build, prim
from rushlight._types.dtype import BFLOAT16, FLOAT32, FLOAT64

SIZES = (1, 2, 3, 7, 8, 16, 31, 64, 100, 128, 200, 257, 384, 512)


def _spread(x: Any, like: Any, dim: int) -> Any:
    return prim.broadcast(x, shape=like.shape, dims=(dim,))


def chains(seed: int) -> int:
    """A chain of calls; the number of its clusters."""
    return len(random_program(seed).linked.clusters)


def products(seed: int) -> int:
    """A product of any layout, and what follows it."""
    rand = random.Random(seed)
    dtype, program = rand.choice((FLOAT32, FLOAT32, FLOAT64, BFLOAT16)), Calls(seed)
    (m, n, k), batch = (rand.choice(SIZES) for _ in range(3)), rand.choice(((), (), (), (3,), (2, 4)))

    def matrix(*shape: int) -> Stored:
        if rand.random() < 0.5:
            return program.input((*batch, *shape), dtype)
        dims = len(batch)
        return program.view(
            program.input((*batch, *shape[::-1]), dtype), "transpose", perm=(*range(dims), dims + 1, dims)
        )

    a, b = matrix(m, k), matrix(k, n)
    y = program.call(lambda a, b: prim.dot(a, b, dtype=a.dtype), a, b)
    if rand.random() < 0.4:
        y = program.call(
            narrowed(lambda x, z: x + _spread(z, x, len(x.shape) - 1), dtype), y, program.input((n,), dtype)
        )
    z = program.call(narrowed(lambda x: prim.tanh(x) * 0.5 + x, dtype), y)
    if rand.random() < 0.5:
        z = program.call(narrowed(lambda x, r: x + r, dtype), z, program.input(z.shape, dtype))
    return len(program.check([z, y] if rand.random() < 0.4 else [z]).linked.clusters)


def convolutions(seed: int) -> int:
    """A convolution, and a norm, a residual and a threshold behind it."""
    rand = random.Random(seed)
    dtype, program = rand.choice((FLOAT32, FLOAT32, FLOAT32, BFLOAT16)), Calls(seed)
    n, c, o = rand.choice((1, 2, 4, 32)), rand.choice((1, 3, 4, 8, 16, 64, 96)), rand.choice((1, 4, 8, 16, 64, 130))
    side, k, step = rand.choice((4, 7, 8, 14, 16, 28)), rand.choice((1, 3, 3, 5)), rand.choice((1, 1, 2))
    groups = c if rand.random() < 0.15 else 1
    o = c if groups > 1 else o
    last = (c * side * side, 1, side * c, c) if rand.random() < 0.3 else None
    x, w = program.input((n, c, side, side), dtype, last), program.input((o, c // groups, k, k), dtype)
    params: dict[str, Any] = {"stride": (step, step), "padding": (k // 2, k // 2), "dilation": (1, 1), "groups": groups}
    y = program.call(lambda a, b: prim.conv(a, b, **params), x, w)
    scales = [program.input((o,), dtype) for _ in range(2)]
    z = program.call(narrowed(lambda a, s, t: a * _spread(s, a, 1) + _spread(t, a, 1), dtype), y, *scales)
    if rand.random() < 0.5:
        z = program.call(narrowed(lambda a, b: a + b, dtype), z, program.input(z.shape, dtype))
    z = program.call(narrowed(lambda a: prim.maximum(a, build.full_like(a, 0.0)), dtype), z)
    return len(program.check([z, y] if rand.random() < 0.3 else [z]).linked.clusters)


KINDS: dict[str, Callable[[int], int]] = {"chains": chains, "products": products, "convolutions": convolutions}


def main() -> None:
    """Go through the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="chains")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--threads", type=int, default=0)
    given = parser.parse_args()
    if given.threads:
        torch.set_num_threads(given.threads)
    wrong, clusters = [], 0
    for seed in range(given.first, given.first + given.count):
        try:
            clusters += KINDS[given.kind](seed)
        except AssertionError:
            wrong.append(seed)
    print(f"{given.kind}: {given.count} programs, {clusters} clusters, other bytes in {len(wrong)}: {wrong[:20]}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
