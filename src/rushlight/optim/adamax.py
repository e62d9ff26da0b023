"""`Adamax`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, decayed, penalty_of
from rushlight.optim.optimizer import add_ratio, hyper, number

__all__ = ["Adamax", "adamax"]


class Adamax(ElementwiseOptimizer):
    """Adam with the largest gradient, slowly forgotten, in the place of the root of the mean square.

    Example: `optimizer = torch.optim.Adamax(model.parameters())`
    """

    _state = ("exp_avg", "exp_inf")
    _family = "adamax"

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

    @classmethod
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        _, penalty, sign = penalty_of(group, 0.0)
        return number(group["lr"]), *map(number, group["betas"]), group["eps"], penalty, sign

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        beta1, beta2 = group["betas"]
        lr = hyper(group, "lr")
        grad = decayed(param, grad, group, lr)
        mean, largest = kept["exp_avg"], kept["exp_inf"]
        mean.lerp_(grad, 1 - beta1)
        largest.copy_(rushlight.maximum(largest * beta2, grad.abs() + group["eps"]))
        add_ratio(param, mean, largest, -(lr / (1 - beta1**step)))


def adamax(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_infs: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    eps: float,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
) -> None:
    """One step of `Adamax` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
    }  # fmt: skip
    Adamax._update_lists(params, grads, {"exp_avg": exp_avgs, "exp_inf": exp_infs, "step": state_steps}, group)
