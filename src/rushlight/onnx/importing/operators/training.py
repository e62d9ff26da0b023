"""The preview domain of training: Gradient, and the update rules Adagrad, Adam, Momentum."""

from __future__ import annotations

from typing import Any

import rushlight as torch
from rushlight.onnx.importing.table import TRAINING, operator

__all__: list[str] = []


@operator("Gradient", domain=TRAINING)
def gradient(*inputs: Any, xs: list[str], y: str, zs: list[str] | None = None, scope: Any) -> Any:
    """d y / d x for the values that `xs` names; graphs with this node run with gradients recorded."""
    return torch.autograd.grad(scope[y].sum(), [scope[name] for name in xs], create_graph=True, materialize_grads=True)


def _grouped(values: tuple[Any, ...], groups: int) -> list[tuple[Any, ...]]:
    """Inputs that come as all of the first kind, all of the second, ...: one tuple for each tensor."""
    count = len(values) // groups
    return [tuple(values[i + count * group] for group in range(groups)) for i in range(count)]


def _ungrouped(updated: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(one for kind in zip(*updated) for one in kind)


@operator("Adagrad", domain=TRAINING)
def adagrad(
    rate: Any, step: Any, *values: Any, decay_factor: float = 0.0, epsilon: float = 1e-6, norm_coefficient: float = 0.0
) -> Any:
    rate = rate / (1 + step * decay_factor)
    updated = []
    for x, grad, squares in _grouped(values, 3):
        grad = norm_coefficient * x + grad
        squares = squares + grad * grad
        updated.append((x - rate * grad / (torch.sqrt(squares) + epsilon), squares))
    return _ungrouped(updated)


@operator("Adam", domain=TRAINING)
def adam(
    rate: Any,
    step: Any,
    *values: Any,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    count = int(step.item())
    if count > 0:
        rate = rate * ((1 - beta**count) ** 0.5 / (1 - alpha**count))
    updated = []
    for x, grad, mean, squares in _grouped(values, 4):
        grad = norm_coefficient * x + grad
        mean = alpha * mean + (1 - alpha) * grad
        squares = beta * squares + (1 - beta) * grad * grad
        new = x - rate * mean / (torch.sqrt(squares) + epsilon)
        updated.append(((1 - norm_coefficient_post) * new, mean, squares))
    return _ungrouped(updated)


@operator("Momentum", domain=TRAINING)
def momentum(rate: Any, step: Any, *values: Any, alpha: float, beta: float, mode: str, norm_coefficient: float) -> Any:
    if mode not in ("standard", "nesterov"):
        raise ValueError(f"mode of Momentum is standard or nesterov, not {mode!r}")
    beta = beta if int(step.item()) > 0 else 1.0
    updated = []
    for x, grad, velocity in _grouped(values, 3):
        grad = norm_coefficient * x + grad
        velocity = alpha * velocity + beta * grad
        updated.append((x - rate * (velocity if mode == "standard" else grad + alpha * velocity), velocity))
    return _ungrouped(updated)
