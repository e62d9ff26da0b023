"""`autograd.functional`: what strict mode refuses, and what arguments must be."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch
import rushlight.autograd.forward_ad as fw
from rushlight.autograd import functional as F

X = torch.tensor([1.0, 2.0, 3.0])


def constant(x: Any) -> Any:
    return torch.ones(2)


REFUSED = [
    (lambda: F.jacobian(constant, X, strict=True), RuntimeError, "Output 0 .* does not require gradients"),
    (lambda: F.jvp(constant, X, X, strict=True), RuntimeError, "Output 0 .* does not require gradients"),
    (lambda: F.vjp(lambda a, b: a * 2, (X, X), X, strict=True), RuntimeError, "independent of input 1"),
    (
        lambda: F.hessian(lambda a: a.sum(), X, strict=True),
        RuntimeError,
        "jacobian .* with respect to input 0 is independent",
    ),
    (
        lambda: F.vhp(lambda a: a.sum(), X, X, strict=True),
        RuntimeError,
        "jacobian .* with respect to input 0 is independent",
    ),
    (lambda: F.vjp(lambda a: a * a, X, torch.ones(2)), RuntimeError, "v has invalid size"),
    (lambda: F.jvp(lambda a: a * a, X, (X, X)), RuntimeError, "should contain a single Tensor"),
    (lambda: F.jvp(lambda a, b: a * b, (X, X), X), RuntimeError, "invalid length"),
    (lambda: F.hvp(lambda a: (a**3).sum(), X), RuntimeError, "v can only be None"),
    (lambda: F.vhp(lambda a: a.detach(), X, X), RuntimeError, "given to vhp should contain a single element"),
    (lambda: F.hvp(lambda a: a * a, X, X), RuntimeError, "given to hvp should contain a single element"),
    (lambda: F.hvp(lambda a: (a.sum(),), X, X), RuntimeError, "given to hvp should return a single Tensor"),
    (lambda: F.vhp(lambda a: (a.sum(), 3), X, X), TypeError, "given to vhp .* index 1 has type <class 'int'>"),
    (lambda: F.hvp(lambda a: a.sum(), X, (X, 2)), TypeError, "v given to hvp"),
    (lambda: F.vhp(lambda a, b: a.sum(), (X, X), X), RuntimeError, "invalid length"),
    (lambda: F.hessian(lambda a: a.detach(), X, strict=True), RuntimeError, "does not require gradients"),
    (lambda: F.hessian(lambda a: 3, X), TypeError, "outputs of the user-provided function given to hessian"),
    (lambda: F.jacobian(lambda a: 3, X), TypeError, "has type <class 'int'>"),
    (lambda: F.jacobian(lambda a: a, 3), TypeError, "inputs given to jacobian"),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_refuses_as_pytorch(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_without_strict_what_is_independent_has_no_slope() -> None:
    assert (
        not F.jacobian(constant, X).any()
        and not F.jvp(constant, X, X)[1].any()
        and not F.vjp(constant, X, torch.ones(2))[1].any()
    )
    assert not F.vhp(lambda a: a.sum(), X, X)[1].any()


def test_results_lose_their_tangents_with_the_level() -> None:
    with fw.dual_level():
        result = fw.make_dual(X, X * 2).sin() * 2
        assert fw.unpack_dual(result).tangent is not None
    assert type(result) is torch.Tensor and fw.unpack_dual(result).tangent is None
    with fw.dual_level():
        assert fw.unpack_dual(result + 1).tangent is None
