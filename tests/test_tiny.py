"""A smoke test of a few seconds: if this passes, the machine and the installation are sound.  Needs nothing but rushlight."""

from __future__ import annotations

import math

import rushlight as torch
import rushlight.nn as nn


def test_arithmetic() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert (x + 1).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert (x.T @ x).shape == (3, 3)
    assert x.sum().item() == 15
    assert repr(x[0]) == "tensor([0., 1., 2.])"


def test_gradient() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x.exp() * x).sum().backward()
    expected = [math.exp(v) * (1 + v) for v in (1.0, 2.0, 3.0)]
    assert all(abs(g - e) < 1e-4 for g, e in zip(x.grad.tolist(), expected, strict=True))


def test_second_gradient() -> None:
    x = torch.tensor(2.0, requires_grad=True)
    (first,) = torch.autograd.grad(x**3, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x)
    assert (first.item(), second.item()) == (12.0, 12.0)


def test_views_share_memory() -> None:
    x = torch.zeros(4)
    x[1:3].add_(1)
    assert x.tolist() == [0, 1, 1, 0]


def test_random_numbers_repeat() -> None:
    torch.manual_seed(3)
    first = torch.randn(5).tolist()
    torch.manual_seed(3)
    assert torch.randn(5).tolist() == first


def test_training() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    x = torch.randn(64, 2)
    y = x[:, :1] * x[:, 1:]
    losses = []
    for _ in range(60):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
