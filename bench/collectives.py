"""Collectives of two ranks: rushlight, bare mpi4py, and PyTorch with gloo, one after the other in the same run.

    python bench/collectives.py [--ranks 2] [--torch-python PYTHON] [--steps]

Needs `rushlight[mpi]`; PyTorch is measured where the other interpreter has it.  Times are microseconds: the shortest and
the median over the calls of rank 0, in several passes.  The ratios are those of the shortest: ranks wait for one another,
so on a machine that does something else the median says what that is.  `--steps` adds training steps with `DistributedDataParallel`.
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

ROOT = Path(__file__).resolve().parent.parent
SIZES = {"4 B": 4, "1 KB": 1 << 10, "64 KB": 1 << 16, "1 MB": 1 << 20, "16 MB": 1 << 24, "64 MB": 1 << 26}
PASSES = 3
NAMES = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all")


def measured(call: Callable[[], Any], barrier: Callable[[], Any], count: int) -> tuple[float, float]:
    """Shortest and median of the times of a call, in microseconds."""
    for _ in range(3):
        call()
    barrier()
    times = []
    for _ in range(count):
        began = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - began))
    times.sort()
    return times[0], times[count // 2]


def calls_of(torch: Any, dist: Any, nbytes: int) -> dict[str, Callable[[], Any]]:
    """The collectives of a size, by rushlight's or PyTorch's functions."""
    size, n = dist.get_world_size(), nbytes // 4
    x = torch.zeros(n)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: dist.all_reduce(x),
        "broadcast": lambda: dist.broadcast(x, 0),
    }
    if n >= size:
        part, other = torch.zeros(n // size), torch.zeros(n)
        calls["all_gather"] = lambda: dist.all_gather_into_tensor(x, part)
        calls["reduce_scatter"] = lambda: dist.reduce_scatter_tensor(part, x)
        calls["all_to_all"] = lambda: dist.all_to_all_single(other, x)
    return calls


def bare_calls(MPI: Any, np: Any, nbytes: int) -> dict[str, Callable[[], Any]]:
    """The same by mpi4py alone."""
    world, n = MPI.COMM_WORLD, nbytes // 4
    x = np.zeros(n, np.float32)
    calls: dict[str, Callable[[], Any]] = {
        "all_reduce": lambda: world.Allreduce(MPI.IN_PLACE, x),
        "broadcast": lambda: world.Bcast(x, 0),
    }
    if n >= world.size:
        part, other = np.zeros(n // world.size, np.float32), np.zeros(n, np.float32)
        calls["all_gather"] = lambda: world.Allgather(part, x)
        calls["reduce_scatter"] = lambda: world.Reduce_scatter_block(x, part)
        calls["all_to_all"] = lambda: world.Alltoall(x, other)
    return calls


def rank_of(kind: str) -> None:
    """What one rank does; rank 0 prints its times as JSON."""
    if kind == "torch":
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
    else:
        import rushlight as torch
        import rushlight.distributed as dist
    dist.init_process_group("gloo")
    rows: dict[str, Any] = {}
    for label, nbytes in list(SIZES.items()) * PASSES:
        count = 100 if nbytes < 1 << 20 else 30 if nbytes < 1 << 24 else 4 if nbytes < 1 << 26 else 2
        if kind == "bare":
            import numpy as np
            from mpi4py import MPI

            calls = bare_calls(MPI, np, nbytes)
        else:
            calls = calls_of(torch, dist, nbytes)
        for name, call in calls.items():
            row, found = f"{name} {label}", measured(call, dist.barrier, count)
            rows[row] = tuple(map(min, found, rows.get(row, found)))
    if kind != "bare" and os.environ.get("BENCH_STEPS"):
        rows.update(steps(torch, dist))
    if dist.get_rank() == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


def steps(torch: Any, dist: Any) -> dict[str, Any]:
    """Training steps of a model on one rank and with `DistributedDataParallel`."""
    nn = torch.nn
    rows = {}
    for wrapped in (False, True):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
        model = nn.parallel.DistributedDataParallel(model) if wrapped else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x, y = torch.randn(64, 784), torch.zeros(64, dtype=torch.long)

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> None:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

        rows[f"MLP step, {'DDP' if wrapped else 'alone'}"] = measured(step, dist.barrier, 60)
    return rows


def run(kind: str, python: str, ranks: int, port: int) -> dict[str, Any]:
    """The rows of one kind."""
    env = {
        **os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
        "RUSHLIGHT_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip
    command = [python, __file__, "--rank-of", kind]
    processes = [
        subprocess.Popen(
            command, env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for rank in range(ranks)
    ]
    out = [process.communicate(timeout=300)[0] for process in processes]
    return json.loads(out[0].strip().split("\n")[-1]) if out[0].strip() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--torch-python", default=sys.executable)
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank_of:
        return rank_of(args.rank_of)
    if args.steps:
        os.environ["BENCH_STEPS"] = "1"
    kinds = {"ours": sys.executable, "bare": sys.executable, "torch": args.torch_python}
    found = {kind: run(kind, python, args.ranks, 29711 + k) for k, (kind, python) in enumerate(kinds.items())}
    print(
        f"{'':26}{'rushlight':>16}{'mpi4py':>16}{'gloo':>16}{'of mpi4py':>11}{'of gloo':>9}   (shortest / median, us)"
    )
    for row, ours in found["ours"].items():
        cells = [found[kind].get(row) for kind in kinds]
        texts = [f"{cell[0]:.4g} / {cell[1]:.4g}" if cell else "" for cell in cells]
        ratios = [f"{ours[0] / cell[0]:.2f}" if cell else "" for cell in cells[1:]]
        print(f"{row:26}{texts[0]:>16}{texts[1]:>16}{texts[2]:>16}{ratios[0]:>11}{ratios[1]:>9}")


if __name__ == "__main__":
    main()
