"""Kernels of the Triton language on the CPU beside our own operators, and beside Triton's interpreter.

    python -m rushlight bench/triton_cpu.py                          both, on one thread and on two
    python -m rushlight bench/triton_cpu.py --interpreter PYTHON     and a Python with Triton and PyTorch, for its interpreter

The kernels are those of `examples/triton_*.py`, unmodified.  A time is processor time of one call, the best of many, so that other
programs on the machine disturb it little; with two threads it is elapsed time.  Cold is what a first call takes more than later ones,
with an
empty cache: parsing, the block IR, LLVM (a first small kernel loads LLVM before, and is not counted; nor is what Triton loads).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
# what a fifth of Triton's time to compile for a GPU is, measured with Triton 3.9 without one, in ms
FIFTH = {
    "vector add": 58,
    "softmax": 80,
    "layer norm": 140,
    "gelu": 120,
    "matmul float32": 600,
    "matmul bfloat16": 600,
    "attention": 540,
}

# The kernel, our operator, and how many programs the kernel runs
Row = tuple[Callable[[], Any], Callable[[], Any], int]


def rows(small: bool) -> dict[str, Callable[[], Row]]:
    """Calls by name; `small` ones for an interpreter."""
    import torch
    import torch.nn.functional as F

    sys.path.insert(0, str(EXAMPLES))
    from triton_flash_attention import attention
    from triton_fused_gelu import fused_kernel
    from triton_layer_norm import LayerNorm
    from triton_matmul import matmul
    from triton_softmax import softmax_kernel
    from triton_vector_add import add

    def vector_add() -> Row:
        n = 1 << 12 if small else (1 << 22) + 1
        x, y = torch.randn(n), torch.randn(n)
        return lambda: add(x, y), lambda: x + y, -(-n // 1024)

    def softmax() -> Row:
        lines = 4 if small else 2048
        x = torch.randn(lines, 1000)
        out = torch.empty_like(x)
        kernel = lambda: softmax_kernel[(lines,)](out, x, 1000, 1000, lines, 1000, BLOCK=1024)
        return kernel, lambda: torch.softmax(x, 1), lines

    def layer_norm() -> Row:
        lines = 4 if small else 2048
        x, w, b = torch.randn(lines, 1000), torch.rand(1000), torch.rand(1000)
        return lambda: LayerNorm.apply(x, w, b, 1e-5), lambda: F.layer_norm(x, (1000,), w, b, 1e-5), lines

    def gelu() -> Row:
        n = 1 << 12 if small else 1 << 20
        x, b, out = torch.randn(n), torch.randn(1024), torch.empty(n)
        kernel = lambda: fused_kernel.fn[(n // 1024,)](x, b, out, n, 1024, 0.0, 0, BLOCK=1024, DROP=False)
        formula = lambda: F.gelu(x.view(-1, 1024) + b)
        if not small:
            formula = torch.compile(formula)
        return kernel, formula, n // 1024

    def product(dtype: str) -> Callable[[], Row]:
        def make() -> Row:
            n = 128 if small else 512
            a, b = (torch.randn(n, n).to(getattr(torch, dtype)) for _ in range(2))
            return lambda: matmul(a, b), lambda: a @ b, (n // 64) ** 2 * (n // 32)

        return make

    def flash() -> Row:
        length, heads = (128, 1) if small else (1024, 4)
        q, k, v = (torch.randn(1, heads, length, 64).bfloat16() for _ in range(3))
        formula = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True)
        tiles = length // 64
        return lambda: attention(q, k, v), formula, heads * tiles * (tiles + 1)

    return {
        "vector add": vector_add, "softmax": softmax, "layer norm": layer_norm, "gelu": gelu, "matmul float32": product("float32"),
        "matmul bfloat16": product("bfloat16"), "attention": flash,
    }  # fmt: skip


def best(call: Callable[[], Any], clock: Callable[[], float], seconds: float = 0.3) -> float:
    """The shortest of some calls, in seconds."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 1000):
        start = clock()
        call()
        times.append(clock() - start)
    return min(times)


def interpreted() -> dict[str, float]:
    """Seconds a block in Triton's interpreter; run by a Python that has Triton and PyTorch."""
    import torch
    import triton

    class Driver:
        def get_active_torch_device(self) -> Any:
            return torch.device("cpu")

    triton.runtime.driver.set_active(Driver())
    found = {}
    for name, make in rows(small=True).items():
        try:
            call, _, blocks = make()
            found[name] = best(call, time.process_time, 0.05) / blocks
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return found


def ask(python: str) -> dict[str, float]:
    """The same, from another process."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [python, __file__, "--interpreted"], capture_output=True, text=True, env=environment, check=False
    )
    print(done.stderr, file=sys.stderr, end="")
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--interpreter", default="", help="a Python with Triton and PyTorch")
    parser.add_argument("--interpreted", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.interpreted:
        print(json.dumps(interpreted()))
        return
    import torch

    slow = ask(given.interpreter) if given.interpreter else {}
    if not given.only or given.only in "vector add":
        rows(small=True)["vector add"]()[0]()  # loads LLVM
    print(
        f"{'':17}{'cold':>8}{'kernel':>10}{'ours':>10}{'ratio':>7}{'2 threads':>11}{'ours':>10}{'ratio':>7}{'interpreter':>13}"
    )
    for name, make in rows(small=False).items():
        if given.only not in name:
            continue
        torch.manual_seed(0)
        call, formula, blocks = make()
        torch.set_num_threads(1)
        start = time.process_time()
        call()
        first = time.process_time() - start
        one = [best(f, time.process_time) for f in (call, formula)]
        torch.set_num_threads(2)
        two = [best(f, time.perf_counter, 1.0) for f in (call, formula)]
        torch.set_num_threads(1)
        cold = 1e3 * (first - one[0])
        line = f"{name:17}{cold:6.0f}ms{1e3 * one[0]:8.3f}ms{1e3 * one[1]:8.3f}ms{one[0] / one[1]:7.2f}"
        line += f"{1e3 * two[0]:9.3f}ms{1e3 * two[1]:8.3f}ms{two[0] / two[1]:7.2f}"
        line += f"{slow[name] * blocks / one[0]:12.0f}x" if name in slow else ""
        print(line + ("" if cold <= FIFTH[name] else f"   cold: more than {FIFTH[name]} ms"))


if __name__ == "__main__":
    main()
