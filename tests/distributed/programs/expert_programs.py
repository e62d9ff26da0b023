"""What ranks run in the tests of expert parallel: each function is called with (rank, size)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from tests.curves.plain import losses as train

import rushlight as torch
from rushlight.distributed.device_mesh import init_device_mesh
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


def losses(rank: int, size: int, steps: int) -> list[float]:
    """Those of the example on these ranks."""
    return train(EXAMPLES / "moe_distributed.py", steps)
