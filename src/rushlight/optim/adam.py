"""`Adam` and `AdamW`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._engine.multi_tensor import fused_update
from rushlight.optim.optimizer import (
    Optimizer,
    add_ratio,
    add_square,
    check_implementation,
    check_param,
    check_steps,
    hyper,
    number,
    run_closure,
    scaler_skips,
    step_dtype,
    unscaled,
)

__all__ = ["Adam", "AdamW", "adam", "adamw"]


def _check_tensors(value: Any, lists: Any, name: str) -> None:
    """Which hyper-parameters may be tensors, and of which size."""
    if isinstance(value, Tensor):
        if lists:
            raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
        if value.numel() != 1:
            raise ValueError(f"Tensor {name} must be 1-element")


def _check(lr: Any, betas: tuple[Any, Any], eps: float, weight_decay: float) -> None:
    if not 0.0 <= number(lr):
        raise ValueError(f"Invalid learning rate: {lr}")
    if not 0.0 <= eps:
        raise ValueError(f"Invalid epsilon value: {eps}")
    for i, beta in enumerate(betas):
        if not 0.0 <= number(beta) < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")
    if not 0.0 <= weight_decay:
        raise ValueError(f"Invalid weight_decay value: {weight_decay}")


class Adam(Optimizer):
    """Adam: steps scaled by running averages of the gradient and of its square.

    m = b1 * m + (1 - b1) * g and v = b2 * v + (1 - b2) * g² with `betas` = (b1, b2); both are corrected for their start at
    zero, and p -= `lr` * m / (sqrt(v) + `eps`). `weight_decay` * p is added to the gradient first (with
    `decoupled_weight_decay`, p shrinks by lr * weight_decay instead: that is `AdamW`). `amsgrad` uses the largest v so far;
    `maximize` climbs. `foreach` and `fused` are accepted for compatibility: there is one implementation.

    Raises `ValueError` for values out of range.

    Example: `optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)`
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        lists = foreach and not capturable
        _check_tensors(lr, lists, "lr")
        _check(lr, betas, eps, weight_decay)
        if isinstance(betas[0], Tensor) is not isinstance(betas[1], Tensor):
            raise ValueError("betas must be either both floats or both Tensors")
        for i, beta in enumerate(betas):
            _check_tensors(beta, lists, f"betas[{i}]")
        defaults = {
            "lr": lr,
            "betas": tuple(beta.squeeze() if isinstance(beta, Tensor) else beta for beta in betas),
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        check_implementation(self, defaults)
        super().__init__(params, defaults)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name in ("amsgrad", "maximize", "capturable", "differentiable", "decoupled_weight_decay"):
                group.setdefault(name, False)
            group.setdefault("foreach", None)
            group.setdefault("fused", None)
            for param in group["params"]:
                kept = self.state.get(param)
                # Old files count steps in Python numbers.
                if kept and not isinstance(kept["step"], Tensor):
                    kept["step"] = rushlight.tensor(float(kept["step"]), dtype=step_dtype())

    def step(self, closure: Any = None) -> Any:
        """Change every parameter that has a gradient; returns the value of `closure`."""
        loss = run_closure(closure)
        if scaler_skips(self):
            return loss
        for group in self.param_groups:
            amsgrad = group["amsgrad"]
            rows: list[tuple[Any, ...]] = []
            state = self.state
            for param in group["params"]:
                grad = param.grad
                if grad is None:
                    continue
                if grad.is_sparse:
                    raise RuntimeError("Adam does not support sparse gradients, please consider SparseAdam instead")
                kept = state[param]
                if not kept:
                    check_param(param, group)
                    _begin(param, kept, amsgrad)
                elif group["differentiable"]:  # the tensors of the last step belong to its graph
                    kept.update({name: value.clone() for name, value in kept.items() if name != "step"})
                if amsgrad:
                    rows.append(
                        (param, grad, kept["exp_avg"], kept["exp_avg_sq"], kept["max_exp_avg_sq"], kept["step"])
                    )
                else:
                    rows.append((param, grad, kept["exp_avg"], kept["exp_avg_sq"], kept["step"]))
            if rows:
                _update(rows, group)
        return loss


def _begin(param: Any, kept: dict[str, Any], amsgrad: bool) -> None:
    with rushlight.no_grad():
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        kept["exp_avg"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)
        kept["exp_avg_sq"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)
        if amsgrad:
            kept["max_exp_avg_sq"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)


def _update(rows: list[Any], group: dict[str, Any]) -> None:
    if group["differentiable"]:
        check_param(rows[0][0], group)
        with rushlight.enable_grad():
            for row in rows:
                _update_one(row, group)
        return
    lr = number(group["lr"])
    beta1, beta2 = map(number, group["betas"])
    weight_decay = number(group["weight_decay"])
    decoupled = group["decoupled_weight_decay"] and weight_decay != 0
    # What p is multiplied with, and what of p is added to the gradient: one of the two decays does nothing.
    shrink = number(1 - group["lr"] * weight_decay) if decoupled else 1.0
    penalty = 0.0 if decoupled else weight_decay
    sign = -1.0 if group["maximize"] else 1.0
    rest = fused_update("adam", rows, (lr, beta1, beta2, group["eps"], shrink, penalty, sign))
    if rest:
        with rushlight.no_grad():
            for i in rest:
                _update_one(rows[i], group)


def _update_one(row: Any, group: dict[str, Any]) -> None:
    """One parameter by tensor operations: the definition that the kernel follows, and what can be differentiated."""
    param, grad, exp_avg, exp_avg_sq, *maximum, step_tensor = row
    check_param(param, group)
    lr, weight_decay = hyper(group, "lr"), group["weight_decay"]
    beta1, beta2 = group["betas"] if group["differentiable"] else map(number, group["betas"])
    step_tensor += 1
    step = step_tensor.clone() if group["differentiable"] else step_tensor.item()
    if group["maximize"]:
        grad = -grad
    if weight_decay != 0:
        if group["decoupled_weight_decay"]:
            param.mul_(1 - lr * weight_decay)
        else:
            grad = grad.add(param, alpha=weight_decay)
    if param.is_complex():
        param, grad, exp_avg, exp_avg_sq = map(rushlight.view_as_real, (param, grad, exp_avg, exp_avg_sq))
        maximum = [rushlight.view_as_real(m) for m in maximum]
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2)
    add_square(exp_avg_sq, grad, 1 - beta2)
    second = exp_avg_sq
    if maximum:
        second = maximum[0]
        before = second.clone() if group["differentiable"] else second
        second.copy_(rushlight.maximum(before, exp_avg_sq))
    denominator = second.sqrt() / (1 - beta2**step) ** 0.5 + group["eps"]
    add_ratio(param, exp_avg, denominator, -(lr / (1 - beta1**step)))


class AdamW(Adam):
    """Adam with decoupled weight decay: p first shrinks by `lr` * `weight_decay`, the averages do not see it.

    Example: `optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)`
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True


def adam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    max_exp_avg_sqs: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    decoupled_weight_decay: bool = False,
    *,
    amsgrad: bool,
    beta1: Any,
    beta2: Any,
    lr: Any,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `Adam` on lists of parameters, of their gradients and of their states, all in the same order."""
    check_steps(state_steps)
    group = {
        "lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach, "fused": fused,
        "decoupled_weight_decay": decoupled_weight_decay, "capturable": capturable, "differentiable": differentiable,
    }  # fmt: skip
    grads = unscaled(grads, grad_scale, found_inf, group)
    if grads:
        states = [exp_avgs, exp_avg_sqs, *([max_exp_avg_sqs] if amsgrad else []), state_steps]
        _update(list(zip(params, grads, *states, strict=True)), group)


def adamw(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    max_exp_avg_sqs: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    has_complex: bool = False,
    *,
    amsgrad: bool,
    beta1: Any,
    beta2: Any,
    lr: Any,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> None:
    """One step of `AdamW` on lists of parameters, of their gradients and of their states, all in the same order."""
    adam(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs, state_steps, foreach, capturable, differentiable, fused, grad_scale, found_inf,
        has_complex, True, amsgrad=amsgrad, beta1=beta1, beta2=beta2, lr=lr, weight_decay=weight_decay, eps=eps, maximize=maximize,
    )  # fmt: skip
