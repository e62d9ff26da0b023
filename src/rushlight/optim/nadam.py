"""`NAdam`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, decayed
from rushlight.optim.optimizer import add_ratio, hyper, step_dtype

__all__ = ["NAdam"]


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov's momentum, which looks one step ahead.

    Example: `optimizer = torch.optim.NAdam(model.parameters())`
    """

    _state = ("exp_avg", "exp_avg_sq")

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

    def _begin(self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        kept["mu_product"] = rushlight.ones((), dtype=step_dtype())
        for name in self._state:
            kept[name] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)

    def _change(
        self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
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
