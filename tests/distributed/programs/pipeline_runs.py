"""Pipelines on four ranks: orders, losses and gradients; `pipelines.json` holds what PyTorch computed with gloo.

`python tests/distributed/programs/pipeline_runs.py` asks PyTorch anew and writes the file.
"""

from __future__ import annotations

import importlib
import json
import pathlib
import sys
import types
from typing import Any

FILE = pathlib.Path(__file__).with_name("pipelines.json")
ROWS = [
    ("GPipe", 4, 5), ("1F1B", 4, 6), ("Interleaved1F1B", 8, 8), ("LoopedBFS", 8, 3), ("InterleavedZeroBubble", 8, 8), ("ZBVZeroBubble", 8, 5),
    ("DualPipeV", 8, 9),
]  # fmt: skip
WIDTH = 5


def _filled(torch: Any, *shape: int, start: float) -> Any:
    count = 1
    for size in shape:
        count *= size
    return (torch.arange(count, dtype=torch.float64) * 0.7 + start).sin().float().reshape(shape)


def stage(torch: Any, number: int) -> Any:
    """The module of one stage: a linear layer, a norm, an activation."""
    made = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.LayerNorm(WIDTH), torch.nn.GELU())
    with torch.no_grad():
        made[0].weight.copy_(_filled(torch, WIDTH, WIDTH, start=number))
        made[0].bias.copy_(_filled(torch, WIDTH, start=0.3 * number))
    return made


def stages_of(name: str, rank: int, stages: int) -> list[int]:
    """The stages of a rank of four."""
    if name in ("ZBVZeroBubble", "DualPipeV"):
        return [rank, stages - 1 - rank]
    return list(range(rank, stages, 4))


def runs(torch: Any, package: str, rank: int) -> dict[str, Any]:
    """For each row the losses, and the sum and the sum of squares of each gradient of this rank's stages."""
    pipelining = importlib.import_module(f"{package}.distributed.pipelining")
    schedules = importlib.import_module(f"{package}.distributed.pipelining.schedules")
    found: dict[str, Any] = {}
    for name, stages, microbatches in ROWS:
        held = [
            pipelining.PipelineStage(stage(torch, k), k, stages, torch.device("cpu"))
            for k in stages_of(name, rank, stages)
        ]
        single = name in ("GPipe", "1F1B")
        kind = schedules.get_schedule_class(name)
        schedule = kind(held[0] if single else held, microbatches, loss_fn=torch.nn.functional.mse_loss)
        x, target = (_filled(torch, 2 * microbatches, WIDTH, start=s) for s in (0.1, 0.2))
        losses: list[Any] = []
        args = (x,) if any(s.is_first for s in held) else ()
        last = any(s.is_last for s in held)
        schedule.step(*args, target=target if last else None, losses=losses)
        found[name] = {
            "losses": [loss.item() for loss in losses],
            "grads": {
                f"{s.stage_index} {key}": [p.grad.double().sum().item(), p.grad.double().square().sum().item()]
                for s in held
                for key, p in s.submod.named_parameters()
            },
        }
    return found


def orders(schedules: Any, name: str, ranks: int, per_rank: int, microbatches: int) -> list[str]:
    """The computations of each rank as text, from PyTorch's schedule of stages that are not there."""
    count, held = ranks * per_rank, []
    for number in (
        stages_of(name, 0, count) if ranks == 4 else [0, *([count - 1] if "V" in name else range(ranks, count, ranks))]
    ):
        group = types.SimpleNamespace(size=lambda: ranks, rank=lambda: 0)
        held.append(
            types.SimpleNamespace(
                group_size=ranks, group_rank=0, num_stages=count, stage_index=number, is_first=number == 0, is_last=number == count - 1,
                group=group, submod=None, has_backward=True, stage_index_to_group_rank={}, device=None,
            )
        )  # fmt: skip
    kind = schedules.get_schedule_class(name)
    schedule = kind(held[0] if name == "GPipe" else held, microbatches, loss_fn=lambda y, t: None)
    order = schedule._get_pipeline_order() if name == "GPipe" else schedule.pipeline_order
    return [" ".join(str(a) for a in order[r] if a is not None and "REDUCE" not in str(a)) for r in range(ranks)]


def orders_asked() -> list[tuple[str, int, int, int]]:
    """(name, ranks, stages on each, micro-batches)"""
    several = [(2, 2, 4), (4, 2, 8), (2, 3, 4), (3, 2, 6), (2, 1, 4), (2, 2, 3), (4, 2, 10)]
    names = ["Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble"]
    found = [("GPipe", 3, 1, 5), *((name, *row) for name in names for row in several)]
    found += [("ZBVZeroBubble", n, 2, m) for n, m in ((2, 4), (2, 2), (4, 8), (3, 6), (4, 10))]
    return found + [("DualPipeV", n, 2, m) for n, m in ((2, 4), (3, 6), (2, 7), (4, 10))]


def main() -> None:
    """Four processes of PyTorch, which write the file."""
    import torch
    import torch.multiprocessing as mp

    queue = mp.get_context("spawn").SimpleQueue()
    context = mp.spawn(_rank, (queue,), nprocs=4, join=False)
    found = dict(queue.get() for _ in range(4))
    context.join()
    schedules: Any = importlib.import_module("torch.distributed.pipelining.schedules")
    rows = {" ".join(map(str, row)): orders(schedules, *row) for row in orders_asked()}
    content = {"torch": torch.__version__, "orders": rows, "runs": [found[rank] for rank in range(4)]}
    text = json.dumps(content, indent=0)
    FILE.write_text(text + "\n")


def _rank(rank: int, queue: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29871", rank=rank, world_size=4)
    queue.put((rank, runs(torch, "torch", rank)))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
