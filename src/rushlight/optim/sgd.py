"""`SGD`: stochastic gradient descent."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._engine.multi_tensor import fused_update
from rushlight.optim.optimizer import (
    Optimizer,
    add_scaled,
    check_implementation,
    check_param,
    hyper,
    number,
    run_closure,
    scaler_skips,
)

__all__ = ["SGD"]


class SGD(Optimizer):
    """Stochastic gradient descent, optionally with momentum.

    With gradient g (plus `weight_decay` * p, negated if `maximize`): buffer = `momentum` * buffer + (1 - `dampening`) * g, the
    first buffer being g itself; p -= `lr` * buffer, or with `nesterov` p -= lr * (g + momentum * buffer).

    Raises `ValueError` for negative values, and for `nesterov` without momentum or with dampening.

    Example: `optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)`
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError("Tensor lr must be 1-element")
        if number(lr) < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if number(weight_decay) < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_implementation(self, defaults)
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, default in (("nesterov", False), ("maximize", False), ("foreach", None)):
                group.setdefault(name, default)
            group.setdefault("differentiable", False)
            group.setdefault("fused", False)

    def step(self, closure: Any = None) -> Any:
        """Change every parameter that has a gradient; returns the value of `closure`."""
        loss = run_closure(closure)
        if scaler_skips(self):
            return loss
        for group in self.param_groups:
            momentum = group["momentum"]
            started: list[tuple[Any, ...]] = []
            fresh: list[tuple[Any, ...]] = []
            state = self.state
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.is_sparse:
                    _sparse_step(param, grad, state, group)
                    continue
                if momentum == 0:
                    started.append((param, grad))
                    continue
                buffer = state[param].get("momentum_buffer")
                if buffer is None:
                    buffer = state[param]["momentum_buffer"] = _empty_buffer(param)
                    fresh.append((param, grad, buffer))
                    continue
                if group["differentiable"]:  # the tensor of the last step belongs to its graph
                    buffer = state[param]["momentum_buffer"] = buffer.clone()
                started.append((param, grad, buffer))
            if fresh:
                # The first gradient becomes the buffer as it is, without dampening.
                _update("sgd_momentum", fresh, group, keep=0.0, share=1.0)
            if started:
                name = "sgd_momentum" if momentum else "sgd"
                _update(name, started, group, keep=momentum, share=1 - group["dampening"])
        return loss


def _sparse_step(param: Any, grad: Any, state: Any, group: dict[str, Any]) -> None:
    """The step along a sparse gradient; the buffer is sparse too."""
    momentum = group["momentum"]
    with rushlight.no_grad():
        g = -grad if group["maximize"] else grad
        if group["weight_decay"] != 0:
            g = g.add(param, alpha=number(group["weight_decay"]))
        if momentum:
            buffer = state[param].get("momentum_buffer")
            if buffer is None:
                buffer = state[param]["momentum_buffer"] = g.clone().detach()
            else:
                buffer.mul_(momentum).add_(g, alpha=1 - group["dampening"])
            g = g.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        param.add_(g, alpha=-number(group["lr"]))


def _empty_buffer(param: Any) -> Any:
    with rushlight.no_grad():
        return rushlight.zeros_like(param, memory_format=rushlight.preserve_format)


def _update(name: str, rows: list[Any], group: dict[str, Any], keep: float, share: float) -> None:
    """buffer = keep * buffer + share * gradient, and the step along it."""
    if group["differentiable"]:
        with rushlight.enable_grad():
            for row in rows:
                _update_one(row, group, keep, share)
        return
    lr, weight_decay, momentum = number(group["lr"]), number(group["weight_decay"]), group["momentum"]
    sign = -1.0 if group["maximize"] else 1.0
    nesterov = group["nesterov"]
    rest = fused_update(name, rows, (-lr, weight_decay, sign, momentum, share, keep, 1.0 if nesterov else 0.0))
    if rest:
        with rushlight.no_grad():
            for i in rest:
                _update_one(rows[i], group, keep, share)


def _update_one(row: Any, group: dict[str, Any], keep: float, share: float) -> None:
    """One parameter by tensor operations: the definition that the kernel follows, and what can be differentiated."""
    param, grad, *buffers = row
    if group["fused"]:
        check_param(param, group)
    g = -grad if group["maximize"] else grad
    weight_decay = hyper(group, "weight_decay")
    if isinstance(weight_decay, Tensor):
        g = g + param * weight_decay
    elif weight_decay != 0:
        g = g.add(param, alpha=weight_decay)
    if buffers:
        buffer = buffers[0]
        buffer.mul_(keep).add_(g, alpha=share)
        g = g.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
    add_scaled(param, g, -hyper(group, "lr"))
