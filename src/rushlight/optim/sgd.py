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
    unscaled,
)

__all__ = ["SGD", "sgd"]


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
            changed = [param for param in group["params"] if param.grad is not None]
            _update_all([(param, param.grad, self.state[param] if group["momentum"] else {}) for param in changed], group)
        return loss


def _update_all(triples: list[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any]) -> None:
    """Change parameters by their gradients, each with the state that is kept for it."""
    momentum = group["momentum"]
    started: list[tuple[Any, ...]] = []
    fresh: list[tuple[Any, ...]] = []
    for param, grad, kept in triples:
        if grad.is_sparse:
            _sparse_step(param, grad, kept, group)
            continue
        if momentum == 0:
            started.append((param, grad))
            continue
        buffer = kept.get("momentum_buffer")
        if buffer is None:
            buffer = kept["momentum_buffer"] = _empty_buffer(param)
            fresh.append((param, grad, buffer))
            continue
        if group["differentiable"]:  # the tensor of the last step belongs to its graph
            buffer = kept["momentum_buffer"] = buffer.clone()
        started.append((param, grad, buffer))
    if fresh:
        # The first gradient becomes the buffer as it is, without dampening.
        _update(fresh, group, keep=0.0, share=1.0)
    if started:
        _update(started, group, keep=momentum, share=1 - group["dampening"])


def _sparse_step(param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
    """The step along a sparse gradient; the buffer is sparse too."""
    momentum = group["momentum"]
    with rushlight.no_grad():
        g = -grad if group["maximize"] else grad
        if group["weight_decay"] != 0:
            g = g.add(param, alpha=number(group["weight_decay"]))
        if momentum:
            buffer = kept.get("momentum_buffer")
            if buffer is None:
                buffer = kept["momentum_buffer"] = g.clone().detach()
            else:
                buffer.mul_(momentum).add_(g, alpha=1 - group["dampening"])
            g = g.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        param.add_(g, alpha=-number(group["lr"]))


def _empty_buffer(param: Any) -> Any:
    with rushlight.no_grad():
        return rushlight.zeros_like(param, memory_format=rushlight.preserve_format)


def _update(rows: list[Any], group: dict[str, Any], keep: float, share: float) -> None:
    """buffer = keep * buffer + share * gradient, and the step along it."""
    if group["differentiable"]:
        with rushlight.enable_grad():
            for row in rows:
                _update_one(row, group, keep, share)
        return
    lr, weight_decay, momentum = number(group["lr"]), number(group["weight_decay"]), group["momentum"]
    sign = -1.0 if group["maximize"] else 1.0
    nesterov = group["nesterov"]
    rest = fused_update("sgd", rows, (-lr, weight_decay, sign, momentum, share, keep, 1.0 if nesterov else 0.0))
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


def sgd(
    params: list[Any],
    d_p_list: list[Any],
    momentum_buffer_list: list[Any],
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """One step of `SGD` on lists of parameters and gradients; a buffer that is None is made, and put into its list."""
    group = {
        "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "dampening": dampening, "nesterov": nesterov, "maximize": maximize,
        "foreach": foreach, "fused": fused, "differentiable": False,
    }  # fmt: skip
    grads = unscaled(d_p_list, grad_scale, found_inf, group)
    if grads is None:
        return
    kept: list[dict[str, Any]] = [{} for _ in params]
    if momentum:
        kept = [{"momentum_buffer": buffer} for buffer in momentum_buffer_list]
    _update_all(list(zip(params, grads, kept, strict=True)), group)
    if momentum:
        momentum_buffer_list[:] = [state["momentum_buffer"] for state in kept]
