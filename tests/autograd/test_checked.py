"""What gradcheck, Function and checkpoints refuse, and the objects that they hand to users."""

from __future__ import annotations

import re
from typing import Any

import pytest

import rushlight
from rushlight.autograd import Function, gradcheck
from rushlight.utils.checkpoint import CheckpointError, checkpoint

X = rushlight.tensor([0.3, 0.7, 0.9], dtype=rushlight.float64, requires_grad=True)


@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"check_batched_grad": True}])
def test_gradcheck_calls_the_function_with_gradients_on(options: dict[str, Any]) -> None:
    seen = set()

    def function(x: Any, y: Any) -> Any:
        seen.add((x.requires_grad, y.requires_grad, rushlight.is_grad_enabled()))
        return x * 2 * y

    assert gradcheck(function, (X, rushlight.ones(3, dtype=X.dtype)), **options)
    assert seen == {(True, False, True)}


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda y, n: y[: 1 + n % 2], "shape"),
        (lambda y, n: y.to(rushlight.float32 if n % 2 else rushlight.float64), "dtype"),
    ],
)
def test_outputs_that_change_their_form_are_refused(change: Any, word: str, fast: bool) -> None:
    calls = []

    def function(x: Any) -> Any:
        calls.append(0)
        return change(x * 2, len(calls))

    where = "" if fast else r"on index \(0,\) "
    with pytest.raises(
        AssertionError,
        match=f"Expected `func` to return outputs with the same {word} when inputs are perturbed {where}by 1e-06, but got: {word}s",
    ):
        gradcheck(function, X, fast_mode=fast)


def test_two_rules_for_one_gradient_are_refused() -> None:
    class Both(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

        vjp = backward

    out = Both.apply(X).sum()
    with pytest.raises(
        RuntimeError, match="Implementing both 'backward' and 'vjp' for a custom Function is not allowed"
    ):
        out.backward()


class Keeps(Function):
    """x * 1, whose backward reads what it saved as often as `times` says, and notes it."""

    times = 1
    read: list[Any] = []

    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.save_for_backward(y)
        return x * 1

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        Keeps.read = [ctx.saved_tensors[0] for _ in range(Keeps.times)]
        return grad, None


def test_a_checkpoint_hands_back_the_tensor_from_outside() -> None:
    outside = rushlight.tensor(2.0)
    for function in (lambda x: Keeps.apply(x, outside), lambda x: Keeps.apply(x * 3, outside)):
        checkpoint(function, X, use_reentrant=False).sum().backward()
        assert Keeps.read[0] is outside


def test_saved_tensors_want_gradients_as_they_did() -> None:
    outside = rushlight.tensor(2.0, requires_grad=True)
    checkpoint(lambda x: Keeps.apply(x, outside), X, use_reentrant=False).sum().backward()
    assert Keeps.read[0] is not outside
    assert Keeps.read[0].requires_grad


def test_hooks_see_tensors_themselves() -> None:
    plain, packed = rushlight.ones(3, dtype=X.dtype), []
    with rushlight.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        X * plain
        Keeps.apply(X, plain).sum().backward()
    assert packed[0] is plain
    assert Keeps.read[0] is plain


def test_what_a_checkpoint_saved_is_unpacked_once_in_a_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keeps, "times", 2)
    out = checkpoint(lambda x: Keeps.apply(x, x * 2), X, use_reentrant=False).sum()
    with pytest.raises(CheckpointError, match=re.escape("triggered for a tensor that was already unpacked once.")):
        out.backward()


def test_backward_of_a_checkpoint_twice() -> None:
    x = rushlight.ones(2, requires_grad=True)
    out = checkpoint(lambda v: v.sin().exp(), x, use_reentrant=False)
    assert out.grad_fn._saved_result.tolist() == out.grad_fn._saved_result.tolist() == out.tolist()
    out.sum().backward(retain_graph=True)
    first = x.grad.clone()
    out.sum().backward()
    assert x.grad.tolist() == (2 * first).tolist()
