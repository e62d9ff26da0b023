"""What the planner predicts beside what ranks here take: `python bench/planner.py 2`.

Ranks are processes of this machine with one thread each.  The machine is measured by the ranks themselves, all at once.
With one rank the clock is that of the processor's time, which other programs on the machine change little.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import rushlight as torch
import rushlight.distributed as dist
from rushlight import nn
from rushlight.distributed.estimate import Layout, estimate, measure, model_work
from rushlight.distributed.fsdp import fully_shard
from rushlight.distributed.launcher.api import LaunchConfig, elastic_launch
from rushlight.distributed.tensor import init_device_mesh
from rushlight.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from rushlight.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    """The usual block of a transformer, without attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.gelu, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Any) -> Any:
        return x + self.down(self.gelu(self.up(self.norm(x))))


def tower(width: int, depth: int) -> nn.Module:
    return nn.Sequential(*[Block(width) for _ in range(depth)])


def mean(step: Any, seconds: float = 0.7) -> float:
    """Seconds of a step, on average over a while."""
    for _ in range(3):
        step()
    began, count = time.perf_counter(), 0
    done = torch.zeros(1)
    while not done.item():
        step()
        count += 1
        done.fill_(float(time.perf_counter() - began > seconds))
        dist.all_reduce(done)
    return (time.perf_counter() - began) / count


def train(model: nn.Module, x: Any) -> Any:
    optimizer = torch.optim.SGD(model.parameters(), 0.001)

    def step() -> None:
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def row(name: str, width: int, predicted: float, step: Any) -> str:
    measured = mean(step)
    return f"{name:>16}, width {width}: predicted {1e3 * predicted:6.2f} ms, measured {1e3 * measured:6.2f} ms, ratio {predicted / measured:.2f}"


def rows() -> list[str]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size, found = dist.get_world_size(), []
    machine = measure()
    for width, depth, batch in ((256, 4, 64), (512, 4, 128)):
        x = torch.rand(batch, width)
        work = model_work(tower(width, depth), x)
        if size == 1:
            found.append(
                row(
                    "one process",
                    width,
                    estimate(work, Layout(), machine, batch, "sgd").seconds,
                    train(tower(width, depth), x),
                )
            )
            continue
        sharded = tower(width, depth)
        for block in sharded:
            fully_shard(block)
        plan = {
            f"{k}.{name}": style()
            for k in range(depth)
            for name, style in (("up", ColwiseParallel), ("down", RowwiseParallel))
        }
        cases = (
            ("DDP", DistributedDataParallel(tower(width, depth)), Layout(dp=size), batch * size),
            ("fully_shard", fully_shard(sharded), Layout(dp=size, shard="parameters"), batch * size),
            (
                "tensor parallel",
                parallelize_module(tower(width, depth), init_device_mesh("cpu", (size,)), plan),
                Layout(tp=size),
                batch,
            ),
        )
        for name, model, layout, whole in cases:
            found.append(row(name, width, estimate(work, layout, machine, whole, "sgd").seconds, train(model, x)))
    dist.destroy_process_group()
    return [str(machine), *found]


if __name__ == "__main__":
    os.environ.setdefault("RUSHLIGHT_NUM_THREADS", "1")
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    if count == 1:
        time.perf_counter = time.process_time  # what `measure` reads too
        os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        print("\n".join(rows()))
        sys.exit()
    config = LaunchConfig(1, 1, nproc_per_node=count, rdzv_backend="c10d", start_method="spawn", max_restarts=0)
    print("\n".join(elastic_launch(config, rows)()[0]))
