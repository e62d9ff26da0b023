"""The frame of optimizers that change each element by itself: by one kernel for all parameters, else by tensor operations."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._engine.multi_tensor import fused_update
from rushlight.optim.optimizer import (
    Optimizer,
    check_implementation,
    check_param,
    check_steps,
    number,
    run_closure,
    scaler_skips,
    step_dtype,
    unscaled,
)

__all__ = ["ElementwiseOptimizer", "check_betas", "check_rate", "decayed", "penalty_of"]


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
    """A subclass names its state tensors (`_state`, made of zeros like the parameter) and counters, and defines `_change`.

    One whose steps a kernel takes for many parameters at once names the kernel's family and gives its scalars.
    """

    _state: tuple[str, ...] = ()
    _counters: tuple[str, ...] = ("step",)
    _takes_sparse = False
    _family: str | None = None

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

    @classmethod
    def _begin(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        for name in cls._state:
            kept[name] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        """Change `param` and the state `kept` in place; complex ones come as real tensors.

        Nothing that an operation may have kept for its backward is written into, apart from those: a step can be differentiated.
        """
        raise NotImplementedError

    @classmethod
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        """The scalars of the kernel's family; see `fused_update`."""
        raise NotImplementedError

    @classmethod
    def _tensors(cls, group: dict[str, Any]) -> tuple[str | None, ...]:
        """The states that the kernel's rows hold, in their order; None where one is left out."""
        return cls._state

    def step(self, closure: Any = None) -> Any:
        """Change every parameter that has a gradient; returns the value of `closure`."""
        loss = run_closure(closure)
        if scaler_skips(self):
            return loss
        for group in self.param_groups:
            triples = [(param, param.grad, self.state[param]) for param in group["params"] if param.grad is not None]
            if group.get("differentiable"):  # the tensors of the last step belong to its graph
                for _, _, kept in triples:
                    kept.update({name: value.clone() for name, value in kept.items() if name != "step" and isinstance(value, Tensor)})
            self._update(triples, group)
        return loss

    @classmethod
    def _update(cls, triples: list[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any]) -> None:
        """Change parameters by their gradients, each with the state that is kept for it."""
        differentiable = bool(group.get("differentiable"))
        with rushlight.set_grad_enabled(differentiable):
            if not differentiable and not group.get("capturable") and cls._family is not None:
                triples = cls._update_together(triples, group)
            for param, grad, kept in triples:
                cls._update_one(param, grad, kept, group)

    @classmethod
    def _update_together(cls, triples: list[tuple[Any, Any, dict[str, Any]]], group: dict[str, Any]) -> list[tuple[Any, Any, dict[str, Any]]]:
        """Change parameters by one kernel for all of them; gives back those that it does not take."""
        rows, sources, rest = [], [], []
        tensors = cls._tensors(group)
        for triple in triples:
            param, grad, kept = triple
            if not grad.is_sparse:
                if not kept:
                    cls._begin(param, grad, kept, group)
                if all(name is None or name in kept for name in tensors):
                    states = [None if name is None else kept[name] for name in tensors]
                    rows.append((param, grad, *states, *[kept[name] for name in cls._counters]))
                    sources.append(triple)
                    continue
            rest.append(triple)
        assert cls._family is not None
        return [*rest, *(sources[i] for i in fused_update(cls._family, rows, cls._scalars(group)))]

    @classmethod
    def _update_one(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        if grad.is_sparse and not cls._takes_sparse:
            raise RuntimeError(f"{cls.__name__} does not support sparse gradients")
        if not kept:
            cls._begin(param, grad, kept, group)
        check_param(param, group)
        kept["step"] += 1
        if group["maximize"]:
            grad = -grad
        tensors = kept
        if param.is_complex():
            param, grad = rushlight.view_as_real(param), rushlight.view_as_real(grad)
            tensors = {k: rushlight.view_as_real(v) if v.is_complex() else v for k, v in kept.items()}
        cls._change(param, grad, tensors, group, kept["step"].item())

    @classmethod
    def _update_lists(
        cls, params: list[Any], grads: list[Any], states: dict[str, list[Any]], group: dict[str, Any], scale: Any = None, overflow: Any = None
    ) -> None:
        """The step on lists of tensors: what the functions in PyTorch's modules of optimizers do."""
        check_steps(states["step"])
        grads = unscaled(grads, scale, overflow, group)
        if grads is None:
            return
        kept = [{name: values[i] for name, values in states.items() if values and values[i] is not None} for i in range(len(params))]
        cls._update(list(zip(params, grads, kept, strict=True)), group)


def penalty_of(group: dict[str, Any], lr: float) -> tuple[float, float, float]:
    """What kernels know of weight decay and direction: the factor of the parameter, its share of the gradient, the gradient's sign."""
    weight_decay, sign = number(group["weight_decay"]), -1.0 if group["maximize"] else 1.0
    return (1 - lr * weight_decay, 0.0, sign) if group.get("decoupled_weight_decay") else (1.0, weight_decay, sign)


def decayed(param: Any, grad: Any, group: dict[str, Any], lr: Any) -> Any:
    """Weight decay in one of its two forms: the parameter shrinks, or the gradient grows. Returns the gradient."""
    weight_decay = group["weight_decay"]
    if weight_decay == 0:
        return grad
    if group.get("decoupled_weight_decay"):
        param.mul_(1 - lr * weight_decay)
        return grad
    return grad.add(param, alpha=weight_decay)
