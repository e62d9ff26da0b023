"""`ASGD`."""

from __future__ import annotations

from typing import Any

from rushlight import Tensor
from rushlight.optim.elementwise import ElementwiseOptimizer, check_rate, moved, takes_lists
from rushlight.optim.optimizer import hyper, number

__all__ = ["ASGD", "asgd"]


class ASGD(ElementwiseOptimizer):
    """Stochastic gradient descent that also averages the parameters: the average is in `state[p]["ax"]`.

    `lambd` and `alpha` let the rate fall, `t0` says from which step on averages are taken.

    Example: `optimizer = torch.optim.ASGD(model.parameters())`
    """

    _state = ("ax",)
    _counters = ("step", "eta", "mu")

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
    def _start(cls, counter: str, group: dict[str, Any]) -> float:
        return {"step": 0.0, "eta": number(group["lr"]), "mu": 1.0}[counter]

    @classmethod
    def _numbers(cls, group: dict[str, Any], kept: dict[str, Any], step: Any, fresh: bool) -> dict[str, Any]:
        lr, lambd = hyper(group, "lr"), group["lambd"]
        if isinstance(step, Tensor):
            eta, mu = kept["eta"].clone(), kept["mu"].clone()
            kept["eta"].copy_(lr / ((1 + lambd * lr * step) ** group["alpha"]))
            kept["mu"].copy_(1 / (step - group["t0"]).clamp(min=1))
            return {"lambd": lambd, "eta": eta, "mu": mu}
        eta, mu = kept["eta"].item(), kept["mu"].item()
        together = takes_lists(group)
        time = (
            kept["step"] if together else step
        )  # in PyTorch's form for lists the counter is a tensor, in whose precision the rate falls
        kept["eta"].fill_(lr / ((1 + lambd * lr * time) ** group["alpha"]))
        kept["mu"].fill_(1 / max(1, step - group["t0"]))
        if together:
            return {"lambd": lambd, "eta": eta, "mu": mu}
        return {"keep": 1 - lambd * eta, "move": -eta, "mu": None if mu == 1 else mu}

    @staticmethod
    def _rule(t: Any, x: Any, n: Any) -> None:
        if n.lambd is not None:
            x.param = moved(t, x.param, -t.add(x.grad, x.param, alpha=n.lambd), n.eta)
            x.ax = moved(t, x.ax, x.param - x.ax, n.mu)
            return
        x.param = t.add(x.param * n.keep, x.grad, alpha=n.move)
        x.ax = x.param if n.mu is None else x.ax + (x.param - x.ax) * n.mu


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
