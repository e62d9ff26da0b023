"""Programs compiled ahead of time: build, size, load to the first result, and what two serving threads do of one.

    python bench/packages.py [build load threads] [--rounds N]

Everything is of ResNet-18 (batch 1, 224 x 224).  Each line has wall time and CPU time, the least of the rounds: CPU time is what
remains meaningful beside other programs.  `load` starts processes and tells its floors: Python alone, and importing NumPy, without
which a package can be loaded and called (`buffers`).  `threads` says calls per second of wall time and of CPU time, and which
share of the time two calls ran side by side.  Kernels are compiled into a folder of their own, which is empty at first.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import quantized  # beside this file
import rushlight as torch

HEAD = "import sys\n"
LOAD = "from rushlight_loader import load\nprogram = load(sys.argv[1])\n"
WITH_NUMPY = "program(np.ones((1, 3, 224, 224), np.float32))\n"
WITHOUT = "program.buffers(bytes(3 * 224 * 224 * 4))\n"
MEMORY = "import resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, open('/proc/self/smaps_rollup').read())\n"
PROGRAMS = {
    "Python alone": "",
    "import NumPy": "import numpy\n",
    "import rushlight": "import rushlight\n",
    "import the loader": "import rushlight_loader.loading\n",
    "load": LOAD,
    "load to first result": LOAD + WITHOUT,
    "... with NumPy": "import numpy as np\n" + LOAD + WITH_NUMPY,
    "... and a second": LOAD + WITHOUT + WITHOUT,
}


def in_process(code: str, path: str) -> tuple[float, float]:
    """Wall seconds of a new process, and its CPU seconds with all of its threads."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", HEAD + code, path], check=True, capture_output=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def built(folder: str) -> str:
    """The package of ResNet-18 in a folder, once more where it is there."""
    program, path = os.path.join(folder, "resnet18.pt2"), os.path.join(folder, "resnet18.rlp")
    if not os.path.exists(program):
        model = quantized.resnet18(torch)
        torch.export.save(torch.export.export(model, (torch.ones(1, 3, 224, 224),)), program)
    done = subprocess.run(
        [sys.executable, "-m", "rushlight", "package", program, "-o", path], check=True, capture_output=True, text=True
    )
    print(f"    {done.stdout.strip().removeprefix(folder + os.sep)}")
    return path


def row_build(folder: str, rounds: int) -> None:
    for attempt in range(2):
        cache = "with the kernels of the round before" if attempt else "with an empty cache"
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        path = built(folder)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"build {cache:40} {time.perf_counter() - began:7.1f} s wall {cpu:7.1f} s CPU", flush=True)
    weights = sum(p.numel() * p.element_size() for p in quantized.resnet18(torch).state_dict().values())
    print(f"size beside the weights {(os.path.getsize(path) - weights) / 1e6:.2f} MB, weights {weights / 1e6:.1f} MB")


def row_load(folder: str, rounds: int) -> None:
    path = built(folder)
    for name, code in PROGRAMS.items():
        found = [in_process(code, path) for _ in range(rounds)]
        wall, cpu = (1e3 * min(each) for each in zip(*found, strict=True))
        print(f"{name:24} {wall:7.1f} ms wall {cpu:7.1f} ms CPU", flush=True)
    done = subprocess.run(
        [sys.executable, "-c", "import sys\n" + LOAD + WITHOUT + MEMORY, path],
        check=True,
        capture_output=True,
        text=True,
    )
    words = {line.split(":")[0]: int(line.split()[1]) for line in done.stdout.splitlines()[1:] if line.endswith("kB")}
    own = words["Private_Dirty"] / 1e3
    print(f"memory of its own after a result: {own:.1f} MB; weights are mapped, and shared between processes")


def served(call: Callable[[], Any], threads: int, seconds: float) -> tuple[float, float, float]:
    """Calls per second of wall time and of CPU time, of so many threads, and the share of time in which two were in calls.

    The last holds beside other programs: while a call keeps the interpreter's lock, no other thread can note that it begins one.
    """
    noted: list[list[tuple[float, int]]] = [[] for _ in range(threads)]
    stop = time.perf_counter() + seconds

    def work(k: int) -> None:
        while time.perf_counter() < stop:
            began = time.perf_counter()
            call()
            noted[k] += [(began, 1), (time.perf_counter(), -1)]

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    began, spent = time.perf_counter(), time.process_time()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    wall, cpu = time.perf_counter() - began, time.process_time() - spent
    inside, at, both, any_ = 0, began, 0.0, 0.0
    for moment, change in sorted(each for notes in noted for each in notes):
        both += (moment - at) * (inside > 1)
        any_ += (moment - at) * (inside > 0)
        inside, at = inside + change, moment
    count = sum(map(len, noted)) / 2
    return count / wall, count / cpu, both / any_


def row_threads(folder: str, rounds: int) -> None:
    torch.set_num_threads(1)
    model, x = quantized.resnet18(torch), torch.ones(1, 3, 224, 224)
    package, compiled = torch._inductor.aoti_load_package(built(folder), run_single_threaded=True), torch.compile(model)

    def without_gradients(f: Callable[[Any], Any]) -> Callable[[], Any]:
        def call() -> Any:
            with torch.no_grad():
                return f(x)

        return call

    for name, f in (("eager", model), ("compiled", compiled), ("package", package)):
        call = without_gradients(f)
        call()
        pairs = [(served(call, 1, 1.0), served(call, 2, 1.0)) for _ in range(rounds)]  # in turn
        one, two = ([max(pair[k][i] for pair in pairs) for i in range(3)] for k in range(2))
        print(
            f"{name:9} one thread {one[0]:6.1f} calls a second, two {two[0]:6.1f}: {two[0] / one[0]:.2f} times; a CPU second has "
            f"{one[1]:.1f} and {two[1]:.1f}; side by side {100 * two[2]:.0f} % of the time",
            flush=True,
        )


ROWS = {"build": row_build, "load": row_load, "threads": row_threads}

if __name__ == "__main__":
    given = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    given.add_argument("rows", nargs="*", default=[])
    given.add_argument("--rounds", type=int, default=5)
    options = given.parse_args()
    root = str(Path(torch.__file__).resolve().parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    with tempfile.TemporaryDirectory() as place:
        os.environ["RUSHLIGHT_CACHE_DIR"] = os.path.join(place, "kernels")
        for row in options.rows or ROWS:
            ROWS[row](place, options.rounds)
