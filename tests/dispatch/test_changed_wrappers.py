"""Changes in place and second derivatives of tensors whose class answers for aten operators and gives a new object for
each result, beside plain tensors; `tools/sweeps/second_derivatives.py --mode` goes over all operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight._interface.base import tree_map
from rushlight.utils._python_dispatch import BaseTorchDispatchMode

T, F = torch.Tensor, torch.nn.functional


class Wrapped(T):
    """A tensor without memory around another; its attribute has a slot."""

    __slots__ = ["inner"]
    inner: T

    @staticmethod
    def __new__(cls: Any, inner: T, requires_grad: bool = False) -> Any:
        made = T._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, requires_grad=requires_grad
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        bare = lambda x: x.inner if isinstance(x, Wrapped) else x
        made = func(*tree_map(bare, args), **tree_map(bare, kwargs or {}))
        return tree_map(lambda x: Wrapped(x) if isinstance(x, T) else x, made)


IN_PLACE: list[Callable[[T], T]] = [
    lambda y: y.mul_(3), lambda y: y.add_(y), lambda y: y.neg_(), lambda y: y.pow_(2), lambda y: y.masked_fill_(torch.tensor([True, False]), 0),
    lambda y: y.pow_(torch.tensor([2.0, 3.0], dtype=torch.float64)), lambda y: y.xlogy_(2.0), lambda y: y.clip_(0, 3), lambda y: y.divide_(2),
    lambda y: F.selu(y, inplace=True), lambda y: F.relu6(y, inplace=True), lambda y: y.float_power_(2), lambda y: y.ldexp_(torch.tensor([1.0, 2.0])),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(IN_PLACE)))
def test_a_change_in_place_gives_the_tensor_itself_and_its_history(number: int) -> None:
    start, weights = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([1.0, 3.0], dtype=torch.float64)
    found = []
    for x in (start.clone().requires_grad_(), Wrapped(start.clone(), True)):
        y = x * 2
        z = IN_PLACE[number](y)
        assert z is y
        assert z.requires_grad
        found.append(torch.autograd.grad((y * weights).sum(), x)[0])
    assert torch.allclose(found[1].inner, found[0])


def test_a_form_in_place_goes_with_the_form_that_takes_the_same() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    with BaseTorchDispatchMode():
        y = (x * 2).pow_(2.0)
        assert y.grad_fn is not None
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [8.0, 16.0]


def _matrix(x: T) -> T:
    return torch.outer(x, x**2) + torch.eye(2, dtype=x.dtype)


TWICE: list[Callable[[T], T]] = [
    lambda x: x.exp(), lambda x: x.sigmoid(), lambda x: x.softmax(0), lambda x: x.norm(), lambda x: x.norm(3), lambda x: x.std(),
    lambda x: F.normalize(x, dim=0)[0], lambda x: torch.cosine_similarity(x, x * 2 + 1, 0), lambda x: F.layer_norm(x, (2,))[0],
    lambda x: F.batch_norm(x.view(2, 1), None, None, training=True)[0], lambda x: torch.lerp(x, x**2, x), lambda x: torch.addcdiv(x, x, x**2),
    lambda x: torch.dist(x, x * x), lambda x: torch.renorm(x.view(1, 2), 2, 0, 1.0), lambda x: _matrix(x).det(), lambda x: _matrix(x).logdet(),
    lambda x: torch.linalg.solve(_matrix(x), x), lambda x: F.scaled_dot_product_attention(*[x.view(1, 1, 2, 1)] * 3),
    lambda x: F.binary_cross_entropy_with_logits(x, x / 9), lambda x: F.logsigmoid(x),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(TWICE)))
def test_second_derivatives_are_those_of_plain_tensors(number: int) -> None:
    start, weights = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.tensor([1.0, 3.0], dtype=torch.float64)
    found = []
    for x in (start.clone().requires_grad_(), Wrapped(start.clone(), True)):
        (first,) = torch.autograd.grad(TWICE[number](x).sum(), x, create_graph=True)
        found.append((first, torch.autograd.grad((first * weights).sum(), x)[0]))
    for plain, wrapped in zip(*found, strict=True):
        assert torch.allclose(wrapped.inner, plain.detach(), rtol=1e-6, atol=1e-9)


COMPLEX: list[Callable[[T], T]] = [
    lambda x: torch.add(x, x, alpha=1j), lambda x: torch.sub(x, x * 2, alpha=1j), lambda x: torch.rsub(x, x * 3, alpha=1j), lambda x: x * 1j / (1 + 2j),
    lambda x: torch.addmm(x.view(1, 2)[:, :1], x.view(1, 2), x.view(2, 1), alpha=1j, beta=2 - 1j), lambda x: torch.lerp(x, x * x, 0.3 + 1j),
    lambda x: torch.addmv(x[:1], x.view(1, 2), x, alpha=1j, beta=2j), lambda x: torch.addr(torch.outer(x, x), x, x, alpha=1j, beta=3j),
    lambda x: torch.baddbmm(x.view(1, 1, 2)[:, :, :1], x.view(1, 1, 2), x.view(1, 2, 1), alpha=1j, beta=1j), lambda x: (x * 1j).cumprod(0),
    lambda x: x ** (1 + 2j), lambda x: (1 + 2j) ** x, lambda x: torch.addcmul(x, x, x, value=1j), lambda x: torch.addcdiv(x, x, x + 1, value=1j),
    lambda x: x.index_add(0, torch.tensor([0, 0]), x * x, alpha=1j),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(COMPLEX)))
def test_complex_numbers_are_conjugated_in_gradients(number: int) -> None:
    start = torch.tensor([0.3 + 0.9j, 1.5 - 0.2j], dtype=torch.complex128)

    def derivatives() -> list[T]:
        x = start.clone().requires_grad_()
        out = COMPLEX[number](x)
        (first,) = torch.autograd.grad(out, x, torch.full_like(out, 0.4 - 0.7j).detach(), create_graph=True)
        second = torch.autograd.grad(first, x, start.flip(0), allow_unused=True)[0] if first.requires_grad else None
        return [first.detach(), torch.zeros_like(start) if second is None else second]

    plain = derivatives()
    with BaseTorchDispatchMode():
        asked = derivatives()
    assert all(torch.allclose(a, b) for a, b in zip(plain, asked, strict=True))


def test_arguments_of_a_call_without_a_formula_may_not_change() -> None:
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    with BaseTorchDispatchMode():
        y = x * 1
        z = torch.xlogy(y, 2.0)
        y.mul_(5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            z.sum().backward()
