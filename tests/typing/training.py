"""A training loop as users write it, with annotations."""

from __future__ import annotations

from typing import assert_type

import rushlight as torch
from rushlight import Tensor, nn
from rushlight.nn import functional as F
from rushlight.optim import SGD, Adam
from rushlight.optim.lr_scheduler import StepLR
from rushlight.utils.data import DataLoader, TensorDataset


class Network(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.last = nn.Linear(hidden, 2, bias=False)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.first(x)), inplace=True)
        x = F.dropout(x, 0.1, training=self.training)
        return self.scale * self.last(x)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(-1) == y).float().mean())


def train(steps: int = 2, device: torch.device | str = "cpu") -> list[float]:
    torch.manual_seed(0)
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    loader = DataLoader(TensorDataset(x, y), batch_size=4, shuffle=True)
    model = Network(hidden=8).to(device)
    optimizer = Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.99))
    schedule = StepLR(optimizer, step_size=1)
    losses: list[float] = []
    for _ in range(steps):
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets, label_smoothing=0.1)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        schedule.step()
    state = model.state_dict()
    model.load_state_dict({name: value.clone() for name, value in state.items()})
    assert_type(accuracy(model.eval(), x, y), float)
    return losses


def parameters() -> int:
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1))
    SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


if __name__ == "__main__":
    assert len(train()) == 4 and parameters() == 53
