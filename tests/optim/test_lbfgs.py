"""`LBFGS`: the points it visits, as PyTorch 2.13 printed them, and its options."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn, optim


def _valley(a: Any, b: Any) -> Any:
    """Rosenbrock's function."""
    return (1 - a).pow(2).sum() + 100 * (b - a * a).pow(2).sum()


def _waves(a: Any, b: Any) -> Any:
    return (torch.sin(3 * a) + a * a * 0.1).sum() + torch.cos(2 * b + a).sum() + 0.05 * (b * b).sum()


def _kink(a: Any, b: Any) -> Any:
    return (a - 1).abs().sum() + (b + 0.3).abs().pow(1.5).sum()


def _run(
    loss_of: Callable[[Any, Any], Any], steps: int, **options: Any
) -> tuple[list[float], list[float], dict[str, Any]]:
    a, b = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in ([-1.2, 0.3], [1.0, 2.0]))
    optimizer = optim.LBFGS([a, b], **options)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = loss_of(a, b)
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return losses, [*a.tolist(), *b.tolist()], optimizer.state[a]


RESULTS: list[tuple[Any, dict[str, Any], list[float], list[float], int, int]] = [
    (_valley, {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 12}, [389.5, 3.4327207, 0.64550294], [0.925346, 1.00223, 0.853063, 1.001136], 46, 35),
    (_valley, {"lr": 0.005}, [389.5, 154.51865, 96.251629], [-1.036315, 0.90075, 1.015544, 1.601372], 60, 60),
    (_waves, {"line_search_fn": "strong_wolfe", "history_size": 3, "max_iter": 12}, [1.9247549, -3.6216108], [-0.502542, -0.502542, 1.777569, 1.777569], 16, 12),
    (_waves, {"lr": 0.1, "max_eval": 6}, [1.9247549, -2.5857389, -3.3545792], [-0.40593, -0.547775, 1.696224, 1.669363], 18, 15),
    (_kink, {"line_search_fn": "strong_wolfe", "max_iter": 6}, [7.8703508, 0.1071222, 0.10618461], [0.999677, 0.999891, -0.319147, -0.302808], 24, 7),
]  # fmt: skip


@pytest.mark.parametrize(("loss_of", "options", "losses", "places", "calls", "iterations"), RESULTS)
def test_against_pytorch(
    loss_of: Any, options: dict[str, Any], losses: list[float], places: list[float], calls: int, iterations: int
) -> None:
    found, where, state = _run(loss_of, len(losses), **options)
    assert found == pytest.approx(losses, rel=1e-4)
    assert where == pytest.approx(places, abs=1e-4)
    assert (state["func_evals"], state["n_iter"]) == (calls, iterations)


def test_it_goes_on_from_a_state() -> None:
    def closure_of(optimizer: Any, p: Any) -> Callable[[], Any]:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = ((p - torch.tensor([1.0, 5.0])) ** 2 * torch.tensor([1.0, 20.0])).sum() + p.prod().sin()
            loss.backward()
            return loss

        return closure

    p = nn.Parameter(torch.tensor([3.0, -2.0]))
    optimizer = optim.LBFGS([p], max_iter=3, line_search_fn="strong_wolfe")
    optimizer.step(closure_of(optimizer, p))
    q = nn.Parameter(p.detach().clone())
    other = optim.LBFGS([q])
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for each, at in ((optimizer, p), (other, q)):
        each.step(closure_of(each, at))
    assert torch.equal(p, q)


def test_errors() -> None:
    p = nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match="doesn't support per-parameter options"):
        optim.LBFGS([{"params": [p]}, {"params": [nn.Parameter(torch.ones(1))]}])
    with pytest.raises(ValueError, match="Invalid learning rate"):
        optim.LBFGS([p], lr=-1)
    with pytest.raises(RuntimeError, match="only 'strong_wolfe' is supported"):
        optim.LBFGS([p], line_search_fn="exact").step(lambda: (p * p).sum())


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_complex_parameters(search: str | None) -> None:
    p = torch.nn.Parameter(torch.tensor([1 + 1j, -2 + 0.5j]))
    aim = torch.tensor([0.5 - 1j, 0.25 + 2j])
    optimizer = torch.optim.LBFGS([p], line_search_fn=search)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p - aim).abs().square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    assert torch.allclose(p, aim, atol=1e-5)
    assert optimizer.state[p]["d"].dtype is torch.float32


def test_sparse_gradients() -> None:
    table = torch.nn.Embedding(4, 2, sparse=True)
    untouched = table.weight.detach()[3].clone()
    optimizer = torch.optim.LBFGS(table.parameters())

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (table(torch.tensor([0, 1, 2, 1])) - 1.0).square().sum()
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert torch.allclose(table.weight[:3], torch.ones(3, 2), atol=1e-4)
    assert torch.equal(table.weight[3], untouched)


@pytest.mark.oracle
@pytest.mark.parametrize("options", [{}, {"max_eval": 7, "lr": 0.5}, {"max_iter": 5, "history_size": 2}], ids=str)
@pytest.mark.parametrize("start", [(3.528, 0.4), (1.7885, -0.7), (-3.2487, -0.6118), (-0.8335, 1.2)], ids=str)
def test_float32_as_pytorch(start: tuple[float, float], options: dict[str, Any]) -> None:
    """The line search decides in float32, as PyTorch's does: in two unknowns, where sums have no order, it visits the same points."""
    real = pytest.importorskip("torch")

    def losses(t: Any) -> list[float]:
        a, b = (t.tensor([x], requires_grad=True) for x in start)
        optimizer = t.optim.LBFGS([a, b], line_search_fn="strong_wolfe", **options)
        found = []

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (a * a * a * a * 0.1 - a * a + b * b * a * 0.3 + b * b * b * b).sum()
            loss.backward()
            found.append(loss.item())
            return loss

        for _ in range(8):
            optimizer.step(closure)
        return found

    assert losses(torch) == losses(real)
