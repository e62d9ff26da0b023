"""Traces with symbolic sizes: conditions that tell of no size are asked of native code for each further size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import compile_function


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.scale, self.table = 2.0, {"shift": 1.0}

    def forward(self, x, n):
        made = (x * self.weight)[:n].sum(0) * self.scale + self.table["shift"]
        return made.relu() if self.training else made


def eval_mode(module: Scaled) -> None:
    module.eval()


def other_scale(module: Scaled) -> None:
    module.scale = 3.0


def other_item(module: Scaled) -> None:
    module.table["shift"] = -9.0


def other_dtype(module: Scaled) -> None:
    module.double()


def frozen(module: Scaled) -> None:
    module.weight.requires_grad_(False)


def replaced(module: Scaled) -> None:
    module.weight = torch.nn.Parameter(torch.full((4,), 5.0))


CHANGES: list[Callable[[Scaled], None]] = [eval_mode, other_scale, other_item, other_dtype, frozen, replaced]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_beside_sizes_is_seen(change: Callable[[Scaled], None]) -> None:
    mine, theirs = Scaled(), Scaled()
    compiled = torch.compile(mine)
    for n in range(5, 30):
        if n == 20:
            change(mine)
            change(theirs)
        x = torch.arange(40.0 * 4).reshape(40, 4)
        a, b = compiled(x, n), theirs(x, n)
        assert torch.equal(a, b) and a.dtype is b.dtype and a.requires_grad is b.requires_grad, n


def test_native_code_answers_for_further_sizes() -> None:
    scale = [2.0]

    def function(x, n):
        return x[:n] * scale[0] + x.shape[0]

    compiled: Any = compile_function(function)
    for n in range(5, 25):
        x = torch.arange(30.0 + n)
        assert torch.equal(compiled(x, n), function(x, n))
    (sized,) = compiled.entry.sized
    assert sized._sizes._rest.hits() > 5
    with pytest.raises(TypeError, match="indices"):
        compiled(torch.arange(30.0), "7")
    assert torch.equal(compiled(torch.arange(30), 9), function(torch.arange(30), 9))
