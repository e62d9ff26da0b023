"""Views that are older than the wish of their base for gradients."""

from __future__ import annotations

import pytest

import rushlight as torch


def test_a_view_from_before_follows_its_leaf() -> None:
    x = torch.ones(2, 3)
    row, part = x[0], x[0][1:]
    x.requires_grad = True
    assert row.requires_grad and part.requires_grad
    for view in (x, row, part):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            view.add_(1)
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        row[0] = 1
    (row * 2).sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0, 2.0], [0.0, 0.0, 0.0]]
    x.requires_grad_(False)
    assert not row.requires_grad and not part.requires_grad and row.grad_fn is None
    row.add_(1)
    assert x[0].tolist() == [2.0, 2.0, 2.0]


def test_views_of_several_and_of_no_grad_may_not_be_changed() -> None:
    x = torch.ones(2, 3)
    first = x.unbind()[0]
    with torch.no_grad():
        second = x[1]
    detached = x.detach()[0]
    x.requires_grad_()
    for view in (first, second):
        with pytest.raises(RuntimeError, match="is being modified inplace"):
            view.add_(1)
    detached.add_(1)
    assert x[0].tolist() == [2.0, 2.0, 2.0]


def test_data_is_of_the_same_layout() -> None:
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        torch.ones(1, 2).data = torch.ones(1, 2).to_sparse()
