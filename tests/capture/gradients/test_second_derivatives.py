"""Gradients of gradients of compiled functions have the bits of eager: each sum is made at the operator where eager makes
it, also where second derivatives meet first ones, through levels, sizes and hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import rushlight as torch
from rushlight._base.log import LOG
from rushlight._capture.bytecode.versions import supported
from rushlight.nn import functional as F

pytestmark = pytest.mark.skipif(not supported(), reason="functions are not compiled on this version of Python")


def inputs(seed: int, *shapes: tuple[int, ...]) -> list[Any]:
    torch.manual_seed(seed)
    return [torch.randn(shape).requires_grad_() for shape in shapes]


def facts(x: Any) -> Any:
    """What two tensors have to agree in."""
    return None if x is None else (x.requires_grad, x.stride(), x.detach().numpy().tobytes())


def same(run: Callable[[Any, int], Sequence[Any]], function: Any, rounds: int = 2, dynamic: bool | None = None) -> None:
    """Compare a use of a function with that of it compiled."""
    compiled = torch.compile(function, dynamic=dynamic)
    for seed in range(rounds):
        expected, found = run(function, seed), run(compiled, seed)
        assert [facts(x) for x in found] == [facts(x) for x in expected]


def penalty(shape: tuple[int, ...] = (8, 16), grow: int = 0, other: tuple[int, ...] = (16, 16)) -> Any:
    """A loss of a result and of its gradients."""

    def run(function: Any, seed: int) -> list[Any]:
        x, w = inputs(seed, (shape[0] + grow * seed, *shape[1:]), other)
        y = function(x, w)
        first = torch.autograd.grad(y.sin().sum(), (x, w), create_graph=True)
        (sum((g * g).sum() for g in first) + (y * y).mean()).backward()
        return [y, *first, x.grad, w.grad]

    return run


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * 2 * x


def in_place(x: Any, w: Any) -> Any:
    hidden = (x @ w).clone()
    hidden[2:4].mul_(x[2:4])
    hidden.tanh_()
    return hidden * hidden


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: torch.tanh(torch.tanh(x @ w) @ w),
        lambda x, w: F.gelu(x @ w) * torch.sigmoid(x @ w),
        lambda x, w: F.layer_norm(x @ w, (16,)).softmax(-1).log() * x,
        lambda x, w: torch.relu(x @ w) * x,
        lambda x, w: Square.apply(x @ w) * torch.tanh(x),
        in_place,
    ],
    ids=["tanh", "gelu", "norm", "relu", "function", "in place"],
)
def test_penalty(function: Any) -> None:
    same(penalty(), function)


def test_convolution() -> None:
    same(penalty((2, 3, 8, 8), other=(4, 3, 3, 3)), lambda x, w: F.silu(F.conv2d(x, w, padding=1)), 1)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes(dynamic: bool | None) -> None:
    same(penalty(grow=1), lambda x, w: torch.tanh(x @ w) * torch.sigmoid(x @ w), 4, dynamic)


def test_five_levels() -> None:
    # What is added to a gradient that has arrived is a part of the history, at the place where eager adds.
    def run(function: Any, seed: int) -> list[Any]:
        (x,) = inputs(seed, (257,))
        y = found = function(x)
        results = [y]
        for _ in range(5):
            (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)
            results.append(found)
            found = found * y
        return results

    same(run, lambda x: x.sin() * x.exp())


def test_constant_gradients_want_none() -> None:
    def run(function: Any, seed: int) -> list[Any]:
        (x,) = inputs(seed, (5,))
        found, results = function(x).sum(), []
        for _ in range(3):
            (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)
            results.append(found)
        return results

    same(run, lambda x: x * x * x, 1)


def several(x: Any, w: Any) -> Any:
    return torch.tanh(x @ w), torch.sigmoid(x @ w) * x


def inner(x: Any, w: Any) -> Any:
    hidden = torch.tanh(x @ w)
    return hidden, torch.sin(hidden @ w) * hidden


@pytest.mark.parametrize("function", [several, inner])
def test_several_results(function: Any) -> None:
    def run(function: Any, seed: int) -> list[Any]:
        x, w = inputs(seed, (8, 16), (16, 16))
        y, z = function(x, w)
        both = torch.autograd.grad((y * z).sum(), (x, w), create_graph=True)
        (one,) = torch.autograd.grad(y.exp().sum(), x, create_graph=True)
        (sum((g * g).sum() for g in both) + (one * both[0]).sum() + z.mean()).backward()
        return [y, z, *both, one, x.grad, w.grad]

    same(run, function)


def test_steps_of_descent() -> None:
    # As in model-agnostic meta-learning: each step is differentiated by the last loss.
    def run(function: Any, seed: int) -> list[Any]:
        x, t, w, v = inputs(seed, (8, 16), (8, 4), (16, 32), (32, 4))
        fast = [w, v]
        for _ in range(3):
            first = torch.autograd.grad(function(x, t, *fast), fast, create_graph=True)
            fast = [p - 0.1 * g for p, g in zip(fast, first, strict=True)]
        loss = function(x, t, *fast)
        loss.backward()
        return [loss, x.grad, t.grad, w.grad, v.grad]

    same(run, lambda x, t, w, v: F.mse_loss(F.relu(x @ w) @ v, t))


@pytest.mark.parametrize(
    "function", [lambda x: x + 1, lambda x: x * 2, lambda x: x.view(3, 3).t(), lambda x: x.expand(4, 9)]
)
def test_gradients_that_come_through(function: Any) -> None:
    def run(function: Any, seed: int) -> list[Any]:
        (x,) = inputs(seed, (9,))
        y = function(x)
        given = torch.ones_like(y).requires_grad_()
        (found,) = torch.autograd.grad(y, x, given, create_graph=True)
        return [found, *torch.autograd.grad(found.sum(), given)]

    same(run, function, 1)


def test_products_with_the_hessian() -> None:
    def run(function: Any, seed: int) -> list[Any]:
        x, v = inputs(seed, (33,), (33,))
        (first,) = torch.autograd.grad(function(x), x, v, create_graph=True)
        (by_given,) = torch.autograd.grad(first, v, torch.ones_like(first), retain_graph=True)
        return [first, by_given, *torch.autograd.grad(first, [x, v], torch.cos(x).detach(), create_graph=True)]

    same(run, lambda x: torch.exp(x).cumsum(0) * x)


def test_hooks() -> None:
    def run(function: Any, seed: int) -> list[Any]:
        x, w = inputs(seed, (8, 16), (16, 16))
        seen: list[Any] = []
        y = function(x, w)
        y.register_hook(lambda grad: seen.append(grad.detach().clone()) or grad * 2)
        first = torch.autograd.grad(y.sin().sum(), (x, w), create_graph=True)
        first[0].register_hook(lambda grad: grad * 3)
        (sum((g * g).sum() for g in first) + y.mean()).backward()
        return [*seen, x.grad, w.grad]

    same(run, lambda x, w: torch.tanh(x @ w) * x, 1)


def test_order_of_dims_of_a_gradient_of_a_gradient() -> None:
    def run(function: Any, seed: int) -> list[Any]:
        x, w = inputs(seed, (8, 16), (16, 16))
        first = torch.autograd.grad(function(x, w).sum(), (x, w), create_graph=True)
        turned = torch.randn(16, 8).t()
        return [*torch.autograd.grad(first[0], (x, w), turned)]

    same(run, lambda x, w: torch.tanh(x @ w).sum(0) * torch.tanh(x))


def changed(function: Any, which: int) -> Any:
    x, w = inputs(0, (8, 16), (16, 16))
    first = torch.autograd.grad(function(x, w).sin().sum(), (x, w), create_graph=True)
    with torch.no_grad():
        (first[0] if which == 2 else (x, w)[which]).mul_(0.5)
    (first[0].sum() + first[1].sum()).backward()
    return [x.grad, w.grad]


def test_changes_before_the_second_backward() -> None:
    def function(x: Any, w: Any) -> Any:
        return torch.tanh(x @ w) * x

    compiled = torch.compile(function)
    for which in (0, 1):
        for each in (function, compiled):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                changed(each, which)
    assert [facts(x) for x in changed(compiled, 2)] == [facts(x) for x in changed(function, 2)]


def test_backward_twice_through_a_gradient() -> None:
    x, w = inputs(0, (8, 16), (16, 16))
    (first,) = torch.autograd.grad(
        torch.compile(lambda x, w: torch.tanh(x @ w))(x, w).sin().sum(), x, create_graph=True
    )
    loss = (first * first).sum()
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def branches(x: Any, w: Any) -> Any:
    hidden = torch.tanh(x @ w)
    inner = torch.tanh(torch.sin(hidden)) * hidden
    return inner, hidden * inner * hidden + inner, hidden + x


@pytest.mark.parametrize("looks", ["hook", "scale", "retain", "grad"])
@pytest.mark.parametrize("again", [False, True])
def test_looks_at_inner_results(looks: str, again: bool) -> None:
    # Eager nodes run the latest first, up to the node of the result that somebody looks at, and then go on.
    def run(function: Any, seed: int) -> list[Any]:
        x, w = inputs(seed, (8, 16), (16, 16))
        outs, seen = function(x, w), []
        if looks == "hook":
            outs[0].register_hook(lambda grad: seen.append(grad.detach().clone()))
        elif looks == "scale":
            outs[0].register_hook(lambda grad: grad * 1.5)
        elif looks == "retain":
            outs[0].retain_grad()
        wanted = [x, w, *(outs[::2] if looks == "grad" else ())]
        found = torch.autograd.grad(sum((o * o.cos()).sum() for o in outs), wanted, create_graph=again)
        if again:
            (sum((g * g).sum() for g in found) + outs[1].exp().sum()).backward()
        return [*found, *seen, outs[0].grad if looks == "retain" else None, x.grad, w.grad]

    same(run, branches, 1)


def test_hooks_run_in_the_order_of_backward() -> None:
    def run(function: Any) -> list[str]:
        x, w = inputs(0, (8, 16), (16, 16))
        outs, order = function(x, w), []
        for name, out in zip("abc", outs, strict=True):
            out.register_hook(lambda grad, name=name: order.append(name))
        sum(out.sum() for out in outs).backward()
        return order

    def function(x: Any, w: Any) -> Any:
        first, second = x.sin(), w.cos()
        return second, x @ w, first

    assert run(torch.compile(function)) == run(function)


def test_a_program_that_saves_nothing() -> None:
    def run(function: Any, seed: int) -> list[Any]:
        x, given = inputs(seed, (6, 6), (6, 6))
        (first,) = torch.autograd.grad(function(x), x, given, create_graph=True)
        both = [(given * given.detach().cos()).sum(), (first * x.detach()).sum()]  # what arrives first begins the sum
        return [first, *torch.autograd.grad(both, given, create_graph=True)]

    same(run, lambda x: (y := x * 1.5) - y * 0.3)


def flat(x: Any) -> Any:
    made = x.clone()
    made.view(36).mul_(x.view(36))
    return made


def rows(x: Any) -> Any:
    made = x.clone()
    made[1:3].mul_(x[3:5])
    made[:, 0].tanh_()
    return made


@pytest.mark.parametrize("function", [flat, rows])
def test_parts_changed_in_place(function: Any) -> None:
    # The old part is not behind the result, and is a part of the history all the same.
    def run(function: Any, seed: int) -> list[Any]:
        (x,) = inputs(seed, (6, 6))
        y = function(x)
        (first,) = torch.autograd.grad((y * y.cos()).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((y * y.cos()).sum() + first.sin().sum(), x, create_graph=True)
        (second * second).mean().backward()
        return [y, first, second, x.grad]

    same(run, function, 3)


def test_first_gradients_that_lead_to_others() -> None:
    # The gradient of a bias is a sum of that of its sum: who asks for the latter's gradient gets both.
    def run(function: Any, seed: int) -> list[Any]:
        x, b, w = inputs(seed, (8, 16), (16,), (16, 16))
        y = function(x, b, w)
        first = torch.autograd.grad(y.sin().sum(), (x, b, w), create_graph=True)
        loss = (first[1] ** 2).sum() + first[2].sin().sum() + (y * y).mean()
        return [*first, *torch.autograd.grad(loss, [first[0], first[1], x, b])]

    def function(x: Any, b: Any, w: Any) -> Any:
        hidden = x + b
        return torch.tanh(hidden @ w) * torch.sin(hidden)

    same(run, function)


@pytest.mark.parametrize("reduce", [lambda y: y.sum(), lambda y: y.sum(0).sin().sum(), lambda y: y[:, ::2].sum()])
def test_expanded_gradients(reduce: Any) -> None:
    # The gradient of a sum has no order of dims: what is computed of it lies row-major, whatever the result's order.
    def run(function: Any, seed: int) -> list[Any]:
        x, w = inputs(seed, (6, 7), (6, 7))
        reduce(function(x, w)).backward()
        return [x.grad, w.grad]

    same(run, lambda x, w: (F.layer_norm(x, (7,)) * w).t().to(torch.bfloat16).to(torch.float32), 4)


def test_an_expanded_gradient_behind_a_hook() -> None:
    def run(function: Any, seed: int) -> list[Any]:
        (w,) = inputs(seed, (6, 7))
        first, second = function(w)
        first.register_hook(lambda grad: grad)
        second.sum().backward()
        return [w.grad]

    same(run, lambda w: (y := F.layer_norm(w, (7,)).t(), y.to(torch.bfloat16).to(torch.float32)), 4)


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x.exp()


def test_a_function_that_can_be_differentiated_once() -> None:
    compiled = torch.compile(lambda x: Once.apply(x) * x)
    for function in (lambda x: Once.apply(x) * x, compiled):
        x = torch.ones(3, requires_grad=True)
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        assert first.requires_grad
        with pytest.raises(RuntimeError, match="differentiate twice"):
            first.sum().backward()


def test_the_log_tells_what_is_differentiated_as_a_whole(capfd: pytest.CaptureFixture[str]) -> None:
    def branches(x: Any, w: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: (a @ w).sin(), lambda a: (a @ w).cos(), (x,)) * w

    with LOG.scoped(frozenset({"joint"})):
        penalty((4, 4), other=(4, 4))(torch.compile(branches), 0)
    assert "as a whole, not operator by operator: second derivatives of control flow" in capfd.readouterr().err
    with LOG.scoped(frozenset({"joint"})):
        penalty((4, 4), other=(4, 4))(torch.compile(lambda x, w: (x @ w).sin() * w), 0)
    assert "as a whole" not in capfd.readouterr().err
