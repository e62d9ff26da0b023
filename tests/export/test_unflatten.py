"""Programs as modules in modules: any order of calls of nested modules, with buffers that they change, gives eager's bits."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

import rushlight as torch

Tensor = torch.Tensor


class Level(torch.nn.Module):
    """One of several nested modules, whose steps reach into those below it; the flag picks one of two lists of steps."""

    def __init__(self, depth: int, draw: random.Random) -> None:
        super().__init__()
        self.buf = torch.nn.Buffer(torch.full((1,), float(depth)))
        self.const = torch.ones(1) * 0.5
        if depth:
            self.inner = Level(depth - 1, draw)
        kinds = ["call", "call", "read", "write"] if depth else ["read", "write", "own"]
        self.steps = [
            [(draw.choice(kinds), draw.randint(1, max(depth, 1)), draw.random() < 0.5) for _ in range(3)]
            for _ in range(2)
        ]

    def below(self, count: int) -> Level:
        found = self
        for _ in range(count):
            found = getattr(found, "inner", found)
        return found

    def forward(self, x: Tensor, flag: bool) -> Tensor:
        x = x * 2 + self.const
        for word, count, other in self.steps[flag]:
            if word == "call":
                x = self.below(count)(x + 1, other) - 3
            elif word == "read":
                x = x + self.below(count).buf
            elif word == "own":
                x = x - self.buf * 0.5
            else:
                self.below(count).buf.add_(x[:1] * 0.125)
        return x


class Net(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        self.top = Level(3, random.Random(seed))

    def forward(self, x: Tensor) -> Tensor:
        return self.top.inner(x, True) + self.top(x, False) + self.top.below(2)(x, False)


NAMES = ("top", "top.inner", "top.inner.inner", "top.inner.inner.inner")


def _alike(net: Any, program: Any, x: Tensor) -> None:
    """Results and state are those of eager, in two calls."""
    flat, eager = torch.export.unflatten(program), copy.deepcopy(net)
    for _ in range(2):
        assert torch.equal(flat(x), eager(x))
    found = dict(flat.named_buffers(remove_duplicate=False))
    for name, value in eager.named_buffers():
        assert torch.equal(found[name], value)


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_nested_calls(seed: int) -> None:
    net, x = Net(seed), torch.randn(2)
    _alike(net, torch.export.export(copy.deepcopy(net), (x,)), x)
    kept = tuple(name for name in NAMES if random.Random(seed).random() < 0.5)
    used = {entry.fqn for entry in torch.export.export(copy.deepcopy(net), (x,)).module_call_graph}
    kept = tuple(name for name in kept if name in used)
    _alike(net, torch.export.export(copy.deepcopy(net), (x,), preserve_module_call_signature=kept), x)


@pytest.mark.parametrize("seed", range(4))
def test_new_values_of_buffers_are_written(seed: int) -> None:
    net, x = Net(seed), torch.randn(2)
    _alike(net, torch.export.export(copy.deepcopy(net), (x,)).run_decompositions(), x)
