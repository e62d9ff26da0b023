"""`RAdam`."""

from __future__ import annotations

from typing import Any

from rushlight.optim.elementwise import ElementwiseOptimizer, check_betas, check_rate, decayed
from rushlight.optim.optimizer import hyper

__all__ = ["RAdam"]


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

    def _change(
        self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
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
