"""Gradients under a dispatch mode, made of aten operators, beside those without one; `tools/sweeps/dispatch_opinfo.py --values`
goes over all operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._functorch.aot_autograd import aot_function
from rushlight._functorch.compilers import nop
from rushlight._interface.base import tree_map
from rushlight.utils._python_dispatch import BaseTorchDispatchMode, return_and_correct_aliasing

F, T = torch.nn.functional, torch.Tensor


def changed_part(x: T) -> T:
    y = x * 2
    y.t()[1].mul_(x[0])
    return y


def seen_through_a_view(x: T) -> T:
    y = x * 2
    z = y.view(-1)
    y.mul_(3)
    return z * z


def of_complex(function: Callable[[T], T]) -> Callable[[T], T]:
    return lambda x: torch.view_as_real(function(torch.complex(x, x.flip(0) * 2)) + 0j)


FUNCTIONS: list[Callable[[T], Any]] = [
    changed_part, seen_through_a_view, lambda x: (x - x[0, 0]).cumprod(1), of_complex(torch.sgn), of_complex(torch.angle), of_complex(torch.abs),
    lambda x: F.embedding_bag(torch.tensor([2, 0, 1, 1]), x, torch.tensor([0, 3]), mode="max"), lambda x: torch.linalg.lstsq(x, x[:, :1] * x).solution,
    lambda x: torch.linalg.lstsq(x[:, :2], x[:, 2:]).residuals, lambda x: torch.linalg.lstsq(x[:, :2], x[:, 2:], driver="gelsd").residuals,
    lambda x: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), x, adjoint=True), lambda x: torch.linalg.svd(x).S, lambda x: torch.quantile(x, 0.3, dim=1),
    lambda x: torch.corrcoef(x), lambda x: torch.cdist(x, x * 2, p=3.0), lambda x: torch.masked.var(x, 1, mask=x > 1.1), lambda x: x.repeat(2, 1, 3),
    lambda x: (x * 2).swapaxes_(0, 1), lambda x: (x * 2).swapdims_(0, 1), lambda x: (x * 2).t_(), lambda x: (x * 2).as_strided_((2, 2), (1, 3)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FUNCTIONS)))
def test_gradients_are_those_without_a_mode(number: int) -> None:
    def gradient(x: T) -> T:
        out = FUNCTIONS[number](x)
        weights = torch.arange(1.0, out.numel() + 1).view(out.shape)
        return torch.autograd.grad((out * weights).sum(), x)[0]

    x = torch.tensor([[1.0, 2.5, 0.5], [3.0, 1.0, 2.0], [0.25, 1.5, 4.0]], requires_grad=True)
    wanted = gradient(x)
    with BaseTorchDispatchMode():
        assert torch.allclose(gradient(x), wanted, rtol=1e-3, atol=1e-4, equal_nan=True)


class Both(torch.Tensor):
    """Two tensors that go the same way."""

    a: T
    b: T
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls: Any, a: T, b: T) -> Any:
        options = {"strides": a.stride(), "dtype": a.dtype, "device": a.device, "requires_grad": a.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, a.shape, **options)

    def __init__(self, a: T, b: T) -> None:
        self.a, self.b = a, b

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["a", "b"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, T], context: None, size: Any, stride: Any) -> Both:
        return Both(inner["a"], inner["b"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def side(name: str) -> Any:
            given, named = tree_map(
                lambda v: getattr(v, name) if isinstance(v, Both) else v, (list(args), kwargs or {})
            )
            return func(*given, **named)

        one, other = side("a"), side("b")
        made = Both(one, other) if isinstance(one, torch.Tensor) else one
        return return_and_correct_aliasing(func, args, kwargs, made)


@pytest.mark.parametrize("wrap", [lambda f: f, torch.compile, lambda f: aot_function(f, fw_compiler=nop)])
def test_wrappers_go_through_compiled_functions(wrap: Any) -> None:
    x = Both(torch.ones(3), torch.full((3,), 2.0)).requires_grad_()
    out = wrap(lambda x: (x * 3).sin())(x)
    assert isinstance(out, Both) and torch.equal(out.b, torch.full((3,), 6.0).sin())
    out.sum().backward()
    assert isinstance(x.grad, Both) and torch.allclose(x.grad.a, 3 * torch.full((3,), 3.0).cos())


class Forward(BaseTorchDispatchMode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return function(*args, **(kwargs or {}))


def test_a_gradient_that_a_hook_keeps_has_memory_of_its_own() -> None:
    x, kept = torch.ones(3, requires_grad=True), list[T]()
    x.register_hook(lambda grad: kept.append(grad))
    with Forward():
        (x * 2).sum().backward()
    assert x.grad is not None
    x.grad.zero_()
    assert kept[0].tolist() == [2.0, 2.0, 2.0]
