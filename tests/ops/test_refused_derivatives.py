"""Operators whose derivative PyTorch refuses: forward works, backward names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch

CALLS: dict[str, Callable[[Any], Any]] = {
    "heaviside": lambda x: torch.heaviside(x, torch.ones(())), "floor_divide": lambda x: x // 2,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_backward_refuses(name: str) -> None:
    x = torch.tensor([1.5, -2.0, 0.0], requires_grad=True)
    out = CALLS[name](x)
    assert out.requires_grad
    with pytest.raises(RuntimeError, match=f"derivative for aten::{name} is not implemented"):
        out.sum().backward()


def test_in_place_on_a_view() -> None:
    x = torch.ones(4, requires_grad=True)
    y = x * 3
    y[:2].floor_divide_(2.0)
    assert y.tolist() == [1.0, 1.0, 3.0, 3.0]
    with pytest.raises(RuntimeError, match="derivative for aten::floor_divide_ is not implemented"):
        y.sum().backward()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.floor_divide_(2.0)
    with torch.no_grad():
        x.floor_divide_(2.0)
    assert x.tolist() == [0.0] * 4 and x.requires_grad


def test_whole_numbers_and_no_dims() -> None:
    i = torch.tensor([1, 2, 3])
    assert torch.nn.functional.l1_loss(i, i + 1, reduction="sum").item() == 3
    assert torch.nn.functional.l1_loss(i, i + 1, reduction="none").dtype is torch.int64
    with pytest.raises(RuntimeError, match=r"mean\(\): could not infer output dtype.*Got: Long"):
        torch.nn.functional.l1_loss(i, i + 1)
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.tensor(3).repeat_interleave(2, dim=0)
    with pytest.raises(IndexError, match="tensor has no dimensions"):
        torch.tensor(3).repeat_interleave(torch.tensor([2]), dim=0)
    assert torch.tensor(3).repeat_interleave(2).tolist() == [3, 3]
