"""`Adamax`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, decayed
from rushlight.optim.optimizer import add_ratio, hyper

__all__ = ["Adamax"]


class Adamax(ElementwiseOptimizer):
    """Adam with the largest gradient, slowly forgotten, in the place of the root of the mean square.

    Example: `optimizer = torch.optim.Adamax(model.parameters())`
    """

    _state = ("exp_avg", "exp_inf")

    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_rate(lr, eps=eps)
        check_betas(betas)
        check_rate(lr, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _change(
        self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        beta1, beta2 = group["betas"]
        lr = hyper(group, "lr")
        grad = decayed(param, grad, group, lr)
        mean, largest = kept["exp_avg"], kept["exp_inf"]
        mean.lerp_(grad, 1 - beta1)
        largest.copy_(rushlight.maximum(largest * beta2, grad.abs() + group["eps"]))
        add_ratio(param, mean, largest, -(lr / (1 - beta1**step)))
