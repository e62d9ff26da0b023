"""`RAdam`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight import Tensor
from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, moved_by_product, takes_lists
from rushlight.optim.optimizer import hyper, number

__all__ = ["RAdam", "radam"]


class RAdam(ElementwiseOptimizer):
    """Adam that trusts its scaling only once enough gradients were seen; before that it steps along the mean.

    Example: `optimizer = torch.optim.RAdam(model.parameters())`
    """

    _state = ("exp_avg", "exp_avg_sq")

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_rate(lr, eps=eps)
        check_betas(betas)
        check_rate(lr, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "decoupled_weight_decay": decoupled_weight_decay,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        beta1, beta2 = map(number, group["betas"])
        correction = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * (beta2**step) / correction
        trust: Any = 0.0
        if isinstance(step, Tensor):
            known = length.clamp(min=5.0)  # before, the second moment is not to be trusted
            trust = ((known - 4) * (known - 2) * longest / ((longest - 4) * (longest - 2) * known)) ** 0.5
            trust = rushlight.where(length > 5.0, trust, 0.0)
        elif length > 5.0:
            trust = ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) ** 0.5
        lr, bias = hyper(group, "lr"), 1 - beta1**step
        numbers = {"rest1": 1 - beta1, "beta2": beta2, "rest2": 1 - beta2}
        if takes_lists(group) or isinstance(step, Tensor):
            return numbers | {
                "eps": group["eps"],
                "scale": -(correction**0.5 * (lr * trust / bias)),
                "plain": -(lr * (trust == 0) / bias),
            }
        numbers |= {"lr": lr, "correction": bias}
        return numbers | {"root": correction**0.5, "trust": trust, "eps": group["eps"]} if trust else numbers

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        x.exp_avg = t.lerp(x.exp_avg, x.grad, n.rest1)
        x.exp_avg_sq = moved_by_product(t, x.exp_avg_sq * n.beta2, x.grad, x.grad, n.rest2)
        if n.scale is not None:
            x.param = t.addcmul(
                x.param, x.exp_avg, t.reciprocal((t.sqrt(x.exp_avg_sq) + n.eps) / n.scale) + n.plain, value=1
            )
            return
        update = x.exp_avg / n.correction * n.lr
        if n.trust is not None:
            update = update * (t.reciprocal(t.sqrt(x.exp_avg_sq) + n.eps) * n.root) * n.trust
        x.param = x.param - update


def radam(
    params: list[Any],
    grads: list[Any],
    exp_avgs: list[Any],
    exp_avg_sqs: list[Any],
    state_steps: list[Any],
    decoupled_weight_decay: bool = False,
    foreach: bool | None = None,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    maximize: bool = False,
    *,
    beta1: float,
    beta2: float,
    lr: Any,
    weight_decay: float,
    eps: float,
) -> None:
    """One step of `RAdam` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "betas": (beta1, beta2), "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
        "decoupled_weight_decay": decoupled_weight_decay, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
    }  # fmt: skip
    RAdam._update_lists(params, grads, {"exp_avg": exp_avgs, "exp_avg_sq": exp_avg_sqs, "step": state_steps}, group)
