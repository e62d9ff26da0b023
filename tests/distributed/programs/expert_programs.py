"""What ranks run in the tests of expert parallel: each function is called with (rank, size)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.curves.plain import losses as train
from tests.distributed.programs.pipeline_programs import mine

import rushlight as torch
import rushlight.distributed as dist
from rushlight.distributed.device_mesh import init_device_mesh
from rushlight.distributed.pipelining import PipelineStage
from rushlight.distributed.pipelining.schedules import get_schedule_class
from rushlight.distributed.tensor.parallel import ExpertParallel, parallelize_module

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


class Experts(torch.nn.Module):
    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(count, width, width))
        self.shift = torch.nn.Parameter(torch.randn(count, width))

    def forward(self, tokens: Any, counts: Any) -> Any:
        weight, shift = (p.to_local() if hasattr(p, "to_local") else p for p in (self.weight, self.shift))
        pieces = tokens.split(counts.tolist())
        return torch.cat([(x @ w).tanh() + b for x, w, b in zip(pieces, weight, shift, strict=True)])


COUNTS = [[3, 0, 1, 2, 0, 0, 5, 1], [0, 0, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1], [0, 4, 0, 0, 0, 0, 0, 3]]


def experts(rank: int, size: int) -> list[str]:
    """Eight experts on four ranks against all on one: results, gradients of tokens and of parameters."""
    torch.manual_seed(2)
    one = Experts(8, 6)
    rows = [torch.randn(sum(row), 6) for row in COUNTS]
    grads = [torch.randn_like(row) for row in rows]
    divided = parallelize_module(copy.deepcopy(one), init_device_mesh("cpu", (4,)), ExpertParallel())
    x = rows[rank].clone().requires_grad_()
    for _ in range(2):
        divided.zero_grad()
        x.grad = None
        made = divided(x, torch.tensor(COUNTS[rank]))
        made.backward(grads[rank])
    for number, (row, grad) in enumerate(zip(rows, grads, strict=True)):
        y = row.clone().requires_grad_()
        expected = one(y, torch.tensor(COUNTS[number]))
        expected.backward(grad)
        if number == rank:
            assert torch.allclose(made, expected, atol=1e-6) and torch.allclose(x.grad, y.grad, atol=1e-6)
    for p, q in zip(divided.parameters(), one.parameters(), strict=True):
        assert torch.allclose(p.grad.full_tensor(), q.grad, atol=1e-5)
    found = []
    for call in (
        lambda: divided(x, torch.tensor([len(x)] * 3)),
        lambda: parallelize_module(Experts(6, 2), init_device_mesh("cpu", (4,)), ExpertParallel()),
    ):
        try:
            call()
            found.append("")
        except ValueError as error:
            found.append(str(error))
    return found


class Routed(torch.nn.Module):
    """A layer of a pipeline: each token goes to the expert that a router likes best, weighted by how much."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.router, self.experts, self.norm = (
            torch.nn.Linear(width, count),
            Experts(count, width),
            torch.nn.LayerNorm(width),
        )

    def forward(self, x: Any) -> Any:
        weight, chosen = self.router(x).softmax(-1).max(-1)
        order = chosen.argsort(stable=True)
        made = self.experts(x[order], torch.bincount(chosen, minlength=self.router.out_features))
        return self.norm(x + made[order.argsort()] * weight[:, None])


def pipelined(rank: int, size: int, names: list[str]) -> int:
    """Experts of four stages that two ranks have as a V (or in a loop) and divide with two others: losses and gradients of
    each schedule are those of one process.
    """
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "ep"))
    group, place, half = mesh.get_group("pp"), mesh.get_local_rank("pp"), mesh.get_local_rank("ep")
    for name in names:
        torch.manual_seed(5)
        one = [Routed(4, 6) for _ in range(4)]
        x, target = torch.randn(16, 6), torch.randn(16, 6)
        expected: list[list[float]] = []
        for a, b in zip(x.chunk(2), target.chunk(2), strict=True):
            expected.append([])
            for c, d in zip(a.chunk(4), b.chunk(4), strict=True):
                loss = torch.nn.functional.mse_loss(torch.nn.Sequential(*one)(c), d)
                (loss / 4).backward()
                expected[-1].append(loss.item())
        parts = copy.deepcopy(one)
        stages = []
        for k in mine(name, place, 2, 4):
            parts[k].zero_grad()
            parallelize_module(parts[k], mesh["ep"], {"experts": ExpertParallel()})
            stages.append(PipelineStage(parts[k], k, 4, "cpu", group=group))
        schedule = get_schedule_class(name)(stages, 4, loss_fn=torch.nn.functional.mse_loss)
        found: list[Any] = []
        last = any(stage.is_last for stage in stages)
        args = (x.chunk(2)[half],) if any(stage.is_first for stage in stages) else ()
        schedule.step(*args, target=target.chunk(2)[half] if last else None, losses=found)
        if last:
            assert torch.allclose(torch.stack(found).detach(), torch.tensor(expected[half]), atol=1e-6), name
        for stage in stages:
            whole = dict(one[stage.stage_index].named_parameters())
            for key, p in stage.submod.named_parameters():
                grad = p.grad.full_tensor() if key.startswith("experts") else p.grad
                if not key.startswith("experts"):
                    dist.all_reduce(grad, group=mesh.get_group("ep"))
                assert torch.allclose(grad, whole[key].grad, atol=1e-5), (name, stage.stage_index, key)
    return len(names)


def losses(rank: int, size: int, steps: int) -> list[float]:
    """Those of the example on these ranks."""
    return train(EXAMPLES / "moe_distributed.py", steps)
