"""Function modes and names of functions: what a mode is shown, as PyTorch shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight import overrides


def shown(program: Callable[[], Any]) -> list[str | None]:
    seen: list[str | None] = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(overrides.resolve_name(func))
            return func(*args, **(kwargs or {}))

    with Mode():
        program()
    return seen


X = torch.arange(4.0)


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (lambda: torch.ones(2), ["torch.ones"]), (lambda: torch.empty((2, 3), dtype=torch.int8), ["torch.empty"]),
        (lambda: torch.tensor([1.0]), ["torch.tensor"]), (lambda: torch.as_tensor(X), ["torch.as_tensor"]),
        (lambda: torch.from_numpy(np.ones(2)), ["torch.from_numpy"]), (lambda: torch.randn(2), ["torch.randn"]), (lambda: torch.rand(2), ["torch.rand"]),
        (lambda: torch.randint(3, (2,)), ["torch.randint"]), (lambda: torch.randperm(3), ["torch.randperm"]), (lambda: torch.full((2,), 1.0), ["torch.full"]),
        (lambda: torch.arange(3), ["torch.arange"]), (lambda: X.exp().sum(), ["torch.Tensor.exp", "torch.Tensor.sum"]),
        (lambda: torch.exp(X), ["torch.exp"]), (lambda: X + 1, ["torch.add"]), (lambda: X[0], ["torch.Tensor.__getitem__"]),
        (lambda: torch.cat([X, X]), ["torch.cat"]), (lambda: X.clone().add_(1), ["torch.clone", "torch.Tensor.add_"]),
        (lambda: torch.linalg.norm(X), ["torch.linalg.norm"]), (lambda: torch.ones(2).relu(), ["torch.ones", "torch.Tensor.relu"]),
    ],
)  # fmt: skip
def test_what_a_mode_is_shown(program: Callable[[], Any], names: list[str]) -> None:
    assert shown(program) == names
    assert shown(program) == names  # also where a plan is known already


def test_a_mode_that_changes_what_factories_make() -> None:
    class Double(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = dict(kwargs or {})
            if func in (torch.ones, torch.tensor, torch.randn):
                kwargs.setdefault("dtype", torch.float64)
            return func(*args, **kwargs)

    with Double():
        assert torch.ones(2).dtype is torch.tensor([1]).dtype is torch.randn(2).dtype is torch.float64
        assert torch.ones(2, dtype=torch.int8).dtype is torch.int8 and torch.zeros(2).dtype is torch.float32
        assert torch.nn.Linear(2, 2).weight.dtype is torch.float32
    assert torch.ones(2).dtype is torch.float32


def test_names() -> None:
    assert overrides.resolve_name(torch.add) == "torch.add" and overrides.resolve_name(torch.nn.functional.relu) == "torch.nn.functional.relu"
    assert overrides.resolve_name(torch.Tensor.__add__) == "torch.Tensor.__add__" and overrides.resolve_name(len) is None
    assert overrides.resolve_name(torch.Tensor.shape.__get__) == "torch.Tensor.shape.__get__"
    assert overrides.is_tensor_method_or_property(torch.Tensor.__add__) and not overrides.is_tensor_method_or_property(torch.cat)
