"""Bodies of functions on tensors without memory: an error or a tensor, never a fault of the process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight._engine.core import convert
from rushlight._subclasses.fake_tensor import FakeTensorMode

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools" / "sweeps"))

import without_memory  # noqa: E402


def fake(*shape: int) -> Any:
    with FakeTensorMode():
        return torch.randn(shape)


def test_a_body_refuses_a_fake_tensor_by_name() -> None:
    with pytest.raises(RuntimeError, match="data is not allocated.*fake tensor"):
        torch.block_diag.__wrapped__(fake(2, 3), fake(2, 3))


def test_a_view_of_a_fake_tensor_has_no_memory_either() -> None:
    view = convert.call("select", fake(2, 3), 0, 1)
    assert view.shape == (3,)
    for read in (view.tolist, view.sum, lambda: view + 1):
        with pytest.raises(RuntimeError, match="data is not allocated|no data"):
            read()


def test_shapes_need_no_memory() -> None:
    with FakeTensorMode():
        whole = torch.block_diag(fake(2, 3), fake(4, 1))
    assert type(whole).__name__ == "FakeTensor" and whole.shape == (6, 4)
    assert torch.empty_like.__wrapped__(fake(2, 3)).shape == (2, 3)


@pytest.mark.parametrize(
    "pattern",
    ["block_diag|nonzero|argwhere|where|masked_select", "sort|topk|unique|bincount", "dropout|bernoulli|multinomial"],
)
def test_no_body_ends_the_process(pattern: str) -> None:
    died, ends = without_memory.sweep(list(without_memory.calls(pattern)))
    assert died == [] and sum(ends.values()) > 40


@pytest.mark.slow
def test_no_body_of_the_table_ends_the_process() -> None:
    died, ends = without_memory.sweep(list(without_memory.calls("")))
    assert died == [] and sum(ends.values()) > 20_000
