"""`NAdam`."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.optim.elementwise import (
    ElementwiseOptimizer,
    check_betas,
    check_rate,
    moved_by_product,
    moved_by_ratio,
    takes_lists,
)
from rushlight.optim.optimizer import hyper, number

__all__ = ["NAdam", "nadam"]


class NAdam(ElementwiseOptimizer):
    """Adam with Nesterov's momentum, which looks one step ahead.

    Example: `optimizer = torch.optim.NAdam(model.parameters())`
    """

    _state = ("exp_avg", "exp_avg_sq")
    _counters = ("step", "mu_product")

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
    def _start(cls, counter: str, group: dict[str, Any]) -> float:
        return 1.0 if counter == "mu_product" else 0.0

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        beta1, beta2 = map(number, group["betas"])
        lr, decay = hyper(group, "lr"), group["momentum_decay"]
        mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (at * decay)) for at in (step, step + 1))
        kept["mu_product"] *= mu
        product = kept["mu_product"]
        if not isinstance(step, Tensor) and not group.get("differentiable"):
            product = product.item()
        together, correction = takes_lists(group), 1 - beta2**step
        if together:
            lr = number(lr)
        return {
            "by_grad": -lr * (1.0 - mu) / (1.0 - product),
            "by_mean": -lr * mu_next / (1.0 - product * mu_next),
            "rest1": 1 - beta1,
            "beta2": beta2,
            "rest2": 1 - beta2,
            "correction": None if together else correction,
            "root": correction**0.5 if together else None,
            "eps": group["eps"],
        }

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        x.exp_avg = t.lerp(x.exp_avg, x.grad, n.rest1)
        x.exp_avg_sq = moved_by_product(t, x.exp_avg_sq * n.beta2, x.grad, x.grad, n.rest2)
        root = (t.sqrt(x.exp_avg_sq / n.correction) if n.root is None else t.sqrt(x.exp_avg_sq) / n.root) + n.eps
        x.param = moved_by_ratio(t, moved_by_ratio(t, x.param, x.grad, root, n.by_grad), x.exp_avg, root, n.by_mean)


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
    NAdam._update_lists(
        params,
        grads,
        {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "mu_product": mu_products, "step": state_steps},
        group,
    )
