"""Control flow over tensors in compiled functions: one graph, both ways in it, results and gradients of eager calls."""

from __future__ import annotations

import pytest

import rushlight as torch
from rushlight import nn

counters = torch._dynamo.utils.counters


def _run(function, arguments):
    """Results of a call as lists, and gradients of its arguments by its results that have a history."""
    made = function(*arguments)
    results = list(made) if isinstance(made, tuple) else [made]
    for number, x in enumerate(results):
        if x.requires_grad:
            (x * (number + 1)).sum().backward(retain_graph=True)
    grads = [None if x.grad is None else x.grad.tolist() for x in arguments]
    return [x.detach().tolist() for x in results], grads


def _same(function, *makes, fullgraph=True):
    """The same with and without `compile`, for the arguments that each of `makes` gives, one function for all."""
    compiled = torch.compile(function, fullgraph=fullgraph)
    for make in makes:
        assert repr(_run(function, make())) == repr(_run(compiled, make()))


def _x(value=1.0, grad=False):
    return lambda: (torch.full((3,), value, requires_grad=grad),)


WEIGHT = torch.tensor([0.5, -1.25, 2.0])


def _closure(x):
    return torch.cond(x.sum() > 0, lambda: x.sin() * WEIGHT, lambda: x - 1) + 1


def _nested(x):
    def positive(a):
        return torch.cond(a.mean() > 2, lambda b: b * 3, lambda b: b * 5 + a, (a,)) + 1

    return torch.cond(x.sum() > 0, positive, lambda a: -a, (x,))


def _chain(x):
    for k in range(3):
        x = torch.cond(x.sum() > k, lambda a: a * 1.5, lambda a: a + 0.5, (x,))
    return x.sum()


def _changed_later(x):
    y = x * 2
    z = torch.cond(y.sum() > 0, lambda a: a.exp(), lambda a: a + 1, (y,))
    y.add_(5)
    return z + y


@pytest.mark.parametrize("function", [_closure, _nested, _chain, _changed_later])
@pytest.mark.parametrize("grad", [False, True])
def test_one_of_two_functions(function, grad):
    _same(function, _x(1.0, grad), _x(-1.0, grad), _x(5.0, grad))


def test_gradients_that_meet_inside_and_outside_are_added_in_order():
    def function(x, w):
        y = x * w
        z = torch.cond(y.sum() > 0, lambda a: (a * w).tanh() + a * 2 + w * w, lambda a: a - 1, (y,))
        return (z * y + w).sum(), y, z

    def make(value):
        return lambda: (torch.full((3,), value, requires_grad=True), (WEIGHT.abs() * 1.7).requires_grad_())

    _same(function, make(0.3), make(-0.3))


def test_structures_and_numbers():
    def function(x, y):
        made, n = torch.cond(
            x.sum() > 0, lambda x, y: ({"a": [x @ y.T, y.sum()]}, 3), lambda x, y: ({"a": [x * 2, y.mean()]}, 3), (x, y)
        )
        return made["a"][0] * n, made["a"][1]

    _same(function, *[lambda v=v: (torch.full((3,), v), torch.ones(3, 3)) for v in (1.0, -1.0)])


def test_operands_lie_as_they_do_in_eager_calls():
    def function(x):
        return torch.cond(x.sum() > 0, lambda a: a.T.sum(0), lambda a: a[:, 1] * 2, (x[::2],))

    _same(function, lambda: (torch.arange(18.0).reshape(3, 6).T * 0.37,), lambda: (-torch.ones(6, 3),))


def test_a_whole_training_step_with_branches():
    def trained(compiled):
        torch.manual_seed(0)
        first, second = nn.Linear(3, 3), nn.Linear(3, 3)
        optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], 0.1)

        def step(x):
            optimizer.zero_grad()
            h = first(x)
            h = torch.cond(
                h.sum() > 0, lambda h: second(h).relu() @ first.weight, lambda h: h.tanh() + second.bias, (h,)
            )
            loss = (h**2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = torch.compile(step, fullgraph=True) if compiled else step
        torch.manual_seed(1)
        losses = [run(torch.randn(4, 3)).item() for _ in range(6)]
        return losses, second.weight.tolist()

    assert trained(False)[0] == pytest.approx(trained(True)[0], rel=0, abs=0)


def test_loops():
    def function(i, x):
        return torch.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + WEIGHT), (i, x))

    def collatz(n):
        def body(n, count):
            return torch.cond(n % 2 == 0, lambda a: a // 2, lambda a: 3 * a + 1, (n,)), count + 1

        return torch.while_loop(lambda n, count: n > 1, body, (n, torch.zeros((), dtype=torch.int64)))

    _same(function, *[lambda k=k: (torch.tensor(k), torch.ones(3)) for k in (0, 7, 3)])
    _same(collatz, lambda: (torch.tensor(27),), lambda: (torch.tensor(1),))


def test_what_a_graph_cannot_hold_breaks_and_runs_as_it_is():
    def random(x):
        return torch.cond(x.sum() > 0, lambda a: torch.rand(3) + a, lambda a: a + 1, (x,))

    def powers(i, x):
        return torch.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (i, x))[1]

    def twice(x):
        y = torch.cond(x.sum() > 0, lambda a: a**3, lambda a: a**2, (x,)).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return g

    counters.clear()
    _same(random, _x(-1.0), fullgraph=False)
    _same(powers, lambda: (torch.tensor(0), torch.full((2,), 1.1, requires_grad=True)), fullgraph=False)
    _same(twice, _x(1.0, True), _x(-1.0, True), fullgraph=False)
    assert any("random numbers" in reason for reason in counters["graph_break"])
    assert any("iterations that ran" in reason for reason in counters["graph_break"])


def test_functions_that_change_something_are_no_branches():
    seen = []

    def function(x):
        def noted(a):
            seen.append(1)
            return a * 2

        return torch.cond(x.sum() > 0, noted, lambda a: a + 1, (x,))

    compiled = torch.compile(function)
    for value, count in ((1.0, 1), (-1.0, 1), (1.0, 2)):
        compiled(torch.full((2,), value))
        assert len(seen) == count


def test_a_history_that_one_function_alone_reaches_gets_no_zeros():
    def function(x):
        y = x.sqrt()
        return torch.cond(x.sum() > 1, lambda: y * 2, lambda: x * 1)

    _same(
        function,
        lambda: (torch.tensor([0.0, 0.5], requires_grad=True),),
        lambda: (torch.tensor([1.0, 4.0], requires_grad=True),),
        fullgraph=False,
    )
    x = torch.tensor([0.0, 0.5], requires_grad=True)
    torch.compile(function, fullgraph=True, options={"allow_reordering": True})(x).sum().backward()
    assert x.grad[0].isnan() and x.grad[1] == 1
