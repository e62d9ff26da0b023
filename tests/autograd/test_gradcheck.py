"""`gradcheck`: what it accepts, what it refuses, and its parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rushlight as torch
from rushlight.autograd.gradcheck import (
    GradcheckError,
    get_analytical_jacobian,
    get_numerical_jacobian,
    get_numerical_jacobian_wrt_specific_input,
    gradcheck,
    gradgradcheck,
)

X = torch.tensor([0.3, -0.7, 1.2], dtype=torch.float64, requires_grad=True)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"check_forward_ad": True, "check_batched_forward_grad": True, "check_batched_grad": True},
    {"check_forward_ad": True, "check_backward_ad": False},
    {"fast_mode": True, "check_forward_ad": True},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_right_gradients_pass(options: dict[str, Any]) -> None:
    assert torch.autograd.gradcheck(lambda x: (x.sin() * x, x.exp().sum(), x.detach()), (X,), **options)
    z = torch.tensor([1 + 2j, 0.5 - 1j], requires_grad=True, dtype=torch.complex128)
    assert gradcheck(lambda z: (z * z.conj() * z, z.abs()), (z,), **options)


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * ctx.saved_tensors[0].cos() * 1.1

    @staticmethod
    def jvp(ctx: Any, tangent: Any) -> Any:
        return tangent * 3


def test_wrong_gradients_are_found() -> None:
    with pytest.raises(
        GradcheckError, match="Jacobian mismatch for output 0 with respect to input 0,\nnumerical:tensor"
    ):
        gradcheck(Wrong.apply, (X,))
    with pytest.raises(GradcheckError, match="random directions"):
        gradcheck(Wrong.apply, (X,), fast_mode=True)
    with pytest.raises(GradcheckError, match="forward mode mismatch"):
        gradcheck(Wrong.apply, (X,), check_forward_ad=True, check_backward_ad=False)
    assert not gradcheck(Wrong.apply, (X,), raise_exception=False)
    with pytest.raises(GradcheckError, match="expected to be zero"):
        gradcheck(lambda x: x.detach(), (X,))


def test_gradients_that_are_not_there_count_as_zero() -> None:
    class Careless(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return torch.ones(3, dtype=torch.float64) if grad is None else grad * 2

    assert gradcheck(Careless.apply, (X,), check_undefined_grad=False)
    with pytest.raises(GradcheckError, match="undefined output grads"):
        gradcheck(Careless.apply, (X,))


def test_second_gradients() -> None:
    assert gradgradcheck(lambda x: x.sin() * x, (X,), check_fwd_over_rev=True)
    assert gradgradcheck(torch.sin, (X,), fast_mode=True, gen_non_contig_grad_outputs=True, check_batched_grad=True)


def test_options_that_do_not_go_together() -> None:
    for check, options in (
        (gradcheck, {"check_batched_forward_grad": True}),
        (gradcheck, {"check_backward_ad": False}),
        (gradcheck, {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True}),
        (gradgradcheck, {"check_fwd_over_rev": True, "check_rev_over_rev": False}),
    ):
        with pytest.raises(AssertionError):
            check(torch.sin, (X,), **options)
    with pytest.raises(ValueError, match="at least one input"):
        gradcheck(torch.sin, (torch.ones(2),))
    with pytest.raises(RuntimeError, match="stride 0"):
        gradcheck(torch.sin, (torch.ones(1, dtype=torch.float64).expand(3).requires_grad_(),))


def test_jacobians_by_themselves() -> None:
    slope = np.diag(np.cos([0.3, -0.7, 1.2]))
    with pytest.warns(FutureWarning):
        np.testing.assert_allclose(
            get_numerical_jacobian(lambda a: a[0].sin(), (X,), eps=1e-6)[0].numpy(), slope, atol=1e-9
        )
    found = get_numerical_jacobian_wrt_specific_input(lambda x: (x.sin(), x * 2), 0, (X,), None, 1e-6)
    np.testing.assert_allclose(found[0].numpy(), slope, atol=1e-9)
    np.testing.assert_allclose(found[1].numpy(), 2 * np.eye(3), atol=1e-9)
    with pytest.warns(FutureWarning):
        jacobians, same, sizes, types = get_analytical_jacobian((X,), X.sin())
    np.testing.assert_allclose(jacobians[0].numpy(), slope)
    assert same and sizes and types


def test_backward_must_be_linear_in_the_gradient() -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.register_hook(lambda g: g + 1e-2)
        return y

    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    for fast in (False, True):
        with pytest.raises(GradcheckError, match="backward not multiplied by grad_output"):
            gradcheck(shifted, (x,), atol=1e-1, fast_mode=fast)
        assert not gradcheck(shifted, (x,), atol=1e-1, fast_mode=fast, raise_exception=False)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        ctx.save_for_forward(x, y)
        ctx.set_materialize_grads(False)
        return x * y

    @staticmethod
    def jvp(ctx: Any, x_t: Any, y_t: Any) -> torch.Tensor:
        x, y = ctx.saved_tensors
        if y_t is None:
            return 2 * x_t * y  # wrong by a factor where the other input does not move
        return (0 if x_t is None else x_t * y) + x * y_t


def test_forward_mode_without_a_tangent_is_checked() -> None:
    x = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.5], dtype=torch.float64, requires_grad=True)
    options: dict[str, Any] = {"check_forward_ad": True, "check_backward_ad": False}
    with pytest.raises(GradcheckError, match="tangents that are not there"):
        gradcheck(_Product.apply, (x, y), **options)
    assert gradcheck(_Product.apply, (x, y), check_undefined_grad=False, **options)


def test_every_input_moves_in_forward_mode() -> None:
    def scaled(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        value, tangent = torch.autograd.forward_ad.unpack_dual(y)
        return x * 2 + value if tangent is None else x * 2 + torch.autograd.forward_ad.make_dual(value, tangent * 1.1)

    x, y = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    with pytest.raises(GradcheckError, match="forward mode mismatch for output 0 with respect to input 1"):
        gradcheck(scaled, (x, y), check_forward_ad=True, check_backward_ad=False)
