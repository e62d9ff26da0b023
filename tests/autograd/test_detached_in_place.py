"""Saved tensors that leave the graph, or get other memory, before backward: what PyTorch refuses is refused, and nothing is read out of bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight

DETACHED = "Trying to use a saved tensor that has been detached in-place"


def _after(t: Any, make: Callable[[Any], Any], use: Callable[[Any], Any], change: Callable[[Any], Any]) -> Any:
    x = t.tensor([[1.0, 2.0], [3.0, 5.0]], requires_grad=True)
    y = make(x)
    z = use(y)
    change(y)
    z.sum().backward()
    return x.grad


CHANGES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "operand of mul": (lambda x: x.exp(), lambda y: y * y, lambda y: y.detach_()),
    "operand of sin": (lambda x: x * 2, lambda y: y.sin(), lambda y: y.detach_()),
    "operand of mm": (lambda x: x * 2, lambda y: y @ y, lambda y: y.detach_()),
    "operand of an in-place step": (lambda x: x * 2, lambda y: y.clone().mul_(y), lambda y: y.detach_()),
    "one of several results": (lambda x: x * 2, lambda y: (y * y).max(0)[0] * y, lambda y: y.detach_()),
    "a leaf again": (lambda x: x * 2, lambda y: y * y, lambda y: y.detach_().requires_grad_()),
    "and changed": (lambda x: x * 2, lambda y: y * y, lambda y: y.detach_().mul_(2)),
    "not saved": (lambda x: x * 2, lambda y: y * 3, lambda y: y.detach_()),
    "saved by its own node": (lambda x: x.exp(), lambda y: y * 3, lambda y: y.detach_()),
    "a view of it is saved": (lambda x: x * 2, lambda y: y.view(4) * y.view(4), lambda y: y.detach_()),
    "a leaf": (lambda x: x, lambda y: y * y, lambda y: y.detach_()),
    "a leaf without gradient": (lambda x: x, lambda y: y * y, lambda y: y.requires_grad_(False)),
    "a leaf off and on": (lambda x: x, lambda y: y * y, lambda y: y.requires_grad_(False).requires_grad_()),
    "a view": (lambda x: x * 2, lambda y: y * y, lambda y: y.view(4).detach_()),
}


@pytest.mark.oracle
@pytest.mark.parametrize("name", CHANGES)
def test_a_detached_operand_ends_as_in_pytorch(name: str) -> None:
    import torch

    ends = []
    for t in (torch, rushlight):
        try:
            grad = _after(t, *CHANGES[name])
            ends.append(None if grad is None else grad.tolist())
        except RuntimeError as error:
            ends.append(str(error)[:60])
    assert ends[0] == ends[1]


def test_what_is_detached_is_refused_by_backward_alone() -> None:
    y = rushlight.tensor([1.0, 2.0], requires_grad=True).exp()
    z = y * y
    y.detach_()
    assert y._version == 0
    assert z.grad_fn._saved_self.tolist() == y.tolist()
    with pytest.raises(RuntimeError, match=DETACHED):
        z.sum().backward()


def test_what_is_saved_after_detach_serves() -> None:
    y = rushlight.tensor([1.0, 2.0], requires_grad=True).exp().detach_().requires_grad_()
    (y * y).sum().backward()
    assert y.grad.tolist() == (2 * y).tolist()


def test_hooks_of_a_leaf_that_left_the_graph_run() -> None:
    seen = []
    x = rushlight.ones(2, requires_grad=True)
    x.register_hook(lambda g: seen.append("hook"))
    x.register_post_accumulate_grad_hook(lambda p: seen.append("after"))
    z = x * 2
    x.requires_grad_(False)
    z.sum().backward()
    assert seen == ["hook", "after"]
    assert x.grad is None


@pytest.mark.parametrize("shape", [(1,), (3,), (2, 1), (0,)])
@pytest.mark.parametrize("leaf", [False, True])
def test_data_of_another_shape_is_refused(shape: tuple[int, ...], leaf: bool) -> None:
    c = rushlight.tensor([3.0, 4.0], requires_grad=leaf)
    x = rushlight.ones(2, requires_grad=True)
    z = x * c
    c.data = rushlight.full(shape, 5.0)
    with pytest.raises(RuntimeError, match=r"was \[torch.float32 \[2\]\], and its .data was replaced by"):
        z.sum().backward()
    c, x = rushlight.tensor([3.0, 4.0]), rushlight.ones(2, requires_grad=True)  # and the next call is none the worse
    (x * c).sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]


@pytest.mark.parametrize("given", [[5.0, 6.0], [[0.0, 1.0], [2.0, 3.0]]])
def test_data_in_another_layout_is_read_there(given: Any) -> None:
    data = rushlight.tensor(given)
    data = data if data.ndim == 1 else data[:, 1]
    c = rushlight.tensor([3.0, 4.0])
    x = rushlight.ones(2, requires_grad=True)
    z = x * c
    c.data = data
    z.sum().backward()
    assert x.grad.tolist() == data.tolist()
