"""Operators on tensors of subclasses: every form gives the values, gradients and versions of plain tensors, in the subclass.

One case a form of every operator; `tools/sweeps/subclasses.py` runs all.
"""

from __future__ import annotations

import pytest
from tests.ops.wrapped import OPERATORS, cases, some, told, unlike_plain, unlike_pytorch

import rushlight

KEYS = [key for key in OPERATORS if some(key)]


@pytest.mark.parametrize("key", KEYS)
def test_as_on_plain_tensors(key: str) -> None:
    for case in some(key):
        assert not (wrong := unlike_plain(rushlight, case, told(rushlight, case.plain()))), f"{case}{wrong}"


@pytest.mark.parametrize("key", ["add", "mul", "masked_fill", "copysign", "select", "expand", "cumsum", "max_dim"])
def test_every_case_of_some(key: str) -> None:
    for case in cases(key):
        assert not (wrong := unlike_plain(rushlight, case, told(rushlight, case.plain()))), f"{case}{wrong}"


@pytest.mark.oracle
@pytest.mark.parametrize("key", KEYS[::4])
def test_as_pytorch(key: str) -> None:
    torch = pytest.importorskip("torch")
    op = OPERATORS[key]
    if not op.spaces and not hasattr(torch.Tensor, op.public):
        pytest.skip("no name of PyTorch's")
    for case in some(key):
        assert not (wrong := unlike_pytorch(rushlight, torch, case)), f"{case}{wrong}"
