"""Combinations of data, tensor and pipeline parallel on four ranks, against one process."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.curves.plain import load

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.fsdp import fully_shard
from rushlight.distributed.pipelining import PipelineStage
from rushlight.distributed.pipelining.schedules import get_schedule_class
from rushlight.distributed.tensor import DTensor
from rushlight.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from rushlight.nn.parallel import DistributedDataParallel

WIDTH, BATCH, STEPS = 6, 8, 3
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, 8), torch.nn.Linear(8, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def blocks(count: int) -> list[Any]:
    torch.manual_seed(4)
    return [Block() for _ in range(count)]


def data() -> list[tuple[Any, Any]]:
    torch.manual_seed(9)
    return [(torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)) for _ in range(STEPS)]


def alone(parts: list[Any]) -> list[float]:
    """Losses of one process."""
    net, losses = torch.nn.Sequential(*parts), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
    for x, y in data():
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def layouts(rank: int, size: int, rows: list[tuple[str, str]]) -> list[tuple[list[float], list[float], float]]:
    """For each row (what the other axis does, schedule): losses, those of one process, and the largest difference of a
    parameter in the end.
    """
    return [_layout(other, schedule) for other, schedule in rows]


def _layout(other: str, name: str) -> tuple[list[float], list[float], float]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("other", "pp"))
    group, place = mesh.get_group("pp"), mesh.get_local_rank("pp")
    count = 2 if name in ("GPipe", "1F1B") else 4
    parts = blocks(count)
    one = copy.deepcopy(parts)
    expected = alone(one)
    mine = {"ZBVZeroBubble": [place, 3 - place]}.get(name, list(range(place, count, 2)))
    stages = [PipelineStage(_divided(parts[k], other, mesh["other"]), k, count, "cpu", group=group) for k in mine]
    kind: Any = get_schedule_class(name)
    schedule = kind(stages[0] if count == 2 else stages, 2, loss_fn=torch.nn.functional.mse_loss)
    parameters = [p for stage in stages for p in stage.submod.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=0.05)
    found = []
    for x, y in data():
        if other != "tp":  # each replica takes its half of the batch
            x, y = (t.chunk(2)[mesh.get_local_rank("other")] for t in (x, y))
        losses: list[Any] = []
        optimizer.zero_grad()
        first, last = any(s.is_first for s in stages), any(s.is_last for s in stages)
        schedule.step(*((x,) if first else ()), target=y if last else None, losses=losses)
        optimizer.step()
        mean = torch.stack([loss.detach() for loss in losses]).mean() if last else torch.zeros(())
        dist.all_reduce(mean, group=group)
        if other != "tp":
            dist.all_reduce(mean, dist.ReduceOp.AVG, group=mesh.get_group("other"))
        found.append(mean.item())
    far = 0.0
    for stage in stages:
        for p, q in zip(stage.submod.parameters(), one[stage.stage_index].parameters(), strict=True):
            whole = p.full_tensor() if isinstance(p, DTensor) else p
            far = max(far, (whole - q).abs().max().item())
    return found, expected, far


def _divided(part: Any, other: str, mesh: Any) -> Any:
    if other == "dp":
        return DistributedDataParallel(part, process_group=mesh.get_group())
    if other == "fsdp":
        return fully_shard(part, mesh=mesh)
    return parallelize_module(part, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def example(rank: int, size: int, grid: tuple[int, int, int], steps: int) -> list[float]:
    """The losses of the example on a grid."""
    return load(EXAMPLES / "layouts_distributed.py").train_on_grid(*grid, steps)
