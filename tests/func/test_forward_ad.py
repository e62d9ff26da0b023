"""Forward mode by hand, and the functional forms of derivatives that are computed all at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
import rushlight.autograd.forward_ad as fwAD
from rushlight.autograd import functional


def x_and_t() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([0.5, 2.0], dtype=torch.float64), torch.tensor([1.0, -1.0], dtype=torch.float64)


def test_tangents_follow_operators() -> None:
    x, t = x_and_t()
    with fwAD.dual_level():
        d = fwAD.make_dual(x, t)
        out = fwAD.unpack_dual(torch.exp(d * 2).sum())
        np.testing.assert_allclose(out.tangent.item(), (2 * torch.exp(2 * x) * t).sum().item())
        assert fwAD.unpack_dual(x).tangent is None and repr(d).endswith(
            "tangent=tensor([ 1., -1.], dtype=torch.float64))"
        )
        view = d[1:]
        view.mul_(3)  # a change of a view is a change of the value and of the tangent
        assert fwAD.unpack_dual(d).tangent.tolist() == [1.0, -3.0] and fwAD.unpack_dual(d).primal.tolist() == [0.5, 6.0]
    assert fwAD.unpack_dual(d) == (d, None) and type(d) is torch.Tensor


def test_a_plain_tensor_that_is_written_to_becomes_dual() -> None:
    x, t = x_and_t()
    with fwAD.dual_level():
        out = torch.zeros(2, dtype=torch.float64)
        out[0] = fwAD.make_dual(x, t)[0]
        assert fwAD.unpack_dual(out).tangent.tolist() == [1.0, 0.0]
        other = torch.zeros(2, dtype=torch.float64)
        other.copy_(fwAD.make_dual(x, t))
        assert fwAD.unpack_dual(other).tangent.tolist() == [1.0, -1.0]
    assert type(out) is torch.Tensor and out.tolist() == [0.5, 0.0]


def test_reverse_over_forward() -> None:
    x, t = x_and_t()
    x.requires_grad_()
    with fwAD.dual_level():
        moved = fwAD.unpack_dual((fwAD.make_dual(x, t) ** 3).sum()).tangent
        (g,) = torch.autograd.grad(moved, x)
    np.testing.assert_allclose(g.numpy(), (6 * x * t).detach().numpy())


def test_what_cannot_be() -> None:
    x, t = x_and_t()
    with pytest.raises(RuntimeError, match="no level exists"):
        fwAD.make_dual(x, t)
    with pytest.raises(RuntimeError, match="positive number"):
        fwAD.exit_dual_level()
    with fwAD.dual_level():
        with pytest.raises(RuntimeError, match="Nested forward mode"):
            fwAD.enter_dual_level()
        with pytest.raises(ValueError, match="Expected primal to be floating point"):
            fwAD.make_dual(x.long(), t)
        with pytest.raises(RuntimeError, match="different size"):
            fwAD.make_dual(x, t[:1])
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            fwAD.make_dual(fwAD.make_dual(x, t), t)


def test_rows_and_columns_at_once() -> None:
    x, _ = x_and_t()

    def f(a, b):
        return a * b, (a * a).sum()

    want = functional.jacobian(f, (x, x + 1))
    for options in ({"vectorize": True}, {"vectorize": True, "strategy": "forward-mode"}):
        got = functional.jacobian(f, (x, x + 1), **options)
        for row, other in zip(got, want, strict=True):
            for a, b in zip(row, other, strict=True):
                np.testing.assert_allclose(a.numpy(), b.numpy())
    for options in ({}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}):
        np.testing.assert_allclose(
            functional.hessian(lambda v: (v**3).sum(), x, **options).numpy(), np.diag(6 * x.numpy())
        )
    with pytest.raises(RuntimeError, match="not supported together"):
        functional.jacobian(f, (x, x), strict=True, vectorize=True)
    with pytest.raises(NotImplementedError, match="vectorize=True"):
        functional.jacobian(f, (x, x), strategy="forward-mode")


def test_many_cotangents_at_once() -> None:
    x, _ = x_and_t()
    x.requires_grad_()
    unused = torch.ones(2, requires_grad=True)
    out = torch.linalg.solve(torch.diag(x) + 1, x)
    rows = torch.eye(2, dtype=torch.float64)
    (got,) = torch.autograd.grad(out, x, rows, retain_graph=True, is_grads_batched=True)
    want = torch.stack([torch.autograd.grad(out, x, r, retain_graph=True)[0] for r in rows])
    np.testing.assert_allclose(got.numpy(), want.numpy())
    with pytest.raises(RuntimeError, match="not have been used in the graph"):
        torch.autograd.grad(out, (x, unused), rows, retain_graph=True, is_grads_batched=True)


def test_views_that_were_there_before_move_with_their_base() -> None:
    x, t = x_and_t()
    z = torch.zeros(3, 2, dtype=x.dtype)
    row, column, nested = z[1], z[:, 0], z[1:][0][1:]
    with fwAD.dual_level():
        z[1:].add_(fwAD.make_dual(x, t))
        nested.mul_(2)
        assert fwAD.unpack_dual(row).tangent.tolist() == [1.0, -2.0] and fwAD.unpack_dual(row).primal.tolist() == [
            0.5,
            4.0,
        ]
        assert fwAD.unpack_dual(column).tangent.tolist() == [0.0, 1.0, 1.0]
        assert fwAD.unpack_dual(z * z).tangent.tolist() == [[0.0, 0.0], [1.0, -16.0], [1.0, -4.0]]
        with pytest.raises(RuntimeError, match="already has a forward gradient"):
            fwAD.make_dual(nested, nested)
    for one in (z, row, column, nested):
        assert type(one) is torch.Tensor and fwAD.unpack_dual(one).tangent is None
    assert row._base is z and nested._base is z
    row.fill_(7)  # and they share their memory as before
    assert z.tolist() == [[0.0, 0.0], [7.0, 7.0], [0.5, 2.0]] and nested.tolist() == [7.0]


def test_views_of_complex_values_move_as_real_numbers() -> None:
    z = torch.zeros(3, dtype=torch.complex128)
    pairs, imaginary = torch.view_as_real(z), z.imag
    with fwAD.dual_level():
        z.mul_(0).add_(
            fwAD.make_dual(torch.tensor([1 + 2j, 3j, 4], dtype=z.dtype), torch.tensor([1j, 5, 2 - 1j], dtype=z.dtype))
        )
        assert fwAD.unpack_dual(imaginary).tangent.tolist() == [1.0, 0.0, -1.0]
        assert fwAD.unpack_dual(pairs).tangent.tolist() == [[0.0, 1.0], [5.0, 0.0], [2.0, -1.0]]
        imaginary.zero_()
        assert fwAD.unpack_dual(z).tangent.tolist() == [0j, 5 + 0j, 2 + 0j]


def test_history_follows_views_that_became_dual() -> None:
    x, t = x_and_t()
    w = torch.tensor([2.0, 3.0], dtype=x.dtype, requires_grad=True)
    with fwAD.dual_level():
        z = w * 1
        part = z[1:]
        z.mul_(fwAD.make_dual(x, t))
        value, tangent = fwAD.unpack_dual(part)
    # z = w x, moving by w t
    assert torch.autograd.grad(value.sum(), w, retain_graph=True)[0].tolist() == [0.0, 2.0]
    assert torch.autograd.grad(tangent.sum(), w)[0].tolist() == [0.0, -1.0]


def test_strict_second_derivatives() -> None:
    x, _ = x_and_t()
    y = torch.ones(2, dtype=x.dtype)
    assert functional.hessian(lambda x: y.sum(), x).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(RuntimeError, match="does not require gradients"):
        functional.hessian(lambda x: y.sum(), x, strict=True)
    for derivative in (lambda: functional.jacobian(lambda x: 2 * x, x, strict=True, create_graph=True),
                       lambda: functional.vjp(lambda x: 2 * x, x, y, strict=True, create_graph=True),
                       lambda: functional.jvp(lambda x: 2 * x, x, y, strict=True, create_graph=True)):  # fmt: skip
        with pytest.raises(
            RuntimeError, match="independent of input 0. This is not allowed in strict mode when create_graph=True"
        ):
            derivative()


def test_dual_tensors_are_detached_and_made_leaves() -> None:
    x, t = x_and_t()
    with fwAD.dual_level():
        d = fwAD.make_dual(x, t)
        still = d.clone().detach_()
        assert not fwAD.unpack_dual(still * 2).tangent.any() and fwAD.unpack_dual(d).tangent.tolist() == t.tolist()
        leaf = d.clone().requires_grad_()
        assert leaf.requires_grad and fwAD.unpack_dual(leaf).tangent.tolist() == t.tolist()


def test_backward_inside_of_a_level() -> None:
    x = torch.ones(2, requires_grad=True)
    assert fwAD._current_level == -1
    with fwAD.dual_level():
        assert fwAD._current_level == 0
        d = fwAD.make_dual(x, torch.full((2,), 3.0))
        (d * d).sum().backward()
        torch.autograd.backward((d**3).sum(), torch.tensor(2.0))
    assert x.grad.tolist() == [8.0, 8.0] and fwAD.unpack_dual(x.grad).tangent is None
    with pytest.raises(RuntimeError, match="inside a functorch transform"):
        torch.func.vmap(lambda v: v.sum().backward())(torch.ones(2, 2))


@pytest.mark.parametrize(
    ("tensor", "tangent"),
    [
        (torch.randn(3, 4), torch.randn(4, 3).t()), (torch.randn(4, 3).t(), torch.randn(3, 4)), (torch.randn(3, 4), torch.randn(1, 4).expand(3, 4)),
        (torch.randn(3, 8)[:, ::2], torch.randn(3, 4)), (torch.randn(5, 4)[2:], torch.randn(3, 4)),
    ],
)  # fmt: skip
def test_the_tangent_lies_as_the_tensor_does(tensor: Any, tangent: Any) -> None:
    with fwAD.dual_level():
        made = fwAD.make_dual(tensor, tangent)
        kept = fwAD.unpack_dual(made).tangent
        assert (kept.stride(), kept.storage_offset()) == (tensor.stride(), tensor.storage_offset())
        assert (kept == tangent).all()
        column = fwAD.unpack_dual(made.as_strided((2,), (1,), tensor.storage_offset()))
        assert (column.tangent == kept.as_strided((2,), (1,), tensor.storage_offset())).all()


def test_a_tangent_that_lies_so_already_is_shared() -> None:
    tangent = torch.randn(3, 4)
    with fwAD.dual_level():
        kept = fwAD.unpack_dual(fwAD.make_dual(torch.randn(3, 4), tangent)).tangent
        assert kept.data_ptr() == tangent.data_ptr()
