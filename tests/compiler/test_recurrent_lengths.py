"""Recurrent layers over sequences of changing lengths: one trace for all lengths from the second on, with eager's bits."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
from rushlight._dynamo.utils import counters

CASES: dict[str, dict[str, Any]] = {
    "plain": {}, "batch_first": {"batch_first": True}, "two layers": {"num_layers": 2}, "both ways": {"bidirectional": True},
    "without bias": {"bias": False},
}  # fmt: skip


def graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_lengths_share_a_trace(kind: str, case: str) -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(4, 8, **CASES[case])
    compiled = torch.compile(module, fullgraph=True)
    for length in (5, 7, 9, 12, 6):
        x = torch.randn(*((3, length) if CASES[case].get("batch_first") else (length, 3)), 4)
        with torch.no_grad():
            mine, theirs = compiled(x), module(x)
        assert torch.equal(mine[0], theirs[0])
        assert torch.equal(mine[1][0], theirs[1][0])
    assert graphs() == 2


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_gradients_over_lengths(kind: str) -> None:
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    module = getattr(torch.nn, kind)(4, 8, batch_first=True)

    def step(x):
        module(x)[0].square().mean().backward()

    compiled = torch.compile(step, fullgraph=True)
    for length in (5, 7, 9, 12):
        x, found = torch.randn(3, length, 4), []
        for function in (step, compiled):
            for p in module.parameters():
                p.grad = None
            function(x)
            found.append([p.grad.clone() for p in module.parameters()])
        assert all(map(torch.equal, *found))
    assert graphs() <= 3


def test_lengths_of_a_projected_layer_are_burnt_in() -> None:
    module = torch.nn.LSTM(4, 8, proj_size=3)
    compiled = torch.compile(module)
    for length in (5, 7, 6):
        x = torch.randn(length, 2, 4)
        with torch.no_grad():
            assert torch.equal(compiled(x)[0], module(x)[0])
