"""`Adam` and `AdamW`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight._engine.multi_tensor import fused_update
from rushlight.optim.optimizer import Optimizer, check_implementation, number, run_closure, step_dtype

__all__ = ["Adam", "AdamW"]


def _check(lr: Any, betas: tuple[Any, Any], eps: float, weight_decay: float) -> None:
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
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
        _check(lr, betas, eps, weight_decay)
        if isinstance(lr, Tensor) and foreach and not capturable:
            raise ValueError("lr as a Tensor is not supported for capturable=False and foreach=True")
        defaults = {
            "lr": lr,
            "betas": tuple(number(beta) for beta in betas),
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
        check_implementation(type(self).__name__, defaults)
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
                    _begin(param, kept, amsgrad)
                if amsgrad:
                    rows.append(
                        (param, grad, kept["exp_avg"], kept["exp_avg_sq"], kept["max_exp_avg_sq"], kept["step"])
                    )
                else:
                    rows.append((param, grad, kept["exp_avg"], kept["exp_avg_sq"], kept["step"]))
            if rows:
                _update("adam_amsgrad" if amsgrad else "adam", rows, group)
        return loss


def _begin(param: Any, kept: dict[str, Any], amsgrad: bool) -> None:
    with rushlight.no_grad():
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        kept["exp_avg"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)
        kept["exp_avg_sq"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)
        if amsgrad:
            kept["max_exp_avg_sq"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)


def _update(name: str, rows: list[Any], group: dict[str, Any]) -> None:
    lr = number(group["lr"])
    beta1, beta2 = group["betas"]
    weight_decay = number(group["weight_decay"])
    decoupled = group["decoupled_weight_decay"] and weight_decay != 0
    # What p is multiplied with, and what of p is added to the gradient: one of the two decays does nothing.
    shrink = 1 - lr * weight_decay if decoupled else 1.0
    penalty = 0.0 if decoupled else weight_decay
    sign = -1.0 if group["maximize"] else 1.0
    rest = fused_update(name, rows, (lr, beta1, beta2, group["eps"], shrink, penalty, sign))
    if rest:
        with rushlight.no_grad():
            for i in rest:
                _update_one(rows[i], lr, beta1, beta2, group["eps"], shrink, penalty, sign)


def _update_one(
    row: Any, lr: float, beta1: float, beta2: float, eps: float, shrink: float, penalty: float, sign: float
) -> None:
    """One parameter by tensor operations: the definition that the kernel follows."""
    param, grad, exp_avg, exp_avg_sq, *maximum, step_tensor = row
    step_tensor += 1
    step = step_tensor.item()
    if sign < 0:
        grad = -grad
    if shrink != 1:
        param.mul_(shrink)
    if penalty != 0:
        grad = grad.add(param, alpha=penalty)
    if param.is_complex():
        param, grad, exp_avg, exp_avg_sq = map(rushlight.view_as_real, (param, grad, exp_avg, exp_avg_sq))
        maximum = [rushlight.view_as_real(m) for m in maximum]
    exp_avg.lerp_(grad, 1 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    second = exp_avg_sq
    if maximum:
        second = maximum[0]
        second.copy_(rushlight.maximum(second, exp_avg_sq))
    denominator = (second.sqrt() / (1 - beta2**step) ** 0.5).add_(eps)
    param.addcdiv_(exp_avg, denominator, value=-(lr / (1 - beta1**step)))


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
