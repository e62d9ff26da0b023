"""Steps that can be differentiated: the derivative of where a run ends, by where it starts and by its rate, against differences."""

from __future__ import annotations

from typing import Any

import pytest

import rushlight as torch

OPTIONS: dict[str, dict[str, Any]] = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.1},
    "Adam": {"amsgrad": True, "weight_decay": 0.1},
    "AdamW": {},
    "Adagrad": {"initial_accumulator_value": 0.1},
    "Adadelta": {"eps": 1e-2},
    "Adamax": {},
    "NAdam": {"decoupled_weight_decay": True, "weight_decay": 0.1},
    "RAdam": {},
    "RMSprop": {"centered": True, "momentum": 0.5, "eps": 1e-2},
}


def end(name: str, start: Any, rate: Any) -> Any:
    """One number that depends on the parameters after three steps down a bowl."""
    p = start.clone()
    optimizer = getattr(torch.optim, name)([p], lr=rate, differentiable=True, **OPTIONS[name])
    for _ in range(3):
        here = p.clone()  # the step changes p in place
        p.grad = here + 0.3 * here**3
        optimizer.step()
    return (p * torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)).sum()


@pytest.mark.parametrize("name", OPTIONS)
def test_gradient_through_steps(name: str) -> None:
    start = torch.tensor([0.7, -1.2, 2.0], dtype=torch.float64, requires_grad=True)
    rate = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    by_start, by_rate = torch.autograd.grad(end(name, start, rate), (start, rate))
    small = 1e-6

    def at(shift: Any, more: float = 0.0) -> float:
        with torch.no_grad():
            shifted, moved = start + shift, rate + more
        return end(name, shifted.requires_grad_(), moved.requires_grad_()).item()

    for i in range(3):
        shift = torch.zeros(3, dtype=torch.float64)
        shift[i] = small
        assert by_start[i].item() == pytest.approx((at(shift) - at(-shift)) / (2 * small), rel=1e-5, abs=1e-8)
    still = torch.zeros(3, dtype=torch.float64)
    assert by_rate.item() == pytest.approx((at(still, small) - at(still, -small)) / (2 * small), rel=1e-5, abs=1e-8)


def test_leaves_are_refused_and_ways_exclude_each_other() -> None:
    p = torch.nn.Parameter(torch.ones(1))
    p.grad = torch.ones(1)
    with pytest.raises(RuntimeError, match="leaf"):
        torch.optim.Adam([p], differentiable=True).step()
    with pytest.raises(RuntimeError, match="does not support `differentiable`"):
        torch.optim.Adam([p], differentiable=True, fused=True)
    with pytest.raises(AssertionError, match="capturable=True"):
        torch.optim.Adam([p], capturable=True).step()


def test_the_product_of_nadam_has_a_gradient() -> None:
    torch.manual_seed(0)
    param, grad, mean, square = (torch.rand(4, dtype=torch.float64) for _ in range(4))

    def stepped(product: Any) -> Any:
        p = param.clone().requires_grad_().clone()
        p.grad = grad
        optimizer = torch.optim.NAdam([p], lr=0.9, differentiable=True)
        optimizer.state[p].update(
            step=torch.tensor(10.0, dtype=torch.float64),
            exp_avg=mean.clone(),
            exp_avg_sq=square.clone(),
            mu_product=product.clone(),
        )
        optimizer.step()
        return p

    assert torch.autograd.gradcheck(stepped, (torch.tensor(0.7, dtype=torch.float64, requires_grad=True),))
