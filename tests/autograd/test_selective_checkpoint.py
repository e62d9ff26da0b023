"""Checkpoints that keep some results, groups of backward calls, and what their errors say."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import rushlight as torch
from rushlight.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    GraphExecGroup,
    checkpoint,
    create_selective_checkpoint_contexts,
    detach_variable,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
)

CALLS: list[str] = []


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        CALLS.append("forward")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def block(x: Any, w: Any) -> Any:
    return torch.mm(torch.nn.functional.dropout(torch.mm(x, w).relu(), 0.3), w.t()).exp() * x.sin()


def gradients(function: Any, **options: Any) -> list[Any]:
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    out = checkpoint(function, x, w, use_reentrant=False, **options) if options else function(x, w)
    first = torch.autograd.grad(out.square().sum(), (x, w), create_graph=True)
    second = torch.autograd.grad(first[0].sum(), (x, w))
    return [out.tolist(), *[g.tolist() for g in (*first, *second)], torch.rand(1).item()]


def keep_products(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize(
    "policy", [[torch.mm], [torch.ops.aten.mm.default, torch.exp], keep_products, lambda *a, **k: True]
)
def test_the_same_gradients_whatever_is_kept(policy: Any) -> None:
    assert gradients(block, context_fn=functools.partial(create_selective_checkpoint_contexts, policy)) == gradients(
        block
    )


def test_what_is_kept_is_not_computed_again() -> None:
    asked: list[tuple[str, bool]] = []

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        asked.append((str(op), ctx.is_recompute))
        return CheckpointPolicy.MUST_SAVE if op == torch.ops.aten.mm.default else CheckpointPolicy.MUST_RECOMPUTE

    x = torch.ones(2, 2, requires_grad=True)
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    y = checkpoint(lambda v: torch.mm(v, v).exp().sin(), x, use_reentrant=False, context_fn=contexts)
    y.sum().backward()
    assert asked == [
        (name, second)
        for second in (False, True)
        for name in ("aten.mm.default", "aten.exp.default", "aten.sin.default")
    ]


def test_layers_ask_for_native_operators() -> None:
    asked: list[str] = []

    def policy(ctx: Any, op: Any, *args: Any, **kwargs: Any) -> bool:
        asked.append(str(op))
        return False

    layer, x = torch.nn.Linear(2, 2), torch.ones(3, 2)
    contexts = functools.partial(create_selective_checkpoint_contexts, policy)
    checkpoint(lambda v: layer(v) @ layer.weight.t(), x, use_reentrant=False, context_fn=contexts)
    assert "aten.addmm.default" in asked and "aten.mm.default" in asked


def test_a_kept_result_may_not_change() -> None:
    def step(v: Any) -> Any:
        return torch.mm(v, v).mul_(2).exp()

    x = torch.eye(2, requires_grad=True)
    for allowed in (False, True):
        contexts = functools.partial(
            create_selective_checkpoint_contexts, [torch.mm], allow_cache_entry_mutation=allowed
        )
        y = checkpoint(step, x, use_reentrant=False, context_fn=contexts)
        if allowed:
            y.sum().backward()
        else:
            with pytest.raises(RuntimeError, match="changed in place"):
                y.sum().backward()


def test_policies_are_checked() -> None:
    with pytest.raises(TypeError, match="function or a list"):
        create_selective_checkpoint_contexts(3)
    with pytest.raises(ValueError, match="found 3"):
        create_selective_checkpoint_contexts([3])


@pytest.mark.parametrize(
    ("outer", "inner", "calls"), [(None, True, 1), (None, False, 2), (False, True, 2), (True, False, 1)]
)
def test_computing_again_stops_early(outer: bool | None, inner: bool, calls: int) -> None:
    CALLS.clear()
    x = torch.ones(2, requires_grad=True)

    def run() -> None:
        checkpoint(lambda v: Counted.apply(v.sin()), x, use_reentrant=False, early_stop=inner).sum().backward()

    if outer is None:
        run()
    else:
        with set_checkpoint_early_stop(outer):
            run()
    assert len(CALLS) == calls


def test_a_group_computes_once() -> None:
    for together, calls in ((True, 2), (False, 3)):
        CALLS.clear()
        x = torch.ones(2, requires_grad=True)
        a, b = checkpoint(lambda v: (Counted.apply(v).sin(), v.exp()), x, use_reentrant=False)
        if together:
            with GraphExecGroup():
                a.sum().backward(retain_graph=True)
                b.sum().backward()
        else:
            a.sum().backward(retain_graph=True)
            b.sum().backward()
        assert len(CALLS) == calls
    with GraphExecGroup(), pytest.raises(RuntimeError, match="nested"), GraphExecGroup():
        pass


def test_errors_show_both_computations() -> None:
    def other_dtype(v: Any) -> Any:
        return v.double().sin().exp().cos()

    def other_number(v: Any) -> Any:
        return v.sin().exp()

    for second, words in ((other_dtype, "different metadata"), (other_number, "different number")):
        calls: list[int] = []

        def fickle(v: Any, second: Any = second, calls: Any = calls) -> Any:
            calls.append(1)
            return v.sin().exp().cos() if len(calls) == 1 else second(v)

        x = torch.ones(2, requires_grad=True)
        with set_checkpoint_debug_enabled(True):
            y = checkpoint(fickle, x, use_reentrant=False)
        with pytest.raises(CheckpointError, match=words) as error:
            y.sum().backward()
        assert "cos(Tensor[2])" in str(error.value) and "Operators during recomputation" in str(error.value)


def test_the_reentrant_form_wants_a_whole_backward() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)"):
        torch.autograd.grad(checkpoint(torch.exp, x, use_reentrant=True).sum(), x)
    with pytest.warns(UserWarning, match="None of the inputs"):
        checkpoint(torch.exp, torch.ones(2), use_reentrant=True)
    with pytest.raises(RuntimeError, match="Only tuple"):
        detach_variable(x)  # type: ignore[arg-type]


def test_automatic_casts_are_the_same_the_second_time() -> None:
    x = torch.arange(4.0).reshape(2, 2).requires_grad_()
    for reentrant in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = checkpoint(lambda v: torch.mm(v, v).float(), x, use_reentrant=reentrant)
        x.grad = None
        y.sum().backward()
        assert x.grad.tolist() == [[3.0, 7.0], [5.0, 9.0]]
