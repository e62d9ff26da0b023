"""`NAdam`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, decayed, penalty_of
from rushlight.optim.optimizer import add_ratio, hyper, number, step_dtype

__all__ = ["NAdam", "nadam"]


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov's momentum, which looks one step ahead.

    Example: `optimizer = torch.optim.NAdam(model.parameters())`
    """

    _state = ("exp_avg", "exp_avg_sq")
    _counters = ("step", "mu_product")
    _family = "nadam"

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr, eps=eps)
        check_betas(betas)
        check_rate(lr, weight_decay=weight_decay, momentum_decay=momentum_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _begin(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        kept["mu_product"] = rushlight.ones((), dtype=step_dtype())
        for name in cls._state:
            kept[name] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)

    @classmethod
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        lr = number(group["lr"])
        return lr, *map(number, group["betas"]), group["eps"], *penalty_of(group, lr), group["momentum_decay"]

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        beta1, beta2 = group["betas"]
        lr, decay = hyper(group, "lr"), group["momentum_decay"]
        grad = decayed(param, grad, group, lr)
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (step * decay))
        mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((step + 1) * decay))
        kept["mu_product"] *= mu
        product = kept["mu_product"].item()
        mean, square = kept["exp_avg"], kept["exp_avg_sq"]
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        denominator = square.div(1 - beta2**step).sqrt() + group["eps"]
        add_ratio(param, grad, denominator, -lr * (1.0 - mu) / (1.0 - product))
        add_ratio(param, mean, denominator, -lr * mu_next / (1.0 - product * mu_next))


def nadam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    mu_products: list[Any],
    state_steps: list[Any],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    momentum_decay: float,
    eps: float,
) -> None:
    """One step of `NAdam` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
        "decoupled_weight_decay": decoupled_weight_decay, "momentum_decay": momentum_decay, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
    }  # fmt: skip
    NAdam._update_lists(params, grads, {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "mu_product": mu_products, "step": state_steps}, group)
