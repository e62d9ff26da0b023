"""`item()` and the like under `capture_scalar_outputs`: numbers of the program, with eager's bits and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import rushlight as torch
from rushlight._capture.trace import COUNTERS


@pytest.fixture(autouse=True)
def capturing() -> Iterator[None]:
    COUNTERS["graph_break"].clear()
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        yield


def arithmetic(x):
    n, k = x.sum().item(), (x > 1).sum().item()
    x.add_(1)  # the number was read before
    more = [n, k, -n, abs(n - 10), 2 * n - 1.5, n / 3, 1 / n, k * 2 + 1, k // 2, k % 2, float(k), int(n), n > 2, k == 2]
    return x * n + k, x / (2 * n - 1.5), torch.clamp(x, max=k), more


def made(x):
    n, k = x.sum().item(), int(x[0])
    y = torch.zeros(2)
    y[1] = n
    filled = [torch.full((2,), k), torch.full((3,), n), torch.full_like(x, n), x.new_full((2,), k), torch.tensor(n)]
    return filled, x.masked_fill(x > 1, n), y, x.half().sum().item(), x.to(torch.uint8).max().item()


def step(x):
    x = x.clone().requires_grad_()
    loss = (x * x).mean()
    loss.backward()
    return loss.item(), x.grad * loss.item(), float(loss)


def checked(x):
    n, k = x.sum().item(), (x > 1).sum().item()
    torch._check(n > -100, lambda: "too small")
    torch._check_value(k >= 0)
    if x.isnan().any().item():
        raise ArithmeticError("no number")
    if n < -50.0:
        raise ValueError("small")
    return x * n + 1 / n


@pytest.mark.parametrize("function", [arithmetic, made, step, checked])
def test_numbers_of_one_graph(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function, fullgraph=True)
    for scale in (1.0, 1.7, -3.0):
        x = torch.tensor([3.0, 1.25, 2.0]) * scale
        assert repr(compiled(x.clone())) == repr(function(x.clone()))


@pytest.mark.parametrize(
    ("values", "error", "words"),
    [
        ([-1000.0], RuntimeError, "too small"),
        ([float("nan")], RuntimeError, "too small"),
        ([-60.0], ValueError, "small"),
        ([0.0], ZeroDivisionError, "division"),
    ],
)
def test_errors_are_those_of_eager_calls(values: list[float], error: type[Exception], words: str) -> None:
    compiled = torch.compile(checked, fullgraph=True)
    assert torch.equal(compiled(torch.ones(1)), checked(torch.ones(1)))
    for function in (checked, compiled):
        with pytest.raises(error, match=words):
            function(torch.tensor(values))


def test_what_needs_the_value_breaks() -> None:
    def shown(x):
        n = x.sum().item()
        text = f"{n:.1f}"
        try:
            made = torch.where(x > 1, x, n)  # not taken yet: no error of the program
        except TypeError:
            made = x
        return text, x[: int(n)], round(n, 1), made

    x = torch.tensor([0.5, 1.25])
    assert repr(torch.compile(shown)(x)) == repr(shown(x))
    assert COUNTERS["graph_break"]
    with pytest.raises(torch._dynamo.exc.Unsupported, match="asks for the value of a number"):
        torch.compile(shown, fullgraph=True)(x)


def test_without_the_setting_item_breaks() -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=False):
        assert torch.compile(step)(torch.ones(2000))[0] == 1.0
        assert any("element of a tensor" in reason for reason in COUNTERS["graph_break"])


def test_a_known_number_prints_as_on_the_cpu() -> None:
    def function() -> str:
        return str(torch.tensor(1.5) * 0 + 2.0)

    assert torch.compile(function)() == function() == "tensor(2.)"
