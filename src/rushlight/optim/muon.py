"""`Muon`: momentum whose matrices are made orthogonal."""

from __future__ import annotations

import math
from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.optimizer import Optimizer, hyper, number, run_closure

__all__ = ["Muon", "muon"]


class Muon(Optimizer):
    """Muon (Jordan, 2024): each step is the momentum with all its singular values brought near one.

    buffer = `momentum` * buffer + (1 - momentum) * g; the update is that, or with `nesterov` the same average of g and
    the buffer. Its singular values are brought near one by `ns_steps` steps of a quintic Newton-Schulz iteration in
    bfloat16 with `ns_coefficients`; then p shrinks by `lr` * `weight_decay`, and p -= lr * s * update with s =
    sqrt(max(1, rows / columns)) (`adjust_lr_fn` None or "original") or 0.2 * sqrt(max(rows, columns))
    ("match_rms_adamw").

    It is for the weights of hidden layers: `ValueError` for parameters of other than two dims, and for values out of
    range.

    >>> import rushlight as torch
    >>> weight = torch.eye(2).requires_grad_()
    >>> optimizer = torch.optim.Muon([weight], lr=0.1, weight_decay=0.0)
    >>> weight.square().sum().backward()
    >>> optimizer.step()
    >>> weight.detach().diagonal().max() < 1
    tensor(True)
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.7750, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        for name, value in (("Learning rate", lr), ("momentum", momentum), ("weight decay", weight_decay)):
            if not 0.0 <= number(value):
                raise ValueError(f"{name} should be >= 0 but is: {value}")
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise ValueError(f"Adjust learning rate function {adjust_lr_fn} is not supported")
        defaults = {
            "lr": lr,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "nesterov": nesterov,
            "ns_coefficients": ns_coefficients,
            "eps": eps,
            "ns_steps": ns_steps,
            "adjust_lr_fn": adjust_lr_fn,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            for param in group["params"]:
                if param.dim() != 2:
                    raise ValueError(
                        f"Muon only supports 2D parameters whereas we found a parameter with size: {param.size()}"
                    )

    def step(self, closure: Any = None) -> Any:
        """Change every parameter that has a gradient; returns the value of `closure`."""
        loss = run_closure(closure)
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._step_one(param, param.grad, group)
        return loss

    def _step_one(self, param: Any, grad: Any, group: dict[str, Any]) -> None:
        if param.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        if grad.is_sparse:
            raise RuntimeError("Muon does not support sparse gradients")
        kept = self.state[param]
        if "momentum_buffer" not in kept:
            kept["momentum_buffer"] = rushlight.zeros_like(grad, memory_format=rushlight.preserve_format)
        _update(param, grad, kept["momentum_buffer"], group)


def muon(
    params: list[Any],
    grads: list[Any],
    muon_momentum_bufs: list[Any],
    *,
    foreach: bool | None = None,
    lr: Any,
    weight_decay: float,
    momentum: float,
    nesterov: bool,
    ns_coefficients: tuple[float, float, float],
    ns_steps: int,
    eps: float,
    adjust_lr_fn: str | None,
    has_complex: bool,
) -> None:
    """One step of `Muon` on lists of parameters, of their gradients and of their buffers, all in the same order."""
    if foreach:
        raise RuntimeError("Foreach is not supported for Muon yet")
    if has_complex:
        raise ValueError("Complex parameters are not supported")
    group = {
        "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov, "ns_coefficients": ns_coefficients,
        "ns_steps": ns_steps, "eps": eps, "adjust_lr_fn": adjust_lr_fn,
    }  # fmt: skip
    for param, grad, buffer in zip(params, grads, muon_momentum_bufs, strict=True):
        _update(param, grad, buffer, group)


@rushlight.no_grad()
def _update(param: Any, grad: Any, buffer: Any, group: dict[str, Any]) -> None:
    momentum, lr = group["momentum"], hyper(group, "lr")
    buffer.lerp_(grad, 1 - momentum)
    update = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
    update = _orthogonal(update, group["ns_coefficients"], group["ns_steps"], group["eps"])
    param.mul_(number(1 - lr * group["weight_decay"]))
    param.add_(update, alpha=number(-lr * _rate_of_shape(group["adjust_lr_fn"], *param.shape)))


def _rate_of_shape(how: str | None, rows: int, columns: int) -> float:
    return 0.2 * math.sqrt(max(rows, columns)) if how == "match_rms_adamw" else math.sqrt(max(1, rows / columns))


def _orthogonal(matrix: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """Bring the singular values near one: x becomes a x + (b x xᵀ + c (x xᵀ)²) x, some times over."""
    if steps >= 100:
        raise ValueError("Number of steps must be less than 100 for computational efficiency")
    if len(coefficients) != 3:
        raise ValueError("Coefficients must be a tuple of exactly 3 values")
    a, b, c = coefficients
    tall = matrix.size(0) > matrix.size(1)  # the smaller of the two products x xᵀ and xᵀ x will do
    x = matrix.bfloat16()
    x = x.T if tall else x
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        square = x @ x.T
        x = rushlight.addmm(x, rushlight.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
