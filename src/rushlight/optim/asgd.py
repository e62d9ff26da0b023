"""`ASGD`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.optim.elementwise import ElementwiseOptimizer, check_rate, decayed
from rushlight.optim.optimizer import number, step_dtype

__all__ = ["ASGD"]


class ASGD(ElementwiseOptimizer):
    """Stochastic gradient descent that also averages the parameters: the average is in `state[p]["ax"]`.

    `lambd` and `alpha` let the rate fall, `t0` says from which step on averages are taken.

    Example: `optimizer = torch.optim.ASGD(model.parameters())`
    """

    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_rate(lr, weight_decay=weight_decay)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _begin(self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        kept["eta"] = rushlight.tensor(number(group["lr"]), dtype=step_dtype())
        kept["mu"] = rushlight.ones((), dtype=step_dtype())
        kept["ax"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)

    def _change(
        self, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
    ) -> None:
        lr, lambd = number(group["lr"]), group["lambd"]  # the rates are kept as numbers
        grad = decayed(param, grad, group, lr)
        eta, mean = kept["eta"].item(), kept["ax"]
        param.mul_(1 - lambd * eta)
        param.add_(grad, alpha=-eta)
        mu = kept["mu"].item()
        if mu != 1:
            mean.add_(param.sub(mean).mul_(mu))
        else:
            mean.copy_(param)
        kept["eta"].fill_(lr / ((1 + lambd * lr * step) ** group["alpha"]))
        kept["mu"].fill_(1 / max(1, step - group["t0"]))
