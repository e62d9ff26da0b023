"""`RAdam`."""

from __future__ import annotations

from typing import Any

from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, decayed, penalty_of
from rushlight.optim.optimizer import hyper, number

__all__ = ["RAdam", "radam"]


class RAdam(ElementwiseOptimizer):
    """Adam that trusts its scaling only once enough gradients were seen; before that it steps along the mean.

    Example: `optimizer = torch.optim.RAdam(model.parameters())`
    """

    _state = ("exp_avg", "exp_avg_sq")
    _family = "radam"

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
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        lr = number(group["lr"])
        return lr, *map(number, group["betas"]), group["eps"], *penalty_of(group, lr)

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        beta1, beta2 = group["betas"]
        lr = hyper(group, "lr")
        grad = decayed(param, grad, group, lr)
        mean, square = kept["exp_avg"], kept["exp_avg_sq"]
        mean.lerp_(grad, 1 - beta1)
        square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        correction = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * (beta2**step) / correction
        update = (mean / (1 - beta1**step)) * lr
        if length > 5.0:
            trust = ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) ** 0.5
            update = update * (correction**0.5 / (square.sqrt() + group["eps"])) * trust
        param.add_(update, alpha=-1.0)


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
