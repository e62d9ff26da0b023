"""Checks of elements in compiled functions: one graph, and where one fails the error and the state of eager calls."""

from __future__ import annotations

import pytest

import rushlight as torch
from rushlight.nn import functional as F


def _told(function, *args):
    """What a call gives, or its error as text, and the line of this file that it came through last."""
    try:
        return function(*args).tolist()
    except Exception as error:
        lines, trace = [], error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == __file__:
                lines.append(trace.tb_lineno)
            trace = trace.tb_next
        return type(error), str(error), lines[-1]


def _same(function, *calls):
    """One graph, and the same results, errors, lines and random numbers as without `compile`, call by call."""
    found = []
    for run in (function, torch.compile(function, fullgraph=True)):
        torch.manual_seed(0)
        found.append([(_told(run, *make()), torch.rand(1).item()) for make in calls])
    assert repr(found[0]) == repr(found[1])
    return found[0]


GOOD, ZEROS = torch.tensor([[2.0, 1.0], [1.0, 3.0]]), torch.zeros(2, 2)


@pytest.mark.parametrize(
    "function",
    [
        torch.linalg.inv, torch.linalg.cholesky, torch.linalg.tensorinv,
        lambda a: torch.linalg.solve(a, a[0]), lambda a: torch.linalg.lu_factor(a)[0], lambda a: torch.linalg.matrix_power(a, -2),
    ],
)  # fmt: skip
def test_linear_algebra(function):
    def step(a):
        b = a * 1
        return function(b) + torch.rand(2)

    results = _same(step, lambda: (GOOD,), lambda: (ZEROS - float("nan"),), lambda: (ZEROS,), lambda: (GOOD,))
    assert "Error" in str(results[1][0]) or "Error" in str(results[2][0])


@pytest.mark.parametrize(
    ("function", "good", "bad"),
    [
        (lambda t: F.nll_loss(torch.ones(2, 3), t), [0, 1], [0, 5]), (lambda t: F.embedding(t, torch.ones(4, 2)), [0, 1], [0, 5]),
        (lambda t: torch.ones(3).gather(0, t), [0, 1], [0, 5]), (lambda t: torch.ones(3)[t], [0, 1], [-4, 0]),
        (lambda t: torch.zeros(3).scatter(0, t, torch.ones(2)), [0, 1], [0, 5]),
        (lambda t: torch.normal(0.0, t.float()), [1, 1], [1, -1]), (lambda t: torch.multinomial(t.float(), 1), [1, 2], [0, 0]),
        (lambda t: F.binary_cross_entropy(t.float(), torch.ones(2)), [1, 0], [1, 5]),
    ],
)  # fmt: skip
def test_ranges_of_elements(function, good, bad):
    results = _same(lambda t: function(t) * 1, *[lambda x=x: (torch.tensor(x),) for x in (good, bad, good)])
    assert "Error" in str(results[1][0]) and "Error" not in str(results[2][0])


def test_errors_of_the_program_itself():
    def step(x, total):
        total.add_(x.sum())
        noise = torch.rand(2)
        if (x < 0).any():
            raise ValueError(f"negative: {x.min().item()}")
        if (x == 4).any():
            raise AssertionError("four")
        torch._assert_async(x.sum() > 2, "small")
        return x + noise + total

    totals = []
    for run in (step, torch.compile(step, fullgraph=True)):
        total = torch.zeros(())
        torch.manual_seed(1)
        told = [str(_told(run, torch.full((2,), v), total)) for v in (2.0, -1.0, 4.0, 0.5, 3.0)]
        totals.append((told, total.item()))
    assert totals[0] == totals[1]
    assert "negative: -1.0" in totals[0][0][1] and "four" in totals[0][0][2] and "small" in totals[0][0][3]


def test_gradients_behind_a_check():
    def step(x):
        if not (x > 0).all():
            raise ValueError("not positive")
        return torch.linalg.inv(x).sum()

    for run in (step, torch.compile(step, fullgraph=True)):
        x = GOOD.clone().requires_grad_()
        run(x).backward()
        assert torch.equal(x.grad, torch.linalg.inv(GOOD).T @ torch.ones(2, 2) @ torch.linalg.inv(GOOD).T * -1)
        with pytest.raises(ValueError, match="not positive"):
            run(-x)


def test_a_handled_error_goes_on_as_it_does_in_eager_calls():
    def step(x):
        try:
            y = torch.linalg.inv(x)
        except RuntimeError:
            y = torch.linalg.pinv(x)
        return y + 1

    _same(step, lambda: (GOOD,), lambda: (ZEROS,), lambda: (GOOD,))


def test_arguments_of_distributions():
    def step(loc, scale):
        return torch.distributions.Normal(loc, scale).log_prob(loc + 1)

    results = _same(step, *[lambda s=s: (torch.zeros(2), torch.full((2,), s)) for s in (1.0, -1.0, 2.0)])
    assert "GreaterThan" in str(results[1][0])


def test_what_is_written_has_its_own_memory():
    def step(x, state):
        state[:, ::2].mul_(x)
        return torch.linalg.inv(x)

    states = []
    for run in (step, torch.compile(step, fullgraph=True)):
        state = torch.ones(3, 8)[:, 1:7:2]  # no neighbours in memory
        held = state._base
        run(torch.tensor([[2.0]]), state)
        _told(run, torch.tensor([[0.0]]), state)
        states.append((held.tolist(), state._version))
    assert states[0] == states[1]


def test_graphs_of_custom_backends_lose_no_errors():
    def step(x):
        if (x < 0).any():
            raise ValueError("negative")
        return torch.linalg.inv(x)

    layer = torch.nn.Linear(2, 1)
    scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=2.0), torch.optim.SGD(layer.parameters(), 0.1)

    def train(x):
        optimizer.zero_grad()
        scaler.scale(layer(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    compiled = torch.compile(step, backend="eager")
    assert torch.equal(compiled(GOOD), torch.linalg.inv(GOOD))
    with pytest.raises(ValueError, match="negative"):
        compiled(-GOOD)
    with pytest.raises(RuntimeError, match="singular"):
        compiled(ZEROS)
    run, before = torch.compile(train, backend="eager"), layer.weight.detach().clone()
    run(torch.full((1, 2), float("inf")))
    assert torch.equal(layer.weight, before) and scaler.get_scale() == 1.0
    run(torch.ones(1, 2))
    assert not torch.equal(layer.weight, before)
