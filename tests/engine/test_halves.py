"""Backward in two halves gives the gradients of one backward, bit for bit."""

from __future__ import annotations

import copy
from typing import Any

import rushlight as torch
from rushlight._engine.autograd import halves


class Product(torch.autograd.Function):
    """A backward that cannot be divided."""

    @staticmethod
    def forward(ctx: Any, a: Any, w: Any) -> Any:
        ctx.save_for_backward(a, w)
        return a * w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        a, w = ctx.saved_tensors
        return g * w, (g * a).sum(0)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.randn(6))
        self.normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(6, 6))
        self.norm, self.twice, self.frozen = torch.nn.LayerNorm(6), torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
        self.conv, self.rnn = torch.nn.Conv1d(6, 6, 3, padding=1), torch.nn.GRU(6, 6, batch_first=True)
        self.frozen.requires_grad_(False)

    def forward(self, x: Any) -> Any:
        x = Product.apply(x, self.w)
        x = self.norm(x + self.normed(x).relu())
        x = self.frozen(self.twice(x) + self.twice(x * 2))
        x = self.conv(x.T[None])[0].T
        return self.rnn(x[None])[0][0], self.w.sum()


def test_halves() -> None:
    torch.manual_seed(0)
    net = Net()
    other, x = copy.deepcopy(net), torch.randn(5, 6, requires_grad=True)
    y, g = x.detach().clone().requires_grad_(), torch.randn(5, 6)
    torch.autograd.backward(net(x), (g, torch.tensor(2.0)))
    outputs = other(y)
    (found,), second = halves.run_in_halves(outputs, [g, torch.tensor(2.0)], [y])
    assert torch.equal(found, x.grad) and y.grad is None
    assert all(p.grad is None for p in other.parameters())
    second()
    for (name, p), q in zip(net.named_parameters(), other.parameters(), strict=True):
        assert p.grad is q.grad if p.grad is None else torch.equal(p.grad, q.grad), name


def test_each_half_computes_its_part_alone() -> None:
    layer, x = torch.nn.Linear(4, 3), torch.randn(2, 4, requires_grad=True)
    y = layer(x)
    node = y.grad_fn
    seen: list[Any] = []
    plain = type(node.info).backward_for

    def watched(self: Any, saved: Any, grads: Any, edges: Any) -> Any:
        found = plain(self, saved, grads, edges)
        seen.append([k for k, g in enumerate(found) if g is not None])
        return found

    type(node.info).backward_for = watched
    try:
        _, second = halves.run_in_halves([y], [torch.ones(2, 3)], [x])
        second()
    finally:
        type(node.info).backward_for = plain
    assert len(seen) == 2 and len(seen[0]) == 1 and len(seen[1]) == 2 and not set(seen[0]) & set(seen[1])
    assert torch.equal(layer.bias.grad, torch.full((3,), 2.0))


def test_what_is_computed_anew_is_so_once_in_each_half() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU(), torch.nn.LayerNorm(4), torch.nn.Linear(4, 4))
    other, x = copy.deepcopy(net), torch.randn(3, 4, requires_grad=True)
    y, runs = x.detach().clone().requires_grad_(), []
    net(x).sum().backward()

    def counted(t: Any) -> Any:
        runs.append(t)
        return other(t)

    out = torch.utils.checkpoint.checkpoint(counted, y, use_reentrant=False)
    (found,), second = halves.run_in_halves([out], [torch.ones(3, 4)], [y])
    second()
    assert torch.equal(found, x.grad) and len(runs) == 3
    assert all(torch.equal(p.grad, q.grad) for p, q in zip(net.parameters(), other.parameters(), strict=True))
