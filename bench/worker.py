"""The process that measures one framework: reads row names from standard input, answers a line of JSON for each."""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from typing import Any

from registry import Call
from rows import ROWS


def measure(call: Call, budget: float) -> dict[str, Any]:
    """The median time of `call` over samples that take `budget` seconds together."""
    clock = time.perf_counter
    began = clock()
    call()
    first = clock() - began
    for _ in range(3):
        call()
    loops = 1
    while True:  # a sample is long enough for the clock
        began = clock()
        for _ in range(loops):
            call()
        took = clock() - began
        if took > 2e-3:
            break
        loops *= 2 if took > 5e-4 else 8
    samples = []
    end = clock() + budget
    while clock() < end or len(samples) < 5:
        began = clock()
        for _ in range(loops):
            call()
        samples.append((clock() - began) / loops)
    quarters = statistics.quantiles(samples, n=4)
    return {
        "median": statistics.median(samples),
        "spread": quarters[2] - quarters[0],
        "first": first,
        "samples": len(samples),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--budget", type=float, default=0.5)
    args = parser.parse_args()
    module = importlib.import_module(args.module)
    importlib.import_module(args.module + ".nn.functional")
    importlib.import_module(args.module + ".optim")
    module.set_num_threads(args.threads)
    print(json.dumps({"version": str(module.__version__)}), flush=True)
    for line in sys.stdin:
        name = line.strip()
        module.manual_seed(0)
        try:
            answer = measure(ROWS[name].make(module), args.budget)
        except Exception as error:  # a row that fails is reported, and the others still measured
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
