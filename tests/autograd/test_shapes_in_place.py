"""Changes of shape in place are changes for whoever saved the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.t_(),
        lambda x: x.transpose_(0, 1),
        lambda x: x.swapaxes_(0, 1),
        lambda x: x.unsqueeze_(0),
        lambda x: x.as_strided_((2, 2), (1, 2)),
    ],
)
def test_what_was_saved_is_not_read_in_another_shape(change: Callable[[Any], Any]) -> None:
    x = torch.arange(4.0).reshape(2, 2).requires_grad_() * 1
    y = x * x
    before = x._version
    change(x)
    assert x._version == before + 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_resizing_counts_also_where_the_memory_moves() -> None:
    for shape in ((1, 2), (4, 4)):
        factor, x = torch.ones(2, 2), torch.ones(2, 2, requires_grad=True)
        y = x * factor
        factor.resize_(shape)
        assert factor._version == 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
