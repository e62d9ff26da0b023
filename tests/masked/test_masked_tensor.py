"""Masked tensors against `numpy.ma`, and what a mask means for gradients, copies, sparse parts and printing."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import rushlight as torch
from rushlight.masked import MaskedTensor, as_masked_tensor, is_masked_tensor, masked_tensor

pytestmark = pytest.mark.filterwarnings(
    "ignore:The API of MaskedTensor", "ignore:MaskedTensor", "ignore:.*is not implemented for MaskedTensor"
)

RNG = np.random.default_rng(5)
A = RNG.uniform(0.1, 0.9, (3, 4))
B = RNG.uniform(0.1, 0.9, (3, 4))
COUNTS = np.array([[1, 0, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0]], bool)


def ours(values: np.ndarray, counts: np.ndarray = COUNTS, grad: bool = False) -> MaskedTensor:
    return masked_tensor(torch.from_numpy(values.copy()), torch.from_numpy(counts.copy()), grad)


def theirs(values: np.ndarray, counts: np.ndarray = COUNTS) -> np.ma.MaskedArray:
    return np.ma.array(values, mask=~counts)


def same(found: MaskedTensor, wanted: np.ma.MaskedArray) -> None:
    wanted = np.ma.asarray(wanted)
    np.testing.assert_array_equal(found.get_mask().numpy(), ~np.ma.getmaskarray(wanted))
    np.testing.assert_allclose(found.detach().to_tensor(0).numpy(), wanted.filled(0), rtol=1e-12)


@pytest.mark.parametrize("name", ["exp", "sin", "sqrt", "negative", "floor", "log", "tanh", "square", "arccos"])
def test_functions_as_numpy_ma(name: str) -> None:
    same(getattr(torch, name)(ours(A)), getattr(np.ma if hasattr(np.ma, name) else np, name)(theirs(A)))


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "true_divide", "maximum", "arctan2", "greater", "fmod"]
)
def test_pairs_as_numpy_ma(name: str) -> None:
    plain = getattr(np.ma, name)
    wanted = np.ma.array(plain(A, B), mask=~COUNTS)
    same(getattr(torch, name)(ours(A), ours(B)), wanted)
    same(getattr(torch, name)(ours(A), torch.from_numpy(B)), wanted)
    same(getattr(torch, name)(torch.from_numpy(A), ours(B)), wanted)


@pytest.mark.parametrize(
    ("name", "reduced"),
    [("sum", "sum"), ("mean", "mean"), ("amax", "max"), ("amin", "min"), ("prod", "prod"), ("all", "all")],
)
def test_reductions_as_numpy_ma(name: str, reduced: str) -> None:
    for args, axis in [((), None), ((0,), 0), ((1,), 1)]:
        same(getattr(ours(A), name)(*args), getattr(theirs(A), reduced)(axis=axis))
    assert getattr(ours(A), name)(1, keepdim=True).shape == (3, 1)


def test_spread_norm_and_places_as_numpy_ma() -> None:
    x, y = ours(A), theirs(A)
    assert x.var().item() == pytest.approx(y.var(ddof=1)) and x.std().item() == pytest.approx(y.std(ddof=1))
    assert x.norm().item() == pytest.approx(np.linalg.norm(A[COUNTS])) and x.norm(1).item() == pytest.approx(
        A[COUNTS].sum()
    )
    same(x.argmax(1), np.ma.array(y.argmax(1), mask=~COUNTS.any(1)))
    same(x.argmin(0), np.ma.array(y.argmin(0), mask=~COUNTS.any(0)))


def test_softmax_leaves_out_what_does_not_count() -> None:
    made = ours(A).softmax(1).to_tensor(0).numpy()
    raised = np.where(COUNTS, np.exp(A), 0)
    np.testing.assert_allclose(made[:2], raised[:2] / raised[:2].sum(1, keepdims=True))


# ***** gradients *****


def test_gradients_are_masked() -> None:
    x = ours(A, grad=True)
    (x.exp() * ours(B)).sum().backward()
    assert is_masked_tensor(x.grad)
    same(x.grad, np.ma.array(np.exp(A) * B, mask=~COUNTS))
    x.sum().backward()  # they add up
    same(x.grad, np.ma.array(np.exp(A) * B + 1, mask=~COUNTS))


def test_gradients_of_means_and_extremes() -> None:
    for name, wanted in [
        ("mean", COUNTS / COUNTS.sum()),
        ("amax", (theirs(A).max() == A) * 1.0),
        ("prod", A[COUNTS].prod() / A),
    ]:
        x = ours(A, grad=True)
        getattr(x, name)().backward()
        same(x.grad, np.ma.array(wanted, mask=~COUNTS))


def test_second_derivatives() -> None:
    x = ours(A, grad=True)
    (first,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
    same(first, np.ma.array(3 * A * A, mask=~COUNTS))
    (first * ours(B)).sum().backward()
    same(x.grad, np.ma.array(6 * A * B, mask=~COUNTS))


def test_a_leaf_beside_masked_elements_gets_a_masked_gradient() -> None:
    broken = np.where(COUNTS, A, np.inf)  # what does not count must not spoil the sum over rows
    leaf = torch.ones(4, dtype=torch.float64, requires_grad=True)
    (leaf * ours(broken)).sum().backward()
    same(leaf.grad, np.ma.array(np.where(COUNTS, A, 0).sum(0), mask=~COUNTS.any(0)))


def test_behind_a_computed_tensor_gradients_are_plain() -> None:
    leaf = torch.from_numpy(A.copy()).requires_grad_()
    as_masked_tensor(leaf * 2, torch.from_numpy(COUNTS)).square().sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), np.where(COUNTS, 8 * A, 0))
    other = torch.from_numpy(A.copy()).requires_grad_()
    as_masked_tensor(other, torch.from_numpy(COUNTS)).square().sum().backward()
    same(other.grad, np.ma.array(2 * A, mask=~COUNTS))


def test_a_part_passes_its_own_mask_on() -> None:
    x = ours(A, grad=True)
    x[0].exp().sum().backward()
    counts = COUNTS & (np.arange(3) == 0)[:, None]
    same(x.grad, np.ma.array(np.exp(A), mask=~counts))


def test_where_each_side_gets_its_elements() -> None:
    x, y, chosen = ours(A, grad=True), ours(B, ~COUNTS, grad=True), A > 0.5
    made = torch.where(torch.from_numpy(chosen), x, y)
    same(made, np.ma.array(np.where(chosen, A, B), mask=~np.where(chosen, COUNTS, ~COUNTS)))
    made.sum().backward()
    np.testing.assert_array_equal(x.grad.get_mask().numpy(), chosen & COUNTS)
    np.testing.assert_array_equal(y.grad.get_mask().numpy(), ~chosen & ~COUNTS)


# ***** shapes, layouts, copies *****


def test_elements_and_mask_move_together() -> None:
    x, y = ours(A), theirs(A)
    for found, wanted in [
        (x[1], y[1]), (x[:, 1:3], y[:, 1:3]), (x.t(), y.T), (x.reshape(-1), y.reshape(-1)), (x.view(2, 6), y.reshape(2, 6)),
        (torch.cat([x, x], 1), np.ma.concatenate([y, y], 1)), (x[torch.tensor([2, 0])], y[[2, 0]]), (x.unsqueeze(0), y[None]),
        (x.chunk(2, 1)[1], y[:, 2:]), (x.expand(2, 3, 4)[1], y),
    ]:  # fmt: skip
        same(found, wanted)


@pytest.mark.parametrize("layout", ["coo", "csr"])
def test_sparse_parts(layout: str) -> None:
    x = ours(A, grad=True)
    sparse = getattr(x, f"to_sparse_{layout}")()
    assert (
        sparse.is_sparse
        and getattr(sparse, f"is_sparse_{layout}")()
        and sparse.layout is getattr(torch, f"sparse_{layout}")
    )
    assert sparse.get_data()._nnz() == COUNTS.sum() and sparse.shape == x.shape
    same((sparse.exp() + sparse).to_dense(), np.ma.array(np.exp(A) + A, mask=~COUNTS))
    assert sparse.sum().item() == pytest.approx(A[COUNTS].sum())
    (sparse * sparse).to_dense().sum().backward()
    same(x.grad, np.ma.array(2 * A, mask=~COUNTS))
    with pytest.raises(TypeError, match="along a dim"):
        sparse.sum(0)
    other = masked_tensor(
        getattr(torch.from_numpy(A), f"to_sparse_{layout}")(),
        getattr(torch.from_numpy(COUNTS), f"to_sparse_{layout}")(),
    )
    same(other.to_dense(), theirs(A))  # what the mask lacks is dropped


def test_copies_are_apart() -> None:
    data, mask = torch.from_numpy(A.copy()), torch.from_numpy(COUNTS.copy())
    x = masked_tensor(data, mask, requires_grad=True)
    data.zero_(), mask.fill_(False)
    same(x, theirs(A))
    for made in (copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x))):
        same(made, theirs(A))
        assert made.requires_grad and made.is_leaf and made is not x
    assert (
        not x.detach().requires_grad
        and x.clone().grad_fn is not None
        and x.double() is x
        and x.float().dtype is torch.float32
    )


def test_in_place() -> None:
    x = ours(A)
    held = x
    x += 1
    x.mul_(ours(B)).neg_()
    assert x is held
    same(x, np.ma.array(-(A + 1) * B, mask=~COUNTS))
    x.copy_(torch.from_numpy(B))
    same(x, theirs(B))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        ours(A, grad=True).add_(1)
    with pytest.raises(ValueError, match="masks"):
        x.add_(ours(A, ~COUNTS))
    with pytest.raises(RuntimeError, match="can't be cast"):
        ours(np.arange(12).reshape(3, 4)).add_(0.5)
    same(x, theirs(B))


@pytest.mark.parametrize("plain", [False, True])
def test_optimizers_take_no_memory_that_is_not_there(plain: bool) -> None:
    """The kernel over many parameters must not see masked parameters or gradients: they have no memory of their own."""
    leaf = torch.from_numpy(A.copy()).requires_grad_() if plain else ours(A, grad=True)
    (leaf * ours(B)).sum().backward()
    with pytest.raises(
        (TypeError, ValueError)
    ):  # PyTorch's step fails as well: no alpha, and no masked gradient for a plain parameter
        torch.optim.SGD([leaf], lr=0.1).step()
    if not plain:
        with torch.no_grad():
            leaf.sub_(leaf.grad * 0.1)
        same(leaf, np.ma.array(A - 0.1 * B, mask=~COUNTS))


# ***** what users see *****


def test_printing() -> None:
    assert repr(ours(np.array([[1.0, 2.0], [30.5, -4.0]]), np.array([[True, False], [True, True]]))) == (
        "MaskedTensor(\n  [\n    [  1.0000,       --],\n    [ 30.5000,  -4.0000]\n  ]\n)"
    )
    assert repr(ours(np.array([1, 2, 3]), np.array([True, False, True]))) == "MaskedTensor(\n  [1,       --, 3]\n)"
    assert str(ours(np.array(7.0), np.array(True))) == "MaskedTensor(  7.0000, True)"
    assert f"{ours(np.array(7), np.array(False))}" == "MaskedTensor(--, False)"
    assert repr(ours(A).to_sparse_coo()) == repr(ours(A).to_sparse_csr()) == repr(ours(A))


def test_warnings_name_the_users_line() -> None:
    data, mask = torch.ones(2, requires_grad=True), torch.ones(2, dtype=torch.bool)
    for make, count in ((masked_tensor, 2), (MaskedTensor, 2), (as_masked_tensor, 1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = make(data, mask)
            (made * 2).sum()
        assert [w.category for w in caught] == [UserWarning] * count and all(w.filename == __file__ for w in caught)


def test_errors_of_construction() -> None:
    data, mask = torch.ones(2, 3), torch.ones(2, 3, dtype=torch.bool)
    for error, match, given in [
        (TypeError, "data must be a Tensor", ([1.0], mask)), (TypeError, "mask must be a Tensor", (data, [True])),
        (TypeError, "data must be a Tensor", (masked_tensor(data, mask), mask)), (TypeError, "dtype bool", (data, mask.int())),
        (TypeError, "bfloat16 is not supported", (data.bfloat16(), mask)), (TypeError, "same layout", (data.to_sparse(), mask)),
        (TypeError, "sparse_csc is not supported", (data.to_sparse_csc(), mask.to_sparse_csc())),
        (ValueError, "data.dim()", (data, mask[0])), (ValueError, "data.size()", (data, mask[:1])),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            masked_tensor(*given)
    with pytest.raises(RuntimeError, match="floating point"):
        masked_tensor(data.long(), mask, requires_grad=True)


def test_errors_of_operators() -> None:
    x = ours(A)
    for error, match, call in [
        (ValueError, "masks of all", lambda: x + ours(B, ~COUNTS)), (ValueError, "'alpha'", lambda: torch.add(x, x, alpha=2)),
        (ValueError, "'decimals'", lambda: x.round(decimals=1)), (TypeError, "beyond the first 1", lambda: x**x),
        (TypeError, "permute", lambda: x.permute(1, 0)), (TypeError, "condition", lambda: torch.where(x > 0, x, x)),
        (ValueError, "does not count", lambda: x[0, 1].item()), (RuntimeError, "numpy", lambda: x.numpy()), (ValueError, "mean", lambda: ours(COUNTS).mean()),
        (NotImplementedError, "no bool", lambda: ours(COUNTS).amax()), (TypeError, "dtype bool", lambda: torch.cat([x, torch.from_numpy(A)])),
        (RuntimeError, "goes with no tensor", lambda: x.to_sparse_coo() * torch.from_numpy(A)), (TypeError, "plain tensor", lambda: torch.ones(3, 4).add_(x)),
        (NotImplementedError, "to_dense", lambda: x.to_sparse_csr().to_tensor(0)), (ValueError, "2D", lambda: x[0].to_sparse_csr()),
    ]:  # fmt: skip
        with pytest.raises(error, match=match):
            call()


def test_users_may_subclass() -> None:
    class Column(MaskedTensor):
        def __init__(self, data: torch.Tensor, mask: torch.Tensor, requires_grad: bool = False, name: str = "") -> None:
            super().__init__(data, mask, requires_grad)

        @property
        def count(self) -> int:
            return int(self.get_mask().sum())

    column = Column(torch.from_numpy(A), torch.from_numpy(COUNTS))
    assert column.count == 4 and isinstance(column, torch.Tensor) and is_masked_tensor(column)
    same(column * 2, theirs(A) * 2)
    assert type(copy.deepcopy(column)) is Column
