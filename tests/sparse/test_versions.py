"""Changes in place of sparse and masked tensors: they are counted, and no gradient reads what was changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rushlight as torch

CHANGED = "has been modified by an inplace operation"


def _coo() -> Any:
    return torch.sparse_coo_tensor([[0, 1, 1], [0, 2, 1]], [1.0, 2.0, 3.0], (3, 3)).coalesce()


def _csr() -> Any:
    return _coo().to_sparse_csr()


CHANGES: dict[str, Callable[[Any], Any]] = {
    "zero_": lambda x: x.zero_(),
    "mul_": lambda x: x.mul_(2),
    "neg_": lambda x: x.neg_(),
    "copy_": lambda x: x.copy_(x.clone()),
    "add_": lambda x: x.add_(x.clone()),
    "values": lambda x: x.values().mul_(2),
    "out": lambda x: torch.mul(x, x.clone(), out=x),
}


@pytest.mark.parametrize("make", [_coo, _csr])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_counts_once(make: Callable[[], Any], name: str) -> None:
    x = make()
    before, data = x._version, x.data
    CHANGES[name](x)
    assert x._version == before + 1
    assert x.detach()._version == x._version
    assert data._version == (before + 1 if name == "values" else before)
    x.data = make()
    assert x._version == before + 1


@pytest.mark.parametrize("make", [_coo, _csr])
@pytest.mark.parametrize("name", CHANGES)
def test_products_have_the_gradient_of_what_was_multiplied(make: Callable[[], Any], name: str) -> None:
    s, w = make(), torch.ones(3, 2, requires_grad=True)
    expected = s.to_dense().numpy().T @ np.ones((3, 2), np.float32)
    y = s @ w
    CHANGES[name](s)
    if name == "values":  # the memory of the factor was written
        with pytest.raises(RuntimeError, match=CHANGED):
            y.sum().backward()
    else:
        y.sum().backward()
        np.testing.assert_array_equal(w.grad.numpy(), expected)


def test_a_strided_factor_is_checked_where_it_is_read() -> None:
    s, v = _coo().requires_grad_(), torch.ones(3, 2)
    y = torch.sparse.mm(s, v)
    v.mul_(3)
    with pytest.raises(RuntimeError, match=CHANGED):
        y.sum().backward()
    s, w = _coo(), torch.ones(3, 2, requires_grad=True)
    y = torch.sparse.mm(s, w)
    with torch.no_grad():
        w.mul_(3)  # its gradient reads the other factor alone
    y.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), s.to_dense().numpy().T @ np.ones((3, 2), np.float32))


@pytest.mark.parametrize(
    ("name", "slope"), [("sin", np.cos), ("sqrt", lambda v: 0.5 / np.sqrt(v)), ("neg", lambda v: -np.ones_like(v))]
)
def test_functions_have_the_slope_at_what_they_were_given(name: str, slope: Callable[[Any], Any]) -> None:
    held = _coo().values().numpy()
    for in_place in (True, False):
        s = _coo().requires_grad_()
        z = (s * 1.0).coalesce()
        y = getattr(z, name + "_")() if in_place else getattr(z, name)()
        if not in_place:
            z.mul_(5)
        torch.sparse.sum(y).backward()
        np.testing.assert_allclose(s.grad.coalesce().values().numpy(), slope(held), rtol=1e-6)


def test_a_leaf_and_what_functions_save_are_checked() -> None:
    s = _coo().requires_grad_()
    y = s * s
    with torch.no_grad():
        s.mul_(2)
    with pytest.raises(RuntimeError, match=CHANGED):
        torch.sparse.sum(y).backward()

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, s: Any, w: Any) -> Any:
            ctx.save_for_backward(s)
            return s.detach() @ w.detach()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None, ctx.saved_tensors[0].t() @ grad

    s = _coo()
    y = Product.apply(s, torch.ones(3, 2, requires_grad=True))
    s.mul_(2)
    with pytest.raises(RuntimeError, match=CHANGED):
        y.sum().backward()


@pytest.mark.filterwarnings("ignore:The API of MaskedTensor")
def test_masked_tensors_have_the_slope_at_what_they_were_given() -> None:
    for in_place in (True, False):
        m = torch.masked.masked_tensor(
            torch.tensor([1.0, 2.0, 3.0]), torch.tensor([True, False, True]), requires_grad=True
        )
        z = m * 1.0
        y = z.exp_() if in_place else z.exp()
        if not in_place:
            z.mul_(3.0)
            assert z._version == 1
        y.sum().backward()
        np.testing.assert_allclose(m.grad.get_data().numpy()[[0, 2]], np.exp([1.0, 3.0]), rtol=1e-6)
