"""Sparse tensors against their strided counterparts, NumPy and SciPy."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import rushlight as torch

LAYOUTS = ("sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


def matrix(seed: int = 0, shape: tuple[int, ...] = (4, 6), dtype: Any = torch.float64) -> Any:
    """A strided matrix, about half of whose elements are zero."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    return torch.from_numpy(np.where(rng.random(shape) < 0.5, values, 0.0)).to(dtype)


def in_layout(x: Any, layout: str) -> Any:
    block = (2, 3) if layout in ("sparse_bsr", "sparse_bsc") else None
    return x.to_sparse(layout=getattr(torch, layout), blocksize=block)


def same(a: Any, b: Any) -> None:
    a = a.to_dense() if isinstance(a, torch.Tensor) else a
    b = b.to_dense() if isinstance(b, torch.Tensor) else b
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12, atol=1e-12)


# ***** construction *****


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_holds_the_same_elements(layout: str) -> None:
    x = matrix()
    s = in_layout(x, layout)
    assert s.layout is getattr(torch, layout) and s.shape == x.shape and s.dtype is x.dtype
    assert s.is_sparse == (layout == "sparse_coo") and s.is_sparse_csr == (layout == "sparse_csr")
    same(s, x)
    same(s.to_sparse(), x)
    for other in LAYOUTS[:3] if layout in LAYOUTS[:3] else ():
        same(in_layout(s, other), x)
    for copied in (
        s.clone(),
        s.detach(),
        copy.deepcopy(s),
        copy.copy(s),
        pickle.loads(pickle.dumps(s)),
        s.to(torch.float64),
    ):
        assert copied.layout is s.layout
        same(copied, x)
    assert (
        s.to(torch.float32).dtype is torch.float32 and s.half().values().dtype is torch.float16
        if layout != "sparse_coo"
        else True
    )


def test_the_parts_are_those_of_scipy() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    x = matrix(1)
    for layout, kind in (("sparse_csr", sparse.csr_matrix), ("sparse_csc", sparse.csc_matrix)):
        ours, theirs = in_layout(x, layout), kind(x.numpy())
        theirs.sort_indices()
        first, second = (
            (ours.crow_indices(), ours.col_indices())
            if layout == "sparse_csr"
            else (ours.ccol_indices(), ours.row_indices())
        )
        np.testing.assert_array_equal(first.numpy(), theirs.indptr)
        np.testing.assert_array_equal(second.numpy(), theirs.indices)
        np.testing.assert_array_equal(ours.values().numpy(), theirs.data)
    blocks, theirs = in_layout(x, "sparse_bsr"), sparse.bsr_matrix(x.numpy(), blocksize=(2, 3))
    theirs.sort_indices()
    np.testing.assert_array_equal(blocks.col_indices().numpy(), theirs.indices)
    np.testing.assert_array_equal(blocks.values().numpy(), theirs.data)


def test_entries_that_meet_are_added() -> None:
    rng = np.random.default_rng(2)
    where, values = rng.integers(0, 4, (2, 50)), rng.standard_normal((50, 3))
    s = torch.sparse_coo_tensor(torch.from_numpy(where), torch.from_numpy(values), (4, 4, 3))
    expected = np.zeros((4, 4, 3))
    np.add.at(expected, tuple(where), values)
    assert not s.is_coalesced() and s._nnz() == 50 and s.sparse_dim() == 2 and s.dense_dim() == 1
    c = s.coalesce()
    places = c.indices().numpy()
    assert c.is_coalesced() and (np.diff(places[0] * 4 + places[1]) > 0).all()
    same(s, expected)
    same(c, expected)
    assert c.coalesce() is c
    with pytest.raises(RuntimeError, match="uncoalesced"):
        s.indices()
    flags = torch.sparse_coo_tensor([[0, 0]], [True, True], (2,))
    assert flags.coalesce().values().tolist() == [True]


def test_sizes_are_inferred_and_checked() -> None:
    assert torch.sparse_coo_tensor([[0, 3], [1, 0]], [1.0, 2.0]).shape == (4, 2)
    assert torch.sparse_csr_tensor([0, 1, 2], [4, 0], [1.0, 2.0]).shape == (2, 5)
    assert torch.sparse_bsc_tensor([0, 1], [1], [[[1.0, 2.0]]]).shape == (2, 2)
    assert torch.sparse_coo_tensor(size=(2, 3))._nnz() == 0
    outside = {"indices": [[0, 2]], "values": [1.0, 2.0], "size": (2,)}
    assert torch.sparse_coo_tensor(**outside)._nnz() == 2  # unchecked unless asked for
    with pytest.raises(RuntimeError, match="size is inconsistent with indices: for dim 0, size is 2 but found index 2"):
        torch.sparse_coo_tensor(**outside, check_invariants=True)
    switch = torch.sparse.check_sparse_tensor_invariants
    with switch(), pytest.raises(RuntimeError, match="size is inconsistent"):
        torch.sparse_coo_tensor(**outside)
    assert not switch.is_enabled()
    switch.enable()
    assert switch.is_enabled()
    switch.disable()

    @switch()
    def guarded() -> bool:
        return bool(switch.is_enabled())

    assert guarded() and not switch.is_enabled()
    for parts, text in (
        (
            ([0, 2], [0, 1], [1.0, 2.0], (2, 2)),
            r"crow_indices.shape\[-1\] must be equal to the number of rows \+ 1 \(=3\), but got 2",
        ),
        (([0, 1, 3], [0, 1], [1.0, 2.0], (2, 2)), r"`crow_indices\[..., -1\] == nnz` is not satisfied"),
        (([0, 2, 2], [1, 0], [1.0, 2.0], (2, 2)), "sorted and distinct"),
        (([0, 1, 2], [0, 2], [1.0, 2.0], (2, 2)), "`0 <= col_indices < ncols` is not satisfied"),
    ):
        with pytest.raises(RuntimeError, match=text):
            torch.sparse_csr_tensor(*parts, check_invariants=True)


def test_zeros_and_likes() -> None:
    for layout in ("sparse_coo", "sparse_csr", "sparse_csc"):
        z = torch.zeros(2, 3, layout=getattr(torch, layout))
        assert z.layout is getattr(torch, layout) and z._nnz() == 0 and not z.to_dense().any()
        assert torch.zeros_like(z).layout is z.layout and z.new_zeros(4, 5).shape == (4, 5)
    s = matrix().to_sparse_csr()
    assert torch.ones_like(s).values().eq(1).all() and torch.zeros_like(s, layout=torch.strided).layout is torch.strided
    with pytest.raises(RuntimeError, match="not implemented for sparse layout"):
        torch.ones(2, layout=torch.sparse_coo)


def test_batches_of_matrices() -> None:
    x = torch.stack([torch.eye(4), torch.eye(4).flip(0)]).to(torch.float64)
    for layout in LAYOUTS[1:]:
        s = x.to_sparse(layout=getattr(torch, layout), blocksize=(2, 2) if "b" in layout[7:8] else None)
        same(s, x)
        same(s.transpose(1, 2), x.transpose(1, 2))
    with pytest.raises(RuntimeError, match="same number of specified elements per batch"):
        torch.stack([torch.eye(2), torch.ones(2, 2)]).to_sparse_csr()
    h = torch.ones(2, 3, 4).to_sparse_csr(dense_dim=1)
    assert h.dense_dim() == 1 and h.values().shape == (6, 4)


# ***** operators against the strided ones *****

UNARY = ("abs", "asin", "asinh", "atan", "atanh", "ceil", "deg2rad", "erf", "erfinv", "expm1", "floor", "frac", "log1p", "neg", "rad2deg", "relu",
         "round", "sgn", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "isnan", "isinf", "signbit")  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_functions_that_keep_zero(layout: str) -> None:
    x = matrix(3).clamp(-0.9, 0.9)
    s = in_layout(x, layout)
    for name in UNARY:
        made, expected = getattr(torch, name)(s), getattr(torch, name)(x)
        assert made.layout is s.layout and made.dtype is expected.dtype, name
        same(made, expected)
        if made.dtype is s.dtype:
            changed = s.clone()
            assert getattr(changed, name + "_")() is changed
            same(changed, expected)


@pytest.mark.parametrize("layout", LAYOUTS[:3])
def test_sums_and_products(layout: str) -> None:
    x, y = matrix(4), matrix(5)
    a, b = in_layout(x, layout), in_layout(y, layout)
    assert (a + b).layout is a.layout
    same(a + b, x + y)
    same(torch.add(a, b, alpha=-2), x - 2 * y)
    same(y + a, x + y)
    same(a * b, x * y)
    same(a * y, x * y)
    same(a * 3, x * 3)
    same(a.clone().mul_(2).add_(b), 2 * x + y)
    if layout == "sparse_coo":
        same(a - b, x - y)
        same(a / 2, x / 2)
        same(a**2, x**2)
        same(a * y[0], x * y[0])
        same(a * torch.ones(2, 1, 1, dtype=torch.float64), x.expand(2, 4, 6))
        same(y.clone().sub_(a), y - x)
        same(y.t().clone().add_(a.t()), (x + y).t())  # other strides
        with pytest.raises(RuntimeError, match=r"add\(sparse, dense\) is not supported"):
            a + y


def test_products_of_matrices() -> None:
    x, y, v = matrix(6, (4, 6)), matrix(7, (6, 5)), torch.arange(6.0, dtype=torch.float64)
    for layout in LAYOUTS:
        a = in_layout(x, layout)
        same(a @ y, x @ y)
        same(a @ v, x @ v)
        same(torch.addmm(torch.ones(4, 5, dtype=torch.float64), a, y, beta=2, alpha=3), 2 + 3 * (x @ y))
    for layout in LAYOUTS[:3]:
        a, b = in_layout(x, layout), in_layout(y, layout)
        assert (a @ b).layout is not torch.strided
        same(a @ b, x @ y)
        same(x @ b, x @ y)
    s = x.to_sparse()
    same(torch.hspmm(s, y), x @ y)
    same(torch.smm(s, y), x @ y)
    same(torch.sspaddmm((x @ y).to_sparse(), s, y, beta=2, alpha=3), 5 * (x @ y))
    batch = torch.stack([x, 2 * x])
    same(torch.bmm(batch.to_sparse(), torch.stack([y, y])), torch.stack([x @ y, 2 * x @ y]))
    same(torch.sparse.sampled_addmm(x.to_sparse_csr(), x, torch.ones(6, 6, dtype=torch.float64), beta=2, alpha=3),
         (2 * x + 3 * x.sum(1, keepdim=True)) * (x != 0))  # fmt: skip


def test_low_rank_factors() -> None:
    x = matrix(16)
    torch.manual_seed(0)
    for centred, (u, s, v) in (
        (x, torch.svd_lowrank(x.to_sparse(), 4)),
        (x - x.mean(0), torch.pca_lowrank(x.to_sparse(), 4)),
    ):
        assert torch.allclose((u * s) @ v.t(), centred, atol=1e-8)


def test_products_joined_by_rows() -> None:
    x, y = matrix(8), matrix(9, (6, 3))
    x[2] = 0
    there, terms = (x != 0).numpy(), (x.unsqueeze(2) * y.unsqueeze(0)).numpy()
    expected = {
        "sum": terms.sum(1), "mean": terms.sum(1) / np.maximum(there.sum(1), 1)[:, None],
        "amax": np.where(there.any(1)[:, None], np.where(there[:, :, None], terms, -np.inf).max(1), 0),
        "amin": np.where(there.any(1)[:, None], np.where(there[:, :, None], terms, np.inf).min(1), 0),
    }  # fmt: skip
    for name, value in expected.items():
        same(torch.sparse.mm(x.to_sparse_csr(), y, name), value)


def test_moving_and_choosing() -> None:
    x = matrix(10, (3, 4, 5))
    s = x.to_sparse()
    same(s.permute(2, 0, 1), x.permute(2, 0, 1))
    same(s.transpose(0, 2), x.transpose(0, 2))
    same(s[1], x[1])
    same(s[:, 2], x[:, 2])
    same(s[..., -1], x[..., -1])
    same(s[1, 2], x[1, 2])
    places = torch.tensor([2, 0, 2, 1])
    for dim in range(3):
        same(s.index_select(dim, places), x.index_select(dim, places))
        same(s.narrow_copy(dim, 1, 2), x.narrow(dim, 1, 2))
        same(torch.cat([s, 2 * s], dim), torch.cat([x, 2 * x], dim))
        same(s.unsqueeze(dim), x.unsqueeze(dim))
        same(torch.stack([s, s], dim), torch.stack([x, x], dim))
    hybrid = x.to_sparse(1)
    same(hybrid.select(2, 1), x.select(2, 1))
    same(hybrid.index_select(1, places), x.index_select(1, places))
    same(torch.cat([hybrid, hybrid], 2), torch.cat([x, x], 2))
    assert [float(p.to_dense().sum()) for p in s.unbind(0)] == pytest.approx(x.sum((1, 2)).tolist())


def test_reductions() -> None:
    x = matrix(11, (3, 4, 5))
    for s in (x.to_sparse(), x.to_sparse(2)):
        same(s.sum(), x.sum())
        same(torch.sparse.sum(s, (0, 2)), x.sum((0, 2)))
        same(torch.sparse.sum(s, 1), x.sum(1))
        same(s.sum(0, keepdim=True), x.sum(0, keepdim=True))
        same(s.norm(), x.norm())
    m = matrix(12)
    c = m.to_sparse_csr()
    same(c.sum(), m.sum())
    same(c.sum(1, keepdim=True), m.sum(1, keepdim=True))
    assert m.to_sparse().any() and not torch.zeros(2, layout=torch.sparse_coo).any()


def test_softmax_over_the_entries() -> None:
    x = matrix(13, (3, 4, 5))
    filled = torch.where(x != 0, x, float("-inf"))
    for dim in range(3):
        expected = torch.nan_to_num(torch.softmax(filled, dim), 0.0)
        same(torch.sparse.softmax(x.to_sparse(), dim), expected)
        logs = torch.sparse.log_softmax(x.to_sparse(), dim)
        same(logs.coalesce().values().exp(), expected[tuple(x.to_sparse().indices())])


def test_diagonals_as_scipy() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    rows, offsets = np.arange(12.0).reshape(3, 4), [0, 2, -1]
    ours = torch.sparse.spdiags(torch.from_numpy(rows), torch.tensor(offsets), (5, 4))
    same(ours, sparse.dia_array((rows, offsets), shape=(5, 4)).toarray())


def test_masks_and_sizes() -> None:
    x, mask = matrix(14), matrix(15).to_sparse()
    same(x.sparse_mask(mask), x * (mask.to_dense() != 0))
    same(x.to_sparse().sparse_mask(mask), x * (mask.to_dense() != 0))
    assert x.to_sparse().sparse_mask(mask)._nnz() == mask._nnz()
    s = mask.clone().sparse_resize_((8, 9), 2, 0)
    assert s.shape == (8, 9)
    with pytest.raises(RuntimeError, match="shrinking"):
        s.sparse_resize_((2, 2), 2, 0)
    assert s.sparse_resize_and_clear_((2, 2, 3), 1, 2)._nnz() == 0 and s.dense_dim() == 2
    assert mask.clone().zero_()._nnz() == 0
    same(torch.zeros_like(mask).copy_(mask), mask)


def test_what_is_not_there_says_so() -> None:
    s, c = matrix().to_sparse(), matrix().to_sparse_csr()
    for call in (
        lambda: s.exp(),
        lambda: s == s,
        lambda: s.cumsum(0),
        lambda: s.max(),
        lambda: torch.linalg.svd(s),
        lambda: s.cos_(),
    ):
        with pytest.raises(NotImplementedError, match="'SparseCPU'"):
            call()
    with pytest.raises(RuntimeError, match="unsupported tensor layout: SparseCsr"):
        c.cos()
    with pytest.raises(TypeError, match=r"Use Tensor.to_dense\(\) first"):
        s.numpy()
    with pytest.raises(NotImplementedError, match="_spsolve"):
        torch.sparse.spsolve(c, matrix()[0])
    with pytest.raises(RuntimeError, match="Only CUDA tensors"):
        torch.sparse.to_sparse_semi_structured(matrix())
    with pytest.raises(RuntimeError, match="values expected sparse tensor layout but got Strided"):
        matrix().values()


def test_an_optimizer_that_takes_strided_gradients_alone_refuses_sparse_ones() -> None:
    for name in ("Adam", "RMSprop", "Adadelta"):
        layer = torch.nn.Embedding(4, 2, sparse=True)
        optimizer = getattr(torch.optim, name)(layer.parameters())
        layer(torch.tensor([1])).sum().backward()
        with pytest.raises(RuntimeError, match=f"{name} does not support sparse gradients"):
            optimizer.step()


def test_sparse_adam_is_adam_where_the_gradient_is() -> None:
    places = torch.tensor([0, 2, 2, 5])
    weights = [torch.arange(12.0, dtype=torch.float64).reshape(6, 2).requires_grad_() for _ in range(2)]
    optimizers = [torch.optim.SparseAdam([weights[0]], lr=0.1), torch.optim.Adam([weights[1]], lr=0.1)]
    for _ in range(3):
        for weight, optimizer, sparse in zip(weights, optimizers, (True, False), strict=True):
            optimizer.zero_grad()
            (torch.nn.functional.embedding(places, weight, sparse=sparse) ** 2).sum().backward()
            assert weight.grad.is_sparse == sparse
            optimizer.step()
    # Its epsilon stands beside an average without bias correction, which Adam's does not.
    assert torch.allclose(weights[0], weights[1], atol=1e-6)


def test_new_takes_sizes_or_indices_and_values() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]], dtype=torch.float64).to_sparse()
    where, held = torch.tensor([[0], [1]]), torch.tensor([3.0], dtype=torch.float64)
    for args, shape, count in (
        ((), (0,), 0),
        ((2, 3), (2, 3), 0),
        ((torch.Size([2, 2]),), (2, 2), 0),
        ((where, held), (1, 2), 1),
        ((where, held, (4, 5)), (4, 5), 1),
    ):
        made = x.new(*args)
        assert made.shape == shape and made._nnz() == count and made.dtype is torch.float64 and made.is_sparse
    with pytest.raises(TypeError, match="invalid combination of arguments"):
        x.new(x)


@pytest.mark.parametrize(
    "kinds", [("int8", "uint8"), ("int16", "uint8"), ("uint8", "int64"), ("float32", "uint8")], ids="-".join
)
@pytest.mark.parametrize(
    "layouts",
    [("strided", "coo"), ("strided", "csr"), ("coo", "coo"), ("csr", "csr"), ("csr", "strided")],
    ids="-".join,
)
def test_differences_are_taken_in_the_dtype_of_the_result(kinds: tuple[str, str], layouts: tuple[str, str]) -> None:
    """A uint8 term times -1 must not wrap before it is widened."""
    values = [np.array([[3, 0, 7], [0, 120, 5]], kinds[0]), np.array([[0, 2, 100], [9, 0, 5]], kinds[1])]
    as_layout = {"strided": lambda x: x, "coo": torch.Tensor.to_sparse, "csr": torch.Tensor.to_sparse_csr}
    a, b = (as_layout[layout](torch.tensor(value)) for layout, value in zip(layouts, values, strict=True))
    found = torch.add(a, b, alpha=-2)
    dense = found if found.layout is torch.strided else found.to_dense()
    assert dense.dtype is torch.result_type(*map(torch.tensor, values))
    assert dense.tolist() == (values[0].astype(float) - 2 * values[1].astype(float)).tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda s, out: torch.sin(s, out=out), lambda s, out: torch.add(s, s, out=out), lambda s, out: torch.square(s, out=out),
        lambda s, out: torch.true_divide(s, 2, out=out), lambda s, out: torch.cat([s, s], out=out), lambda s, out: torch.stack([s, s], out=out),
        lambda s, out: torch.index_select(s, 0, torch.tensor([1]), out=out),
    ],
)  # fmt: skip
def test_out_is_written_and_keeps_its_dtype(call: Any) -> None:
    s = torch.tensor([0.0, 0.5]).to_sparse()
    wide = torch.zeros(2, dtype=torch.float64).to_sparse()
    assert call(s, wide) is wide and wide.dtype is torch.float64
    assert (wide.to_dense() == call(s, torch.zeros(2).to_sparse()).to_dense()).all() and wide.to_dense().any()
    whole = torch.zeros(2, dtype=torch.int64).to_sparse()
    with pytest.raises(RuntimeError, match="can't be cast"):
        call(s, whole)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        call(s.requires_grad_(), wide)


def test_products_write_out_of_their_dtype_only() -> None:
    a, b = torch.eye(2).to_sparse(), torch.ones(2, 2)
    out = torch.zeros(2, 2)
    assert torch.matmul(a, b, out=out) is out and (out == 1).all()
    for wrong in (torch.zeros(2, 2, dtype=torch.float64), torch.zeros(2, 2, dtype=torch.int64)):
        with pytest.raises(RuntimeError, match="dtype"):
            torch.mm(a, b, out=wrong)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(b, a, out=torch.zeros(2, 2, dtype=torch.int64))


def test_true_divide_is_div() -> None:
    s = torch.tensor([0, 3]).to_sparse()
    assert torch.true_divide(s, 2).to_dense().tolist() == [0.0, 1.5] == s.true_divide(2).to_dense().tolist()


@pytest.mark.parametrize("name", ["bool", "int8", "float16"])
def test_one_entry_keeps_its_dtype(name: str) -> None:
    dtype = getattr(torch, name)
    held = torch.tensor([0, 1, 0]).to(dtype).to_sparse()
    for entry in (held[1], held.select(0, 1), held[0]):
        assert entry.dtype is dtype
    assert held[1].item() == 1 and held[0].item() == 0
