"""Gradients through sparse tensors: finite differences, and where they accumulate."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch

D = torch.float64
check = torch.sparse.as_sparse_gradcheck(torch.autograd.gradcheck)


def coo() -> Any:
    return torch.tensor([[0.0, 1.5, 0.0], [2.5, 0.0, -0.5]], dtype=D).to_sparse().requires_grad_()


def strided(*shape: int) -> Any:
    n = torch.arange(1.0, 1 + torch.Size(shape).numel(), dtype=D)
    return (n.sin() + 0.3).reshape(shape).requires_grad_()


FUNCTIONS = {
    "to_dense": lambda s: s.to_dense(),
    "values": lambda s: s.coalesce().values() if s.is_sparse else s.values(),
    "scaled": lambda s: s * 3,
    "sum": lambda s: s.sum(),
    "product": lambda s: s * strided(2, 3).detach(),
    "square": lambda s: s * s,
    "added": lambda s: torch.add(s, s * s, alpha=2),
    "matrix": lambda s: torch.sparse.mm(s, strided(3, 2).detach()),
    "sparse matrices": lambda s: torch.sparse.mm(s, s.transpose(0, 1)),
    "transposed": lambda s: s.transpose(0, 1),
    "sin": lambda s: s.sin(),
    "tanh": lambda s: s.tanh(),
    "vector": lambda s: s @ strided(3).detach(),
}
ONLY_COO = {
    "sum over a dim": lambda s: torch.sparse.sum(s, 0),
    "softmax": lambda s: torch.sparse.softmax(s, 1),
    "log_softmax": lambda s: torch.sparse.log_softmax(s, 0),
    "divided": lambda s: s / 2,
    "power": lambda s: s**3,
    "norm": lambda s: s.norm(),
    "select": lambda s: s[1],
    "index_select": lambda s: s.index_select(1, torch.tensor([2, 0, 2])),
    "cat": lambda s: torch.cat([s, s * 2], 1),
    "unsqueeze": lambda s: s.unsqueeze(1),
    "other layout": lambda s: s.to_sparse_csr(),
    "masked": lambda s: s.sparse_mask(torch.ones(2, 3, dtype=D).tril().to_sparse()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_slopes(name: str) -> None:
    for s in (coo(), coo().detach().to_sparse_csr().requires_grad_()):
        assert check(FUNCTIONS[name], (s,), masked=True)


@pytest.mark.parametrize("name", ONLY_COO)
def test_slopes_in_coordinates(name: str) -> None:
    assert check(ONLY_COO[name], (coo(),), masked=True)


def test_slopes_of_strided_operands() -> None:
    s = coo()
    assert check(lambda s, d: torch.sparse.mm(s, d), (s, strided(3, 2)), masked=True)
    assert check(lambda s, d: torch.sparse.mm(d, s), (s, strided(2, 2)), masked=True)
    assert check(
        lambda s, d, e: torch.sparse.addmm(e, s, d, beta=2, alpha=3), (s, strided(3, 2), strided(2, 2)), masked=True
    )
    assert check(lambda s, d: s * d, (s, strided(2, 3)), masked=True)
    assert check(lambda s, d: d + s, (s, strided(2, 3)), masked=False)
    assert check(lambda d: d.to_sparse(), (strided(2, 3),))
    assert check(lambda d: d.sparse_mask(s.detach()), (strided(2, 3),))
    assert check(lambda v: torch.sparse_coo_tensor([[1, 0, 1], [0, 2, 0]], v, (2, 3)).coalesce(), (strided(3),))
    assert check(lambda v: torch.sparse_csr_tensor([0, 1, 2], [2, 0], v, (2, 3)), (strided(2),))
    batch = torch.ones(2, 2, 3, dtype=D).tril().to_sparse().requires_grad_()
    assert check(lambda s, d: torch.bmm(s, d), (batch, strided(2, 3, 2)), masked=True)
    rows = coo().detach().to_sparse_csr().requires_grad_()
    assert check(
        lambda s, a, b: torch.sparse.sampled_addmm(s, a, b, beta=2, alpha=3),
        (rows, strided(2, 2), strided(2, 3)),
        masked=True,
    )
    for reduce in ("sum", "mean", "amax", "amin"):
        assert check(lambda s, d, r=reduce: torch.sparse.mm(s, d, r), (rows, strided(3, 2)), masked=True)


def test_second_derivatives() -> None:
    s, d = coo(), strided(3, 2)
    first = torch.autograd.grad((torch.sparse.mm(s, d) ** 2).sum(), d, create_graph=True)[0]
    (again,) = torch.autograd.grad(first.sum(), d)
    x = s.detach().to_dense()
    expected = 2 * (x.t() @ x) @ torch.ones(3, 2, dtype=D)
    assert torch.allclose(again, expected)
    (grad,) = torch.autograd.grad(torch.sparse.sum(s * s * s), s, create_graph=True)
    (twice,) = torch.autograd.grad(torch.sparse.sum(grad), s)
    assert torch.allclose(twice.to_dense(), 6 * x)
    (grad,) = torch.autograd.grad(torch.sparse.sum(s.sin()), s, create_graph=True)
    (twice,) = torch.autograd.grad(torch.sparse.sum(grad), s)
    assert torch.allclose(twice.to_dense(), -x.sin())


def test_gradients_of_a_leaf_add_up_in_any_order() -> None:
    places = torch.tensor([1, 2, 1])
    for order in ((True, True), (True, False), (False, True)):
        weight = torch.ones(4, 2, dtype=D, requires_grad=True)
        for sparse in order:
            torch.nn.functional.embedding(places, weight, sparse=sparse).sum().backward()
        assert weight.grad.is_sparse == all(order)
        assert weight.grad.to_dense()[:, 0].tolist() == [0, 4, 2, 0]
    weight = torch.ones(4, 2, dtype=D, requires_grad=True)
    (torch.nn.functional.embedding(places, weight, sparse=True).sum() + weight.sum()).backward()
    assert weight.grad[:, 0].tolist() == [1, 3, 2, 1]


def test_gradients_are_kept_hooked_and_cleared() -> None:
    s = coo()
    seen: list[Any] = []
    s.register_hook(lambda grad: seen.append(grad.layout))
    t = s * 2
    t.retain_grad()
    t.to_dense().sum().backward()
    assert seen == [torch.sparse_coo] and t.grad.is_sparse and s.grad.values().tolist() == [2, 2, 2]
    layer = torch.nn.Embedding(4, 2, sparse=True)
    layer(torch.tensor([1, 3])).sum().backward()
    with pytest.raises(NotImplementedError, match="linalg_vector_norm"):  # as PyTorch
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad._nnz() == 0
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        s.mul_(2)
    u = s * 1
    u.mul_(3)
    s.grad = None
    u.to_dense().sum().backward()
    assert s.grad.values().tolist() == [3, 3, 3]


def test_gradcheck_knows_masked_semantics() -> None:
    s = coo()
    assert torch.autograd.gradcheck(lambda s: s.to_dense(), (s,), masked=True)
    assert torch.autograd.gradcheck(lambda s: s.to_dense(masked_grad=False), (s,), masked=False)
    for function, masked in ((lambda s: s.to_dense(), False), (lambda s: s.to_dense(masked_grad=False), True)):
        with pytest.raises(RuntimeError, match="Jacobian mismatch"):
            torch.autograd.gradcheck(function, (s,), masked=masked)
    with pytest.raises(ValueError, match="Sparse output is not supported"):
        torch.autograd.gradcheck(lambda s: s * 2, (s,), masked=True)


def test_what_was_saved_must_not_change() -> None:
    s, d = coo(), strided(3, 2)
    w = d * 1
    made = torch.sparse.mm(s, w)
    w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()
    made = (s * 2).to_dense().sum()
    made.backward()
    with pytest.raises(RuntimeError, match="second time"):
        made.backward()
