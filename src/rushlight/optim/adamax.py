"""`Adamax`."""

from __future__ import annotations

from typing import Any

from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, moved_by_ratio
from rushlight.optim.optimizer import hyper, number

__all__ = ["Adamax", "adamax"]


class Adamax(ElementwiseOptimizer):
    """Adam with the largest gradient, slowly forgotten, in the place of the root of the mean square.

    Example: `optimizer = torch.optim.Adamax(model.parameters())`
    """

    _state = ("exp_avg", "exp_inf")
    _decays_complex = True

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
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        beta1, beta2 = map(number, group["betas"])
        return {
            "move": -(hyper(group, "lr") / (1 - beta1**step)),
            "rest1": 1 - beta1,
            "beta2": beta2,
            "eps": group["eps"],
        }

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        x.exp_avg = t.lerp(x.exp_avg, x.grad, n.rest1)
        x.exp_inf = t.maximum(x.exp_inf * n.beta2, t.abs(x.grad) + n.eps)
        x.param = moved_by_ratio(t, x.param, x.exp_avg, x.exp_inf, n.move)


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
