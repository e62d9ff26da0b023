"""`x.conj()` is a view: nothing is computed until it is read, and what is written through it arrives conjugated."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest

import rushlight as torch


@pytest.fixture
def z() -> torch.Tensor:
    return torch.tensor([[1 + 2j, 3 - 1j], [-2j, 0.5 + 0j]])


def values(x: torch.Tensor) -> np.ndarray:
    return np.array(x.tolist())


def test_a_conjugate_shares_memory_and_says_so(z: torch.Tensor) -> None:
    w = z.conj()
    assert w.is_conj() and torch.is_conj(w) and not z.is_conj() and w._is_view() and w._base is z
    assert w.data_ptr() == z.data_ptr() and w.stride() == z.stride() and w.dtype is torch.complex64
    assert all(
        v.is_conj() for v in (z.mH, z.H, z.adjoint(), w.t(), w[0], w.view(4), w.detach(), w.unsqueeze(0).contiguous())
    )
    assert not any(
        v.is_conj()
        for v in (
            w.conj(),
            w.clone(),
            w * 1,
            w.resolve_conj(),
            w.conj_physical(),
            torch.empty_like(w),
            copy.deepcopy(w),
        )
    )
    assert z.resolve_conj() is z and torch.ones(2).conj().is_conj() is False


def test_every_reader_sees_the_conjugates(z: torch.Tensor) -> None:
    expected, w = np.conj(values(z)), z.conj()
    assert np.array_equal(values(w), expected) and w[0, 0].item() == 1 - 2j and complex(w[1, 0]) == 2j
    assert repr(w) == repr(torch.tensor(expected.tolist()))
    for made in (
        w.clone(),
        w + 0,
        w.resolve_conj(),
        torch.cat([w]),
        torch.stack([w])[0],
        w.to(torch.complex128),
        copy.deepcopy(w),
        w.contiguous(),
    ):
        assert np.array_equal(values(made), expected)
    assert np.array_equal(values(w[torch.tensor([1, 0])]), expected[[1, 0]])
    assert np.array_equal(values(w[torch.tensor([[True, False], [False, True]])]), expected[[0, 1], [0, 1]])
    assert np.allclose(values(w @ z), expected @ values(z)) and np.allclose(
        values(torch.linalg.inv(z.mH)), np.linalg.inv(expected.T)
    )
    assert w.real.tolist() == expected.real.tolist() and w.imag.tolist() == expected.imag.tolist()
    assert np.array_equal(values(pickle.loads(pickle.dumps(w))), expected)
    assert np.array_equal(w.numpy(force=True), expected)
    file = io.BytesIO()
    torch.save(w, file)
    file.seek(0)
    again = torch.load(file)
    assert again.is_conj() and np.array_equal(values(again), expected)


def test_what_cannot_show_a_conjugate_refuses_it(z: torch.Tensor) -> None:
    w = z.conj()
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that has conjugate bit set"):
        w.numpy()
    with pytest.raises(RuntimeError, match="unresolved conjugated"):
        torch.view_as_real(w)
    with pytest.raises(RuntimeError, match="not supported for conjugate view tensors"):
        w.view(torch.float32)
    with pytest.raises(BufferError, match="conjugate bit"):
        w.__dlpack__()


def test_writes_go_through(z: torch.Tensor) -> None:
    w = z.conj()
    w.mul_(1j)
    assert z.tolist() == [[2 - 1j, -1 - 3j], [-2 + 0j, -0.5j]]  # conj(conj(z) i)
    w[0, 0] = 5j
    assert z[0, 0].item() == -5j
    w.copy_(torch.tensor([[1j, 2j], [3j, 4j]]))
    assert z.tolist() == [[-1j, -2j], [-3j, -4j]]
    w.zero_()
    w.fill_(1 + 1j)
    assert z[1, 1].item() == 1 - 1j
    out = torch.zeros(2, 2, dtype=torch.complex64).conj()
    assert torch.mul(z, 2j, out=out) is out and np.array_equal(values(out), values(z) * 2j) and out.is_conj()
    assert w.normal_().is_conj() and np.array_equal(values(w), np.conj(values(z)))


def test_gradients_through_conjugates_that_are_changed_in_place() -> None:
    leaf = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)  # the gradients below are PyTorch's
    whole = leaf * 1
    part = whole.conj()
    part.mul_(2j)
    assert whole.grad_fn.name() == "torch::autograd::CopySlices" and part.grad_fn.name() == "ConjBackward0"
    (part.sum().real + whole.sum().imag).backward()
    assert leaf.grad.tolist() == [-2 + 2j, -2 + 2j]
    leaf.grad, whole = None, leaf * 1
    part = whole.conj()
    whole.mul_(2j)
    (part * (1 + 2j)).sum().real.backward()
    assert leaf.grad.tolist() == [4 - 2j, 4 - 2j]
    leaf.grad, whole = None, leaf * 1
    part = whole[:1].conj()
    part[0] = 3j
    (whole * (1 + 2j)).sum().real.backward()
    assert leaf.grad.tolist() == [0, 1 - 2j] and whole[0].item() == -3j


# ***** the imaginary parts of a conjugate: memory with negatives *****


def test_imaginary_parts_of_a_conjugate_share_memory(z: torch.Tensor) -> None:
    w = z.conj().imag
    assert (
        w.is_neg()
        and torch.is_neg(w)
        and not w.is_conj()
        and w._is_view()
        and w._base is z
        and not z.conj().real.is_neg()
    )
    assert w.data_ptr() == z.imag.data_ptr() and w.stride() == z.imag.stride() and w.dtype is torch.float32
    assert all(v.is_neg() for v in (w.t(), w[0], w.view(2, 2), w.detach(), w.unsqueeze(0), torch._neg_view(z.real)))
    assert not any(
        v.is_neg()
        for v in (
            w.clone(),
            w * 1,
            w.resolve_neg(),
            w.neg(),
            w._neg_view(),
            torch.empty_like(w),
            copy.deepcopy(w),
            w.double(),
        )
    )
    assert z.imag.resolve_neg().data_ptr() == z.imag.data_ptr() and w.resolve_conj() is w
    z[0, 0] = 7j
    assert w[0, 0].item() == -7


def test_every_reader_sees_the_negatives(z: torch.Tensor) -> None:
    for w in (
        z.conj().imag,
        z.imag.clone()._neg_view(),
        z.imag.half()._neg_view(),
        torch.tensor([[3, -1], [0, 2]])._neg_view(),
    ):
        expected = -values(w._neg_view())
        assert (
            np.array_equal(values(w), expected)
            and w[0, 0].item() == float(w[0, 0]) == expected[0, 0]
            and values(w[0]).tolist() == expected[0].tolist()
        )
        assert repr(w) == repr(w.resolve_neg())
        for made in (
            w.clone(),
            w + 0,
            w.resolve_neg(),
            torch.cat([w]),
            torch.stack([w])[0],
            w.to(torch.float64),
            copy.deepcopy(w),
            w.contiguous(),
        ):
            assert np.array_equal(values(made), expected)
        assert np.array_equal(values(w[torch.tensor([1, 0])]), expected[[1, 0]]) and np.array_equal(
            values(w.t()), expected.T
        )
        assert np.array_equal(values(w[torch.tensor([[True, False], [False, True]])]), expected[[0, 1], [0, 1]])
        assert np.array_equal(values(w.sum(0)), expected.sum(0)) and np.array_equal(
            values(w.sort().values), np.sort(expected)
        )
        assert np.allclose(values(w.double() @ w.double()), expected @ expected) and np.array_equal(
            w.numpy(force=True), expected
        )
        again = pickle.loads(pickle.dumps(w))
        assert again.is_neg() and np.array_equal(values(again), expected)
        file = io.BytesIO()
        torch.save(w, file)
        file.seek(0)
        again = torch.load(file)
        assert again.is_neg() and np.array_equal(values(again), expected)
    pairs = torch.tensor([[1.0, 2.0]])._neg_view()
    assert torch.view_as_complex(pairs).tolist() == [-1 - 2j]


def test_what_cannot_show_a_negative_refuses_it(z: torch.Tensor) -> None:
    w = z.conj().imag
    with pytest.raises(
        RuntimeError, match=r"Can't call numpy\(\) on Tensor that has negative bit set. Use tensor.resolve_neg\(\)"
    ):
        w.numpy()
    with pytest.raises(RuntimeError, match="not supported for tensors with negative bit set"):
        w.view(torch.int32)
    with pytest.raises(BufferError, match="negative bit"):
        w.__dlpack__()
    with pytest.raises(RuntimeError, match="made of real numbers"):
        torch._neg_view(z)


def test_writes_through_negatives() -> None:
    z = torch.tensor([1 + 2j, 3 - 1j])
    w = z.conj().imag
    w.mul_(3).add_(1)
    assert z.tolist() == [1 + 5j, 3 - 4j]
    w[0] = 9
    assert z[0].item() == 1 - 9j
    assert torch.add(torch.ones(2), 1, out=w) is w and z.imag.tolist() == [-2, -2] and w.is_neg()
    assert w.normal_().is_neg() and values(w).tolist() == (-values(z.imag)).tolist()
    parameter = torch.zeros(3)._neg_view().requires_grad_()
    parameter.grad = torch.ones(3)
    torch.optim.SGD([parameter], lr=0.5).step()
    assert parameter.tolist() == [-0.5] * 3


def test_gradients_through_negatives_that_are_changed_in_place() -> None:
    leaf = torch.tensor([1 + 2j, 3 - 1j], requires_grad=True)  # the gradients below are PyTorch's
    whole = leaf * 1
    part = whole.conj().imag
    assert part.grad_fn.name() == "NegViewBackward0"
    part.mul_(3)
    (part.sum() + whole.real.sum() * 2).backward()
    assert whole.grad_fn.name() == "torch::autograd::CopySlices" and leaf.grad.tolist() == [2 - 3j, 2 - 3j]
    leaf.grad, whole = None, leaf * 1
    part = whole.conj().imag
    whole.mul_(2j)
    (part * torch.tensor([1.0, 2.0])).sum().backward()
    assert leaf.grad.tolist() == [-2, -4]
