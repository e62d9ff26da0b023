"""Kernels of the Triton language on a GPU: what compiling takes with empty caches, and how long they run.

    python bench/cuda_triton.py                       Triton and PyTorch
    python -m rushlight bench/cuda_triton.py          ours; the same lines of code run

The kernels are those of `examples/triton_*.py`, unmodified.  A line of JSON for each: `cold` is the first call in ms, `ms` the median
of later ones on the device, `difference` the largest one from the formula in float32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
Row = tuple[Callable[[], Any], Callable[[], Any]]  # the kernel, and the formula that it follows


def rows(t: Any, small: bool) -> dict[str, Callable[[], Row]]:
    """Calls by name."""
    import torch.nn.functional as F

    sys.path.insert(0, str(EXAMPLES))
    from triton_flash_attention import attention
    from triton_layer_norm import LayerNorm
    from triton_matmul import matmul
    from triton_softmax import softmax
    from triton_vector_add import add

    def random(*shape: int) -> Any:
        return t.randn(*shape, device="cuda")

    def vector_add() -> Row:
        x, y = random(5000 if small else 1 << 26), random(5000 if small else 1 << 26)
        return lambda: add(x, y), lambda: x + y

    def softmax_rows() -> Row:
        x = random(4, 1000) if small else random(1 << 14, 4096)
        return lambda: softmax(x), lambda: t.softmax(x, 1)

    def layer_norm() -> Row:
        x = random(4, 1000) if small else random(1 << 14, 4096)
        w, b = random(x.shape[1]), random(x.shape[1])
        return lambda: LayerNorm.apply(x, w, b, 1e-5), lambda: F.layer_norm(x, (x.shape[1],), w, b, 1e-5)

    def product() -> Row:
        n = 128 if small else 4096
        a, b = random(n, n).bfloat16(), random(n, n).bfloat16()
        return lambda: matmul(a, b), lambda: a.float() @ b.float()

    def flash() -> Row:
        length, heads = (128, 1) if small else (8192, 16)
        q, k, v = (random(1, heads, length, 64).bfloat16() for _ in range(3))
        return lambda: attention(q, k, v), lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)

    return {
        "vector add": vector_add,
        "softmax": softmax_rows,
        "layer norm": layer_norm,
        "matmul bfloat16": product,
        "attention": flash,
    }


def measure(t: Any, make: Callable[[], Row], small: bool) -> dict[str, float]:
    """One row; the device is synchronised before each clock is read."""
    kernel, formula = make()
    t.cuda.synchronize()
    start = time.perf_counter()
    found = kernel()
    t.cuda.synchronize()
    cold = 1e3 * (time.perf_counter() - start)
    difference = (found.float() - formula().float()).abs().max().item()
    if small:
        return {"cold": cold, "difference": difference}
    pairs = []
    for _ in range(20):
        begin, end = (t.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        kernel()
        end.record()
        pairs.append((begin, end))
    t.cuda.synchronize()
    return {"cold": cold, "ms": statistics.median(b.elapsed_time(e) for b, e in pairs), "difference": difference}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="small sizes and no times: does the script itself work?")
    parser.add_argument("--only", default="", help="the rows of these names, between commas")
    given = parser.parse_args()
    import torch

    torch.manual_seed(0)
    (torch.zeros(1, device="cuda") + 1).item()  # the context and the first kernel belong to no row
    for name, make in rows(torch, given.small).items():
        if given.only and name not in given.only.split(","):
            continue
        try:
            values: dict[str, Any] = measure(torch, make, given.small)
        except Exception as error:
            values = {"failed": f"{type(error).__name__}: {str(error)[:300]}"}
        print(json.dumps({"name": name, **values}), flush=True)


if __name__ == "__main__":
    main()
