"""`ASGD`."""

from __future__ import annotations

from typing import Any

import rushlight
from rushlight.optim.elementwise import ElementwiseOptimizer, check_rate, decayed, penalty_of
from rushlight.optim.optimizer import number, step_dtype

__all__ = ["ASGD", "asgd"]


class ASGD(ElementwiseOptimizer):
    """Stochastic gradient descent that also averages the parameters: the average is in `state[p]["ax"]`.

    `lambd` and `alpha` let the rate fall, `t0` says from which step on averages are taken.

    Example: `optimizer = torch.optim.ASGD(model.parameters())`
    """

    _state = ("ax",)
    _counters = ("step", "eta", "mu")
    _family = "asgd"

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

    @classmethod
    def _begin(cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any]) -> None:
        kept["step"] = rushlight.zeros((), dtype=step_dtype())
        kept["eta"] = rushlight.tensor(number(group["lr"]), dtype=step_dtype())
        kept["mu"] = rushlight.ones((), dtype=step_dtype())
        kept["ax"] = rushlight.zeros_like(param, memory_format=rushlight.preserve_format)

    @classmethod
    def _scalars(cls, group: dict[str, Any]) -> tuple[float, ...]:
        _, penalty, sign = penalty_of(group, 0.0)
        return number(group["lr"]), group["lambd"], group["alpha"], group["t0"], penalty, sign

    @classmethod
    def _change(
        cls, param: Any, grad: Any, kept: dict[str, Any], group: dict[str, Any], step: float
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


def asgd(
    params: list[Any],
    grads: list[Any],
    axs: list[Any],
    mus: list[Any],
    etas: list[Any],
    state_steps: list[Any],
    foreach: bool | None = None,
    maximize: bool = False,
    differentiable: bool = False,
    capturable: bool = False,
    has_complex: bool = False,
    *,
    lambd: float,
    lr: Any,
    t0: float,
    alpha: float,
    weight_decay: float,
) -> None:
    """One step of `ASGD` on lists of parameters, of their gradients and of their states, all in the same order."""
    group = {
        "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
    }  # fmt: skip
    ASGD._update_lists(params, grads, {"ax": axs, "mu": mus, "eta": etas, "step": state_steps}, group)
