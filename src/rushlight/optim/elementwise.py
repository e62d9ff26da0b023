"""The frame of optimizers that treat one parameter after the other by tensor operations."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.optimizer import (
    Optimizer,
    check_implementation,
    check_param,
    run_closure,
    scaler_skips,
    step_dtype,
)

__all__ = ["ElementwiseOptimizer", "check_betas", "check_rate"]


def check_rate(lr: Any, **others: float) -> None:
    """Raise `ValueError` for a learning rate, or other values by their names in the message, below zero."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    rate = lr.item() if isinstance(lr, Tensor) else lr
    if not 0.0 <= rate:
        raise ValueError(f"Invalid learning rate: {lr}")
    for name, value in others.items():
        if not 0.0 <= value:
            raise ValueError(f"Invalid {'epsilon' if name == 'eps' else name} value: {value}")


def check_betas(betas: tuple[float, float]) -> None:
    """Raise `ValueError` for coefficients of running averages outside of [0, 1)."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


class ElementwiseOptimizer(Optimizer):
    """A subclass names its state tensors (`_state`, made of zeros like the parameter) and defines `_change`."""

    _state: tuple[str, ...] = ()
    _takes_sparse = False

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        check_implementation(self, defaults)
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        options = dict(state.get("defaults") or self.defaults)
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in options.items():
                group.setdefault(name, value)
        for kept in self.state.values():
            if kept and not isinstance(kept["step"], Tensor):
                kept["step"] = rushlight.tensor(float(kept["step"]), dtype=step_dtype())

    def _begin(self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        for name in self._state:
            kept[name] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)

    def _change(
        self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        """Change `param` and the state `kept` in place; complex ones come as real tensors.

        Nothing that an operation may have kept for its backward is written into, apart from those: a step can be differentiated.
        """
        raise NotImplementedError

    def step(self, closure: Any = None) -> Any:
        """Change every parameter that has a gradient; returns the value of `closure`."""
        loss = run_closure(closure)
        if scaler_skips(self):
            return loss
        with rushlight.set_grad_enabled(bool(self.defaults.get("differentiable"))):
            for group in self.param_groups:
                params = [param for param in group["params"] if param.grad is not None]
                if not group.get("differentiable"):
                    params = self._step_together(params, group)
                for param in params:
                    self._step_one(param, param.grad, group)
        return loss

    def _step_together(self, params: list[Any], group: dict[str, Any]) -> list[Any]:
        """Change parameters by one kernel for all of them, where the optimizer has one; gives back those that it does not take."""
        return params

    def _step_one(self, param: Any, grad: Any, group: dict[str, Any]) -> None:
        if grad.is_sparse and not self._takes_sparse:
            raise RuntimeError(f"{type(self).__name__} does not support sparse gradients")
        kept = self.state[param]
        if not kept:
            self._begin(param, grad, kept, group)
        check_param(param, group)
        if group.get("differentiable"):  # the tensors of the last step belong to its graph
            for name, value in kept.items():
                if name != "step" and isinstance(value, Tensor):
                    kept[name] = value.clone()
        kept["step"] += 1
        if group["maximize"]:
            grad = -grad
        tensors = kept
        if param.is_complex():
            param, grad = rushlight.view_as_real(param), rushlight.view_as_real(grad)
            tensors = {k: rushlight.view_as_real(v) if v.is_complex() else v for k, v in kept.items()}
        self._change(param, grad, tensors, group, kept["step"].item())


def decayed(param: Any, grad: Any, group: dict[str, Any], lr: Any) -> Any:
    """Weight decay in one of its two forms: the parameter shrinks, or the gradient grows. Returns the gradient."""
    weight_decay = group["weight_decay"]
    if weight_decay == 0:
        return grad
    if group.get("decoupled_weight_decay"):
        param.mul_(1 - lr * weight_decay)
        return grad
    return grad.add(param, alpha=weight_decay)
