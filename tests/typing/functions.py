"""Functions, modules and data sets of a user's own."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight import Tensor, nn
from rushlight.utils.data import DataLoader, Dataset


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


class Squares(Dataset[tuple[Tensor, Tensor]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        x = torch.tensor([float(index)])
        return x, x * x


class Cubed(nn.Module):
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(1))
        self.parts = nn.ModuleList([nn.Linear(1, 1) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        cubed: Tensor = Cube.apply(x * self.weight)
        return cubed


def same_size(first: Tensor, *others: Tensor, dtype: torch.dtype | None = None) -> list[Tensor]:
    """Uses a function of the package as a value."""
    shape = torch.broadcast_shapes(first.shape, *[o.shape for o in others])
    return [torch.broadcast_to(t, shape).to(dtype or first.dtype) for t in (first, *others)]


if __name__ == "__main__":
    model = Cubed()
    for inputs, _ in DataLoader(Squares(), batch_size=2):
        model(inputs).sum().backward()
    assert len(same_size(torch.ones(2, 1), torch.ones(3))) == 2
