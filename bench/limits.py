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
import operator
from dataclasses import dataclass

import rushlight as rl
from rushlight._backends.cpu.program.peak import Peak, best, copy_rates, flop_rate
from rushlight._native.target import host_target


@dataclass(frozen=True)
class Limits:
    """`flops[dtype]` a second, `copy[footprint]` bytes a second, `call` seconds."""

    flops: dict[str, float]
    copy: dict[int, float]
    call: float

    def seconds(self, flops: float, moved: float, dtype: str = "float32") -> float:
        """The least time for so much work: arithmetic or memory, whichever takes longer."""
        return max(Peak(self.flops, self.copy).seconds(flops, moved, dtype), self.call)


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
            name: flop_rate(threads, kind)
            for name, kind in (("float32", "f32"), ("float64", "f64"), ("bfloat16", "bf16"))
        }
        return Limits(flops, copy_rates(threads), measure_call())
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
